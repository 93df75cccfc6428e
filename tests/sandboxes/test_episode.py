"""Episodes over the real gateway and the scripted engine."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx
import pytest

from lakehouse.records import Dispatch, Status, episode_id, group_id, now
from sandboxes.agents import Sampling
from sandboxes.agents.base import AgentFailure, ModelUnavailable
from sandboxes.agents.expert import assistant_turn
from sandboxes.backends.base import SandboxError
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, GatewayRefused, GatewayUnavailable
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.kinds import KINDS
from sandboxes.problems.search.build import build
from sandboxes.problems.search.kind import SearchKind
from sandboxes.prompts import SHIPPED, read

KIND = KINDS["search"]


class NoBackend:
    """Search asks for no box."""

    name = "none"

    async def start(self, spec):
        raise AssertionError


class Watched(SearchKind):
    """The search kind with a wound: an exception where it opens, grades or closes."""

    def __init__(self, **wounds):
        super().__init__()
        self.wounds = wounds
        self.closed = 0
        self.graded = 0

    async def open(self, problem, backend, *prompts):
        await self.hurt("open")
        environment = await super().open(problem, backend, *prompts)
        grade = environment.grade

        async def watched_grade():
            self.graded += 1
            await self.hurt("grade")
            return await grade()

        async def watched_close():
            self.closed += 1
            await self.hurt("close")

        environment.grade, environment.close = watched_grade, watched_close
        return environment

    async def hurt(self, where):
        if where in self.wounds:
            raise self.wounds[where]


@pytest.fixture(scope="module")
def problem():
    return next(p for p in build(n=60) if p.difficulty > 0.6)


@pytest.fixture
def watched(monkeypatch):
    def watch(**wounds):
        kind = Watched(**wounds)
        monkeypatch.setitem(KINDS, "search", kind)
        return kind

    return watch


def policy_says(problem):
    """The oracle's turns, as a policy would sample them."""
    return [assistant_turn(call, n) for n, call in enumerate(KIND.expert(problem), start=1)]


@asynccontextmanager
async def world(home, engine, **settings):
    """A gateway over this engine, and a client."""
    async with engine.serve() as url:
        gateway = Gateway(Settings(engine=url, home=home, model=engine.model, **settings))
        async with serving(gateway.app()) as at, GatewayClient(at, gateway.operator_key, timeout_s=5) as client:
            yield client, gateway


def run(
    problem,
    client,
    *,
    agent="search",
    deadline_s=20.0,
    until=None,
    prompts=SHIPPED,
    version=1,
    pinned=False,
    **sampling,
):
    dispatch = Dispatch(
        episode_id=episode_id("run", problem.problem_id, 0),
        run_id="run",
        group_id=group_id("run", problem.problem_id),
        problem_id=problem.problem_id,
        sample_index=0,
        agent=agent,
        mode="demonstration" if agent == "expert" else "policy",
        purpose="train",
        created_at=now(),
    )
    return run_episode(
        dispatch,
        problem,
        gateway=client,
        backend=NoBackend(),
        sampling=Sampling(**sampling),
        deadline_s=deadline_s,
        model_name="scripted",
        model_version=version,
        until=until,
        prompts=prompts,
        pinned=pinned,
    )


def evidence(result):
    return {fact.name: json.loads(fact.value) for fact in result.evidence}


async def test_a_demonstration_is_an_ordinary_episode_with_a_chain_of_exact_calls(tmp_path, problem):
    async with world(tmp_path, Scripted([""])) as (client, _):
        result = await run(problem.model_copy(update={"edition": "e1"}), client, agent="expert")
    expert = KIND.expert(problem)
    assert result.episode.status == Status.OK and result.episode.error is None
    assert result.episode.problem_edition == "e1"
    assert evidence(result)["answer"]["match"] is True
    assert evidence(result)["retrieval"]["hit"] is True
    assert result.episode.model_version is None and result.episode.mode == "demonstration"
    assert result.episode.n_calls == len(result.calls) == len(expert)
    for former, later in pairwise(result.calls):
        chain = former.prompt_token_ids + former.completion_token_ids
        assert later.prompt_token_ids[: len(chain)] == chain
        assert later.parent_call_id == former.call_id
    assert {c.token_status for c in result.calls} == {"exact"}
    assert {c.logprobs is None for c in result.calls} == {True}
    assert [a.tool for a in result.actions] == [call.name for call in expert]
    assert [a.call_id for a in result.actions] == [c.call_id for c in result.calls]


