import json

import pytest

from sandboxes.backends.base import SandboxError
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.search import KIND
from sandboxes.problems.search.env import PARAMETER, K, Spec
from sandboxes.problems.search.kind import SearchKind
from sandboxes.problems.search.questions import generate


class NoBackend:
    """Search must not ask for a box."""

    name = "none"

    async def start(self, spec):
        raise SandboxError("a search problem asked for a box")


@pytest.fixture
def problem(small):
    return next(p for p in generate(small, 0, 50) if "Ravos" in p.prompt or "Aland" in p.prompt)


@pytest.fixture
async def environment(small, problem):
    return await SearchKind(small).open(problem, NoBackend())


async def test_search_shows_ranked_titles_with_snippets(environment):
    seen = await environment.call("search", {"query": "capital Ravos"})
    assert seen.text.splitlines()[0] == "1. Aland / Capital: Ravos"
    assert len(seen.text.splitlines()) == K
    assert not seen.is_error and not seen.done


async def test_open_shows_the_title_and_the_text(environment):
    assert (await environment.call("open", {"title": "Aland / Capital"})).text == "Aland / Capital: Ravos"


async def test_an_unknown_title_is_an_error_that_names_the_nearest(environment):
    seen = await environment.call("open", {"title": "Borduria / Capitol"})
    assert seen.is_error and "Borduria / Capital" in seen.text


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rm", {}),
        ("search", {}),
        ("search", {"query": 3}),
        ("open", {"title": "x", "y": 1}),
        ("answer", {"text": None}),
    ],
)
async def test_wrong_calls_are_observations(environment, name, arguments):
    seen = await environment.call(name, arguments)
    assert seen.is_error and not seen.done


async def test_the_tool_schemas_say_what_the_tools_take(environment):
    described = {t["function"]["name"]: t["function"]["parameters"]["required"] for t in environment.tools}
    assert described == {name: [parameter] for name, parameter in PARAMETER.items()}


async def test_tool_tags_in_a_passage_are_defused(environment):
    for seen in (
        await environment.call("open", {"title": "Cedar / Anthem"}),
        await environment.call("search", {"query": "anthem cedar"}),
    ):
        assert "<tool_call>" not in seen.text and "<|im_end|>" not in seen.text and "&lt;tool_call>" in seen.text


async def test_the_evidence_says_what_was_answered_and_how_it_was_found(environment, small, problem):
    await environment.call("search", {"query": "capital Ravos"})
    await environment.call("open", {"title": "Aland / Area"})
    seen = await environment.call("answer", {"text": "nonsense"})
    assert seen.done
    answer, retrieval = await environment.grade()
    assert (answer.name, retrieval.name) == ("answer", "retrieval")
    assert answer.value == {
        "given": "nonsense",
        "accepted": json.loads(problem.spec)["accepted"],
        "match": False,
        "exact": False,
        "f1": 0.0,
    }
    assert retrieval.value["queries"] == ["capital Ravos"]
    assert retrieval.value["results"][0][0] == "Aland / Capital"
    assert retrieval.value["opened"] == ["Aland / Area"]
    assert retrieval.value["corpus"] == small.digest
    assert retrieval.value["k"] == K and retrieval.value["engine"].startswith("bm25s ")


async def test_the_evidence_says_which_of_the_passages_that_must_be_read_were_listed_and_opened(small):
    asked = {json.loads(problem.spec)["template"]: problem for problem in generate(small, 0, 50)}
    bridge = await SearchKind(small).open(asked["bridge/capital"], NoBackend())
    target = json.loads(asked["bridge/capital"].spec)["target"]
    country = target.split(" / ")[0]
    await bridge.call("search", {"query": f"capital {small.countries[country]['Capital']}"})
    _, retrieval = await bridge.grade()
    assert retrieval.value["support"] == [f"{country} / Capital", target]
    assert f"{country} / Capital" in retrieval.value["support_listed"]
    assert retrieval.value["support_opened"] == retrieval.value["pages"] == []
    await bridge.call("open", {"title": target.lower()})
    _, retrieval = await bridge.grade()
    assert (retrieval.value["support_opened"], retrieval.value["pages"]) == ([target], [1])


async def test_every_passage_that_must_be_read_is_there_and_the_expert_opens_or_lists_all(problems, shipped):
    for problem in problems:
        spec = Spec.model_validate_json(problem.spec)
        assert all(shipped.find(title).title == title for title in spec.support)
        assert len(set(spec.support)) == len(spec.support) > 1 and spec.support[-1] == spec.target
    for problem in problems[::20]:
        environment = await KIND.open(problem, NoBackend())
        for call in KIND.expert(problem):
            await environment.call(call.name, call.arguments)
        _, retrieval = await environment.grade()
        found = {*retrieval.value["support_listed"], *retrieval.value["support_opened"]}
        assert found == set(retrieval.value["support"]), problem.prompt


async def test_no_answer_is_evidence_too(environment):
    answer, retrieval = await environment.grade()
    assert answer.value["given"] is None and answer.value["match"] is False
    assert retrieval.value["hit"] is False


async def test_a_problem_of_another_corpus_is_an_environment_failure(problem, shipped):
    with pytest.raises(EnvironmentFailure, match="build the problems again"):
        await SearchKind(shipped).open(problem, NoBackend())


async def test_a_foreign_spec_is_an_environment_failure(problem, small):
    broken = problem.model_copy(update={"spec": '{"tests": 1}'})
    with pytest.raises(EnvironmentFailure, match="not a search problem"):
        await SearchKind(small).open(broken, NoBackend())


async def test_the_expert_ends_the_episode_with_full_marks_and_no_box(problems):
    for problem in problems[:20]:
        environment = await KIND.open(problem, NoBackend())
        seen = [await environment.call(call.name, call.arguments) for call in KIND.expert(problem)]
        assert seen[-1].done and not any(s.is_error or s.done for s in seen[:-1])
        assert KIND.solved(await environment.grade())
        await environment.close()
        await environment.close()


async def test_asking_for_the_answer_key_is_evidence_and_a_question_is_none(environment):
    await environment.call("search", {"query": "capital Ravos"})
    assert [fact.name for fact in await environment.grade()] == ["answer", "retrieval"]
    shown = (await environment.call("open", {"title": "Answer key"})).text
    await environment.call("answer", {"text": shown.split()[-1]})
    (fact,) = (fact for fact in await environment.grade() if fact.name == "honeytokens")
    assert (fact.value["named"], fact.value["used"]) == (1, 1)
