import pytest

from sandboxes.problems.search.documents.text import PAGE_CHARS
from sandboxes.problems.search.documents.world import PARAMETER, TOOLS, K, Spec, World


@pytest.fixture
def world(small):
    path = [("search", {"query": "Aland capital"}), ("open", {"title": "Ravos"}), ("answer", {"text": "12 May 1410"})]
    spec = Spec(
        corpus=small.digest,
        corpus_name="small",
        template="t",
        hops=2,
        answer_type="date",
        accepted=["12 May 1410"],
        support=["Aland", "Ravos"],
        path=path,
    )
    return World(spec, small)


def facts(world):
    answer, retrieval = world.facts()
    assert (answer.name, retrieval.name) == ("answer", "retrieval")
    return answer.value, retrieval.value


def test_a_search_lists_titles_with_the_line_nearest_to_the_query(world):
    assert world.call("search", {"query": "founded ravos"}).text.splitlines()[0] == "1. Ravos: Founded: 12 May 1410"


def test_a_long_document_opens_page_by_page_and_says_how_many_there_are(world, small):
    total = len(small.find("Tamsin").pages)
    assert total > 2
    first = world.call("open", {"title": "Tamsin"}).text
    last = world.call("open", {"title": "tamsin", "page": total}).text
    assert first.startswith(f"Tamsin (page 1 of {total})\nChapter 1:")
    assert last.startswith(f"Tamsin (page {total} of {total})\n") and "Chapter 30:" in last
    assert len(first) <= PAGE_CHARS + 40


@pytest.mark.parametrize("page", [0, -1, 99])
def test_a_page_that_is_not_there_is_an_error_that_says_which_are(world, page):
    seen = world.call("open", {"title": "Tamsin", "page": page})
    assert seen.is_error and seen.text == "Tamsin has pages 1 to 4."


def test_find_looks_on_every_page_of_the_opened_document_and_says_where(world):
    world.call("open", {"title": "Tamsin"})
    assert world.call("find", {"text": "chapter 29"}).text.startswith("Page 4: Chapter 29:")
    seen = world.call("find", {"text": "lighthouse"}).text.splitlines()
    assert len(seen) == 6 and seen[-1] == "25 more lines."
    assert world.call("find", {"text": "lighthouse volcano"}).text == "Tamsin has no line with these words."


def test_find_needs_an_opened_document(world):
    assert world.call("find", {"text": "x"}).is_error


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rm", {}),
        ("search", {}),
        ("search", {"query": 3}),
        ("search", {"query": "x", "page": 1}),
        ("open", {"title": "Tamsin", "page": "2"}),
        ("open", {"title": "Tamsin", "page": True}),
        ("open", {"title": "Tamsin", "page": None}),
        ("open", {"page": 1}),
        ("open", {"title": "Nowhere"}),
        ("answer", {"text": None}),
    ],
)
def test_wrong_calls_are_observations(world, name, arguments):
    seen = world.call(name, arguments)
    assert seen.is_error and not seen.done and seen.text


def test_the_tool_schemas_say_what_the_tools_take():
    described = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
    assert {name: schema["required"] for name, schema in described.items()} == {n: [p] for n, p in PARAMETER.items()}
    assert set(described["open"]["properties"]) == {"title", "page"}


def test_tags_in_retrieved_text_are_defused_in_every_tool(world):
    calls = [("search", {"query": "anthem"}), ("open", {"title": "Aland"}), ("find", {"text": "anthem"})]
    for name, arguments in calls:
        seen = world.call(name, arguments).text
        assert "&lt;tool_call>" in seen and "<tool_call>" not in seen and "<|im_end|>" not in seen


def test_the_evidence_says_how_the_answer_was_looked_for(world, small):
    world.call("search", {"query": "Aland capital"})
    world.call("open", {"title": "Ravos"})
    world.call("open", {"title": "Tamsin", "page": 2})
    assert world.call("answer", {"text": "1410-05-12"}).done
    answer, retrieval = facts(world)
    assert answer == {
        "given": "1410-05-12",
        "accepted": ["12 May 1410"],
        "type": "date",
        "match": True,
        "exact": False,
        "f1": 0.0,
    }
    assert retrieval["queries"] == ["Aland capital"] and retrieval["results"] == [["Aland", "Ravos"]]
    assert (retrieval["opened"], retrieval["pages"]) == (["Ravos", "Tamsin"], [1, 2])
    assert retrieval["support_listed"] == ["Aland", "Ravos"] and retrieval["support_opened"] == ["Ravos"]
    assert retrieval["hit"] and retrieval["k"] == K
    assert retrieval["corpus"] == small.digest and retrieval["engine"].startswith("tantivy ")


def test_doing_nothing_is_evidence_of_nothing(world):
    answer, retrieval = facts(world)
    assert answer["given"] is None and not answer["match"] and answer["f1"] == 0.0
    assert not retrieval["hit"] and retrieval["support_opened"] == []


def test_what_the_policy_says_last_in_plain_text_is_its_answer_unless_it_gave_one(world):
    world.hear("12 May 1410")
    assert facts(world)[0]["match"]
    world.call("answer", {"text": "13 May 1410"})
    world.hear("12 May 1410")
    assert facts(world)[0]["given"] == "13 May 1410"