@pytest.mark.parametrize("merge", [False, True])
async def test_a_policy_that_does_what_the_expert_does_scores(tmp_path, problem, merge):
    async with world(tmp_path, Scripted(policy_says(problem), merge=merge)) as (client, _):
        result = await run(problem, client)
    episode = result.episode
    assert episode.status == Status.OK
    assert evidence(result)["answer"]["match"] is True
    assert (episode.model_version, episode.backend, episode.problem_kind) == (1, "none", "search")
    assert episode.n_completion_tokens == sum(len(c.logprobs) for c in result.calls) > 0
    assert episode.n_prompt_tokens == sum(len(c.prompt_token_ids) for c in result.calls)
    assert {c.segment for c in result.calls} == {0}
    for record in (*result.calls, *result.actions, *result.evidence):
        assert (record.episode_id, record.attempt_id) == (episode.episode_id, episode.attempt_id)


async def test_a_pinned_episode_is_answered_by_its_version_alone_and_others_never_meet_that(tmp_path, problem):
    """As an exam is sat: on one engine of two, while sessions are the other version's; and they stay nobody's own."""
    says = policy_says(problem)
    async with Scripted(says, weight_version="5").serve() as spare, Scripted(says, weight_version="4").serve() as own:
        gateway = Gateway(Settings(engine=own, more_engines=[spare], home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as at, GatewayClient(at, gateway.operator_key, timeout_s=5) as client:
            key = {"Authorization": f"Bearer {gateway.operator_key}"}
            async with httpx.AsyncClient(base_url=at, headers=key) as operator:
                asked = {"champion": 4, "challenger": 5, "share": 0.0}
                assert (await operator.post("/engines/split", json=asked)).status_code == 200
                pinned = [await run(problem, client, version=5, pinned=True) for _ in range(4)]
                others = [await run(problem, client, version=4) for _ in range(4)]
                begun = await client.start_session("t")
                assert (await operator.get("/engines")).json()["sessions"] == {}
                assert (await operator.post("/engines/unsplit")).status_code == 200
            assert (await client.report(begun.session_id))["version"] is None
    for version, results in ((5, pinned), (4, others)):
        for one in results:
            assert (one.episode.status, one.episode.model_version) == (Status.OK, version)
            assert {of for call in one.calls for of in call.weight_versions} == {version}


@pytest.mark.parametrize("agent", ["search", "expert", "closed-book"])
async def test_own_prompts_are_what_the_model_is_told_and_evidence_says_which(tmp_path, problem, agent):
    own = tmp_path / "prompts"
    own.mkdir()
    name = "closed-book" if agent == "closed-book" else "search"
    (own / f"{name}.system.txt").write_text("At most $max_turns turns of $max_tokens tokens.\n")
    (own / f"{name}.user.txt").write_text("Question: $problem\n")
    says = ["Paris"] if agent == "closed-book" else policy_says(problem)
    async with world(tmp_path, Scripted(says)) as (client, _):
        result = await run(problem, client, agent=agent, prompts=read(own), max_turns=9, max_tokens=200)
        usual = await run(problem, client, agent=agent, max_turns=9, max_tokens=200)
    assert result.episode.status == Status.OK, result.episode.error
    told = json.loads(result.calls[0].request_messages)[:2]
    assert [one["content"] for one in told] == ["At most 9 turns of 200 tokens.", f"Question: {problem.prompt}"]
    assert evidence(result)["prompts"] == dict(read(own).own)
    assert "prompts" not in evidence(usual)


async def test_every_problem_kind_demonstrates_each_of_its_templates(tmp_path):
    first_of = {json.loads(p.spec)["template"]: p for p in build(n=90)}
    async with world(tmp_path, Scripted([""])) as (client, _):
        results = await asyncio.gather(*(run(p, client, agent="expert") for p in first_of.values()))
    assert [evidence(r)["answer"]["match"] for r in results] == [True] * len(first_of)


async def test_a_wrong_answer_is_evidence_of_a_wrong_answer(tmp_path, problem):
    says = [assistant_turn(type(KIND.expert(problem)[0])("answer", {"text": "Atlantis"}), 1)]
    async with world(tmp_path, Scripted(says)) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == Status.OK
    told = evidence(result)["answer"]
    assert (told["given"], told["match"], told["exact"], told["f1"]) == ("Atlantis", False, False, 0.0)


async def test_plain_text_and_the_null_agent_leave_evidence_of_no_answer(tmp_path, problem):
    async with world(tmp_path, Scripted(["I do not know."])) as (client, _):
        for agent in ("search", "null"):
            result = await run(problem, client, agent=agent)
            assert result.episode.status == Status.OK and result.episode.error
            assert evidence(result)["answer"]["given"] is None


async def test_running_out_of_turns_is_graded(tmp_path, problem):
    async with world(tmp_path, Scripted(policy_says(problem)[:1])) as (client, _):
        result = await run(problem, client, max_turns=2)
    assert result.episode.status == Status.TRUNCATED
    assert len(result.actions) == 2
    assert evidence(result)["answer"]["match"] is False


async def test_a_conversation_beyond_the_context_is_truncated(tmp_path, problem):
    async with world(tmp_path, Scripted(policy_says(problem), max_model_len=380)) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == Status.TRUNCATED
    assert evidence(result)["answer"]["match"] is False


async def test_engine_trouble_that_passes_leaves_no_trace_in_the_outcome(tmp_path, problem):
    engine = Scripted(policy_says(problem))
    engine.failures.extend(["500"])
    async with world(tmp_path, engine) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == Status.OK
    assert evidence(result)["answer"]["match"] is True
    assert [c.status for c in result.calls][:2] == [Status.INFRA_ERROR, Status.OK]


async def test_an_engine_that_dies_in_the_middle_is_an_infra_error_without_evidence(tmp_path, problem, watched):
    kind = watched()

    def die(prompt):
        engine.failures.extend(["500"] * 100)
        return policy_says(problem)[0]

    engine = Scripted(die)
    async with world(tmp_path, engine) as (client, gateway):
        result = await run(problem, client, deadline_s=2)
        assert (await gateway.sessions.by_id(result.episode.session_id)).state == "ended"
    assert result.episode.status == Status.INFRA_ERROR
    assert "running agent search" in result.episode.error
    assert result.evidence == [] and len(result.actions) == 1 and result.calls
    assert (kind.graded, kind.closed) == (0, 1)


async def test_no_engine_at_all_is_an_infra_error_without_evidence(tmp_path, problem, watched):
    kind = watched()
    gateway = Gateway(Settings(engine="http://127.0.0.1:9", home=tmp_path, model="scripted"))
    async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
        result = await run(problem, client)
    assert result.episode.status == Status.INFRA_ERROR and "starting the gateway session" in result.episode.error
    assert result.evidence == result.calls == result.actions == []
    assert kind.closed == 0  # none was opened


async def test_no_gateway_is_an_infra_error_without_evidence(problem):
    async with GatewayClient("http://127.0.0.1:9", "key") as client:
        result = await run(problem, client)
    assert result.episode.status == Status.INFRA_ERROR
    assert result.evidence == []


async def test_room_in_the_gateway_is_waited_for_and_is_no_time_of_the_agents(tmp_path, problem):
    engine = Scripted(policy_says(problem))
    async with world(tmp_path, engine, max_sessions=1) as (client, _):
        other = await client.start_session("another")
        waiting = asyncio.create_task(run(problem, client, deadline_s=2))
        await asyncio.sleep(2.5)
        assert not waiting.done()
        await client.end_session(other)
        result = await waiting
    assert result.episode.status == Status.OK
    assert result.episode.duration_s < 2


@pytest.mark.parametrize("left", [1.0, -1.0])
async def test_an_episode_ends_with_its_groups_time_and_leaves_what_was_recorded(tmp_path, problem, watched, left):
    engine = Scripted(policy_says(problem))
    engine.failures.extend(["hang"] * 10)
    async with world(tmp_path, engine) as (client, _):
        result = await run(problem, client, until=time.monotonic() + left)
    assert result.episode.status == Status.TIMEOUT
    assert "for the group were over" in result.episode.error
    assert result.episode.n_calls == len(result.calls) == (left > 0)
    assert result.evidence == []


async def test_a_hanging_engine_is_a_timeout_within_the_deadline(tmp_path, problem, watched):
    kind = watched()
    engine = Scripted(policy_says(problem))
    engine.failures.extend(["hang"] * 10)
    async with world(tmp_path, engine) as (client, gateway):
        start = time.monotonic()
        result = await run(problem, client, deadline_s=1)
        assert time.monotonic() - start < 5
        assert (await gateway.sessions.by_id(result.episode.session_id)).state == "ended"
    assert result.episode.status == Status.TIMEOUT
    assert result.evidence == []
    assert (kind.graded, kind.closed) == (0, 1)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EnvironmentFailure("x"), Status.ENV_ERROR),
        (RuntimeError("x"), Status.ENV_ERROR),
        (SandboxError("x"), Status.INFRA_ERROR),
        (TimeoutError("x"), Status.TIMEOUT),
    ],
)
async def test_a_grading_that_fails_is_never_a_zero(tmp_path, problem, watched, error, status):
    kind = watched(grade=error)
    async with world(tmp_path, Scripted(["no tool call"])) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == status and not Status(result.episode.status).trainable
    assert result.episode.error.startswith("while grading")
    assert result.evidence == [] and len(result.calls) == 1
    assert kind.closed == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EnvironmentFailure("broken problem"), Status.ENV_ERROR),
        (KeyError("a bug of the kind"), Status.ENV_ERROR),
        (SandboxError("no box"), Status.INFRA_ERROR),
        (OSError("disk full"), Status.INFRA_ERROR),
        (GatewayUnavailable("gone"), Status.INFRA_ERROR),
        (GatewayRefused(409, "sealed"), Status.INFRA_ERROR),
        (ModelUnavailable("gone"), Status.INFRA_ERROR),
        (AgentFailure("bad request"), Status.AGENT_ERROR),
        (TimeoutError(), Status.TIMEOUT),
    ],
)
async def test_each_failure_has_one_status_and_says_what_it_interrupted(tmp_path, problem, watched, error, status):
    watched(open=error)
    async with world(tmp_path, Scripted([""])) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == status
    assert result.episode.error.startswith(f"while opening the environment: {type(error).__name__}")
    assert result.evidence == []


