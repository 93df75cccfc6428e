import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.records import Dispatch, Episode, Evidence, dumps, episode_id, group_id, now
from lakehouse.write import Writer
from sandboxes.agents import DefinitionError, Sampling
from sandboxes.problems.library import load
from sandboxes.prompts import SHIPPED, PromptError, read
from tasks.rollout import Draw, cast, dispatch, rehearse, same_prompts, shards
from tasks.stage import Play


def intents(problems, samples):
    return [
        Dispatch(
            episode_id=episode_id("run", f"p{problem}", sample),
            run_id="run",
            group_id=group_id("run", f"p{problem}"),
            problem_id=f"p{problem}",
            sample_index=sample,
            agent="search",
            mode="policy",
            purpose="train",
            created_at=now(),
        )
        for problem in range(problems)
        for sample in range(samples)
    ]


@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 12))
def test_shards_hold_every_episode_once_and_in_order(problems, samples, size):
    wanted = intents(problems, samples)
    made = shards(wanted, size)
    assert [one for shard in made for one in shard] == wanted
    assert all(1 <= len(shard) <= size for shard in made)


def test_seeded_noise_is_of_a_problem_and_a_sample_and_the_same_in_every_run():
    one, other = Play(Sampling(), "auto", 1, 1.0, sampling_seed=3), Play(Sampling(), "auto", 1, 1.0, sampling_seed=4)
    wanted = intents(3, 4)
    seeds = [one.sampled(intent).seed for intent in wanted]
    assert len(set(seeds)) == 12
    renamed = [intent.model_copy(update={"run_id": "another", "episode_id": "ep-x"}) for intent in wanted]
    assert [one.sampled(intent).seed for intent in renamed] == seeds
    assert not set(seeds) & {other.sampled(intent).seed for intent in wanted}
    assert Play(Sampling(temperature=0.3), "auto", 1, 1.0).sampled(wanted[0]) == Sampling(temperature=0.3)


@pytest.mark.parametrize(("agent", "mode"), [("policy", "policy"), ("null", "policy"), ("expert", "demonstration")])
def test_what_the_expert_does_is_a_demonstration(agent, mode):
    assert Draw("run", {"search": 1}, "train", 1, agent, "train", 0, 1.0).mode == mode


async def test_prompts_for_a_command_that_would_never_see_them_are_refused(tmp_path):
    (tmp_path / "swe.system.txt").write_text("Repair it.")
    play = Play(Sampling(), "auto", 1, 1.0, "mini-swe-agent", prompts=read(tmp_path))
    with pytest.raises(DefinitionError, match=r"agent mini-swe-agent is a command, .*: swe.system.txt would change"):
        await rehearse.fn(play)


def test_who_is_asked_for_plays_what_it_can_and_is_refused_for_what_it_cannot(tmp_path):
    assert cast("policy", None) == ("policy", {"search": 16, "swe": 4})
    assert cast("null", {"search": 2}) == ("null", {"search": 2})
    assert cast("mini-swe-agent", None) == ("mini-swe-agent", {"swe": 4})
    own = tmp_path / "own.toml"
    own.write_text('name = "own"\ncommand = ["solve"]\nkinds = ["swe", "python"]\n')
    assert cast(str(own), {"swe/easy": 3, "python": 1}) == ("own", {"swe/easy": 3, "python": 1})
    with pytest.raises(DefinitionError, match="mini-swe-agent works on problems of the kind swe and not search"):
        cast("mini-swe-agent", {"search": 1, "swe": 1})
    with pytest.raises(DefinitionError, match=r"no agent is called 'nobody'; there are .*mini-swe-agent"):
        cast("nobody", None)


@pytest.fixture
def draw(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    return Draw("run", {"search": 2}, "train", 2, "policy", "train", 0, 1.0)


def test_a_run_goes_on_with_the_same_episodes_and_anew_where_a_problem_has_another_edition(draw):
    problems = [one for one in load("search") if one.split == "train"][:2]
    Writer().put_problems(problems)
    todo, known = dispatch.fn(draw)
    assert {intent.problem_id for intent in todo} == known.keys() == {one.problem_id for one in problems}
    assert dispatch.fn(draw)[0] == todo
    changed = problems[0].model_copy(update={"prompt": "said better"})
    Writer().put_problems([changed, problems[1]])
    again, known = dispatch.fn(draw)
    assert known[changed.problem_id].prompt == "said better"
    before, after = ({(one.episode_id, one.group_id) for one in intents} for intents in (todo, again))
    same = {(one.episode_id, one.group_id) for one in todo if one.problem_id == problems[1].problem_id}
    assert before & after == same
    assert len(after - before) == 2


def graded(intent, prompts):
    """As much of an episode as says what it was told."""
    facts = {"answer": {"match": True}} | ({"prompts": prompts.own} if prompts.own else {})
    shared = intent.model_dump(exclude={"created_at", "loop_id"})
    none = dict.fromkeys(("n_calls", "n_prompt_tokens", "n_completion_tokens", "duration_s"), 0)
    episode = Episode(
        **shared | none | {"attempt_id": "a", "problem_kind": "swe", "split": "train", "backend": "none", "status": "ok",
                           "error": None, "session_id": "s", "model_name": "tiny", "model_version": 1,
                           "started_at": now(), "ended_at": now()}
    )  # fmt: skip
    Writer().append("dispatches", [intent])
    Writer().append("episodes", [episode])
    Writer().append(
        "evidence",
        [
            Evidence(
                episode_id=intent.episode_id,
                attempt_id="a",
                name=name,
                value=dumps(value),
                producer="test 1",
                created_at=now(),
            )
            for name, value in facts.items()
        ],
    )


async def test_a_run_or_a_loop_does_not_go_on_under_other_prompts(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    own = {}
    for name, text in (("mine", "Repair it."), ("other", "Repair it!")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "swe.system.txt").write_text(text)
        own[name] = read(tmp_path / name)
    first, second = intents(1, 2)
    for prompts in (SHIPPED, *own.values()):
        await same_prompts("run", prompts)  # nothing was told yet
    graded(first, own["mine"])
    graded(second.model_copy(update={"run_id": "loop-1", "loop_id": "loop"}), SHIPPED)
    Writer().append("dispatches", [second.model_copy(update={"episode_id": "ep-ungraded", "run_id": "run"})])
    await same_prompts("run", own["mine"])
    await same_prompts("loop", SHIPPED)
    digests = {name: prompts.own["swe.system.txt"] for name, prompts in own.items()}
    with pytest.raises(
        PromptError, match=rf"run was begun with swe.system.txt {digests['mine']} and would go on with the ship"
    ):
        await same_prompts("run", SHIPPED)
    with pytest.raises(
        PromptError, match=rf"and would go on with swe.system.txt {digests['other']}, so .* leave its id out"
    ):
        await same_prompts("run", own["other"])
    with pytest.raises(
        PromptError, match=r"loop was begun with the shipped prompts and would go on with swe.system.txt"
    ):
        await same_prompts("loop", own["mine"])
