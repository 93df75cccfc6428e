"""A small lake for notebooks: two model versions, two kinds of problem, groups, rewards and a training set."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lakehouse.label import label
from lakehouse.records import Action, Call, Episode, Evidence, ModelVersion, Problem, episode_id, group_id
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer

ROOT = Path(__file__).resolve().parents[2]
AT = datetime(2026, 1, 1, tzinfo=UTC)
Played = tuple[Episode, list[Call], list[Action], Evidence]
STEPS = (("search", {"query": "Île <b>"}, "1. Îles: a page"), ("answer", {"text": "Île"}, "Answer taken."))


def byte_tokenizer() -> Tokenizer:
    """One token per byte: nothing to train, and a letter like Î takes two."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def problem(name: str, kind: str, split: str) -> Problem:
    return Problem(
        problem_id=name,
        kind=kind,
        source="made up",
        split=split,
        title=name,
        prompt=f"Solve {name} & say <so>.",
        spec="{}",
        licence="CC0-1.0",
        allowed_uses=["training", "evaluation"],
        difficulty=0.5,
        oracle_passed=True,
        null_failed=True,
        created_at=AT,
    )


def played(about: Problem, sample: int, version: int, solved: bool, tokenizer: Tokenizer) -> Played:
    """One episode of two turns."""
    run = f"run-{version}"
    own = {"episode_id": episode_id(run, about.problem_id, sample), "attempt_id": "at-0"}
    start = AT + timedelta(hours=version, minutes=sample)
    ids = tokenizer.encode(about.prompt).ids
    calls, actions = [], []
    for index, (tool, arguments, seen) in enumerate(STEPS):
        said = {"name": tool, "arguments": arguments}
        sampled = tokenizer.encode(json.dumps(said, ensure_ascii=False)).ids
        calls.append(_call(own, index, ids, sampled, version, start))
        actions.append(
            Action(
                **own,
                action_index=index,
                call_id=f"c{index}",
                tool=tool,
                arguments=json.dumps(arguments),
                observation=seen,
                is_error=False,
                duration_s=0.1,
                started_at=start,
            )
        )
        ids = ids + sampled + tokenizer.encode(seen).ids
    episode = Episode(
        **own,
        run_id=run,
        group_id=group_id(run, about.problem_id),
        problem_id=about.problem_id,
        problem_kind=about.kind,
        split=about.split,
        sample_index=sample,
        agent="scripted",
        backend="none",
        mode="policy",
        purpose="train" if about.split == "train" else f"eval:v{version}",
        status="ok",
        error=None,
        session_id="s",
        model_name="toy",
        model_version=version,
        n_calls=len(calls),
        n_prompt_tokens=sum(len(call.prompt_token_ids) for call in calls),
        n_completion_tokens=sum(len(call.completion_token_ids) for call in calls),
        duration_s=1.0,
        started_at=start,
        ended_at=start,
    )
    facts = {"answer": {"given": "x", "accepted": ["x"], "match": solved}, "tests": _tests(solved)}
    name = "answer" if about.kind == "search" else "tests"
    fact = Evidence(**own, name=name, value=json.dumps(facts[name]), producer="made up", created_at=start)
    return episode, calls, actions, fact


def _call(
    own: dict[str, str], index: int, prompt: Sequence[int], sampled: Sequence[int], version: int, at: datetime
) -> Call:
    return Call(
        **own,
        call_id=f"c{index}",
        session_id="s",
        call_index=index,
        parent_call_id=f"c{index - 1}" if index else None,
        segment=0,
        fork_reason=None if index else "root",
        prompt_token_ids=list(prompt),
        completion_token_ids=list(sampled),
        logprobs=[-0.5] * len(sampled),
        weight_versions=[version] * len(sampled),
        token_status="exact",
        token_route="generate",
        status="ok",
        finish_reason="tool_calls",
        request_messages="[]",
        response_message=json.dumps({"role": "assistant", "content": ""}),
        tools="[]",
        sampling="{}",
        template_digest="d",
        engine_version="0",
        latency_s=0.1,
        started_at=at,
    )


def _tests(solved: bool) -> dict[str, object]:
    passed = {"passed": 2 if solved else 1, "total": 2}
    return {"fail_to_pass": passed, "pass_to_pass": {"passed": 3, "total": 3}, "resolved": solved}


def version_of(folder: Path, number: int) -> ModelVersion:
    return ModelVersion(
        name="toy",
        version=number,
        parent_version=number - 1 or None,
        training_set_id=None,
        mlflow_run_id="m",
        weights_path=str(folder),
        weights_digest="d",
        stage=("base", "grpo")[number - 1],
        commit="c",
        created_at=AT,
    )


@pytest.fixture(scope="session")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Version 1 solves half of each training group and nothing held out; version 2 solves all."""
    folder = tmp_path_factory.mktemp("notebooks")
    lake = str(folder / "lake")
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    problems = [problem(f"{kind}/{split}", kind, split) for kind in ("search", "swe") for split in ("train", "eval")]
    writer = Writer(lake)
    writer.append("problems", problems)
    writer.append("model_versions", [version_of(folder, number) for number in (1, 2)])
    batch = []
    for about in problems:
        for sample in range(2 if about.split == "train" else 1):
            batch.append(played(about, sample, 1, solved=about.split == "train" and sample == 0, tokenizer=tokenizer))
            batch.append(played(about, sample, 2, solved=True, tokenizer=tokenizer))
    episodes, calls, actions, facts = zip(*batch, strict=True)
    writer.land(episodes, list(chain(*calls)), list(chain(*actions)), facts)
    for rubric in ("search@2", "swe@2"):
        label(lake, rubric)
    select(lake, Selection(objective="grpo", rubrics=["search@2", "swe@2"], filter="grpo", policy_version=2))
    return lake


@pytest.fixture(scope="session")
def byte_tokens() -> Tokenizer:
    return byte_tokenizer()


@pytest.fixture(scope="session", autouse=True)
def beside() -> Iterator[None]:
    """Notebooks find their modules beside them, as when they are opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "notebooks"))
        yield