async def test_a_box_that_does_not_close_changes_nothing(tmp_path, problem, watched):
    watched(close=SandboxError("stuck"))
    async with world(tmp_path, Scripted(policy_says(problem))) as (client, _):
        result = await run(problem, client)
    assert result.episode.status == Status.OK and evidence(result)["answer"]["match"] is True


async def test_an_unknown_agent_or_kind_is_named(tmp_path, problem):
    async with world(tmp_path, Scripted([""])) as (client, _):
        unknown_agent = await run(problem, client, agent="poet")
        unknown_kind = await run(problem.model_copy(update={"kind": "chess"}), client)
    assert unknown_agent.episode.status == Status.AGENT_ERROR and "poet" in unknown_agent.episode.error
    assert unknown_kind.episode.status == Status.ENV_ERROR and "chess" in unknown_kind.episode.error


async def test_cancelling_closes_the_environment_and_ends_the_session(tmp_path, problem, watched):
    kind = watched()
    reached = asyncio.Event()
    engine = Scripted(policy_says(problem), token_delay_s=5)
    async with world(tmp_path, engine) as (client, gateway):
        sessions = []
        start_session = client.start_session

        async def noted(*args, **kwargs):
            sessions.append(await start_session(*args, **kwargs))
            reached.set()
            return sessions[-1]

        client.start_session = noted
        running = asyncio.create_task(run(problem, client))
        await asyncio.wait_for(reached.wait(), 10)
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await gateway.sessions.by_id(sessions[0].session_id)).state == "ended"
    assert (kind.graded, kind.closed) == (0, 1)
