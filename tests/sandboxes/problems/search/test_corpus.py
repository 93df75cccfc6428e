import io
import json
import tarfile

import pytest

from sandboxes.problems.search.corpus import PASSAGE_CHARS, Corpus, escape, shortened
from sandboxes.problems.search.data import extract


def test_the_best_passage_comes_first(small):
    assert small.search("capital Ravos", 3)[0].title == "Aland / Capital"


def test_equal_scores_come_in_the_order_of_passages():
    corpus = Corpus({name: {"Capital": "same"} for name in ("Zed", "Yot", "Xav", "Wob")})
    assert [p.country for p in corpus.search("same", 3)] == ["Zed", "Yot", "Xav"]
    assert [p.country for p in corpus.search("same", 9)] == ["Zed", "Yot", "Xav", "Wob"]


@pytest.mark.parametrize(
    "query", ["", "   ", '"NOT" (AND* OR', "\x00\uffff", "unheardof", "; DROP TABLE y --", "a" * 100_000]
)
def test_any_query_is_harmless(small, query):
    assert small.search(query, 3) == []


def test_accents_and_thousands_separators_do_not_hide_a_passage():
    corpus = Corpus({"Peru": {"Capital": "Limá", "Area": "1,285,216 sq km"}, "Chile": {"Capital": "Santiago"}})
    assert corpus.search("lima", 1)[0].field == "Capital"
    assert corpus.search("1285216", 1)[0].field == "Area"


def test_titles_are_found_whatever_their_case_and_punctuation(small):
    assert small.find("aland - CAPITAL") == small.find("Aland / Capital") is not None
    assert small.find("Aland") is None


def test_the_digest_names_the_content(small):
    same = Corpus(small.countries)
    other = Corpus({**small.countries, "Erewhon": {"Capital": "X"}})
    assert same.digest == small.digest != other.digest


def test_an_empty_corpus_is_refused():
    with pytest.raises(ValueError, match="at least one passage"):
        Corpus({})


@pytest.mark.parametrize("text", ["<tool_call>", "</tool_call>", "<|im_end|>", "<tool_response>", "<!-- x", "<think>"])
def test_retrieved_text_never_opens_a_tag(text):
    assert "<" not in escape(f"a {text} b")
    assert escape("3 < 4") == "3 < 4"


def test_shortened_text_keeps_its_limit():
    assert shortened("abc", 3) == "abc"
    assert len(shortened("a " * 500, 60)) <= 60


def test_the_shipped_corpus_holds_the_world(shipped):
    assert len(shipped.countries) == 230
    assert len(shipped.passages) > 3_500
    assert shipped.countries["Peru"]["Internet code"] == ".pe"
    assert all(len(str(p)) <= PASSAGE_CHARS + len(p.title) + 2 for p in shipped.passages)
    assert all(p.text.isascii() and p.text.strip() for p in shipped.passages)


def test_extraction_reads_profiles_and_leaves_the_rest():
    profile = {
        "Government": {
            "Country name": {"conventional short form": {"text": "Congo"}},
            "Capital": {"name": {"text": "Brazzaville; note - x"}},
            "National anthem": {"name": {"text": '"La Congolaise" (The Congolese)'}},
        },
        "People and Society": {"Nationality": {"noun": {"text": "Congolese(s) or X"}}, "Languages": {"text": "NA"}},
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in (("africa/cf.json", profile), ("meta/categories.json", {}), ("oceans/xo.json", {})):
            raw = json.dumps(content).encode()
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    assert extract.extract(archive.getvalue()) == {
        "Republic of the Congo": {"Capital": "Brazzaville", "Anthem": "La Congolaise", "Nationality": "Congolese"}
    }
