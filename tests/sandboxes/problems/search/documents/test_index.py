import os
import subprocess
import sys

import pytest

from sandboxes.problems.search.documents.corpus import Corpus, Document
from sandboxes.problems.search.documents.index import open_index


def corpus(texts, name="made"):
    return Corpus([Document(title, text) for title, text in texts.items()], name=name, source="s", licence="l")


def test_the_best_document_comes_first_and_only_those_that_share_a_term(small):
    assert [d.title for d in small.search("capital Aland", 5)] == ["Aland", "Ravos"]


def test_equal_scores_come_in_the_order_of_ids_however_many_tie():
    many = corpus({f"t{n}": "same words here" for n in range(200)})
    assert [d.title for d in many.search("same", 5)] == ["t0", "t1", "t2", "t3", "t4"]


@pytest.mark.parametrize(
    "query", ["", "   ", '"', "title:", "q OR (w", "[q TO z]", "q^99 ~", "*", "\x00", "+-&&||!{}", "a" * 100_000]
)
def test_no_query_is_read_as_a_query_language(small, query):
    assert small.search(query, 3) == []


def test_words_of_a_query_language_are_words(small):
    assert small.search('capital: AND ("Aland"', 1)[0].title == "Aland"


def test_titles_are_found_by_any_spelling_that_names_one_document_alone():
    pair = corpus({"libc++": "a", "libc": "b", "Élan Vital": "c"})
    assert pair.find("libc++").text == "a" and pair.find("libc").text == "b"
    assert pair.find("LIBC") is None  # it could be either
    assert pair.find("elan vital").text == "c"


def test_documents_of_one_title_are_refused():
    with pytest.raises(ValueError, match="several documents of one title"):
        Corpus([Document("a", "1"), Document("a", "2")], name="n", source="s", licence="l")
    with pytest.raises(ValueError, match="at least one document"):
        corpus({})


def test_the_digest_names_the_content(small):
    assert corpus({"a": "1"}).digest == corpus({"a": "1"}, name="other").digest != corpus({"a": "2"}).digest


BUILD = """
from sandboxes.problems.search.documents.index import open_index
def terms():
    print("built", flush=True)
    yield from (["common", f"word{n}"] for n in range(20_000))
print(open_index("f" * 64, terms()).search(["word77"], 3))
"""


def test_of_processes_that_need_an_index_at_once_one_builds_it_and_all_get_it(tmp_path):
    environment = {**os.environ, "LAKELOOP_HOME": str(tmp_path)}
    command = [sys.executable, "-c", BUILD]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].split("\n") for process in running]
    assert sum(lines.count("built") for lines in said) == 1
    assert all("[77]" in lines for lines in said)
    assert [path.suffix for path in sorted((tmp_path / "cache" / "search").iterdir())].count(".lock") == 1
    assert len(list((tmp_path / "cache" / "search").iterdir())) == 2


def test_a_build_that_breaks_off_leaves_nothing_that_passes_for_an_index(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))

    def broken():
        yield ["a"]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        open_index("e" * 64, broken())
    assert not [path for path in (tmp_path / "cache" / "search").iterdir() if path.is_dir()]
    assert open_index("e" * 64, [["a"]]).search(["a"], 1) == [0]
