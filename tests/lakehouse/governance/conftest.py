"""A small lake with everything that erasure and retention meet, made by the real writer."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse.records import (
    CallReward,
    Quarantined,
    Redaction,
    Review,
    Reward,
    Source,
    TrainingRow,
    TrainingSet,
    dumps,
    now,
)
from lakehouse.schema import TABLES
from lakehouse.write import Writer

SECRET = "the heron of Wexley crossing sleeps at noon"
ASKED = "my account number is the one with the seven zeros"
TOKENS = list(range(3000, 3040))


@dataclass
class Town:
    """A lake with episodes of two subjects; `ada`'s is the one to be erased."""

    root: Path
    lake: str
    ada: str  # episode id
    others: list[str]

    def bytes(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file())


@pytest.fixture
def home_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    return tmp_path


@pytest.fixture
def town(home_folder, built) -> Town:
    """A copy of the town for one test."""
    shutil.copytree(built.root, home_folder, dirs_exist_ok=True)
    return Town(home_folder, str(home_folder / "lake"), built.ada, built.others)


@pytest.fixture(scope="session")
def built(tmp_path_factory, make) -> Town:
    """Landings one by one, compaction, checkpoints, a training set that has ada's row, and versions made of it."""
    root = tmp_path_factory.mktemp("town")
    lake = str(root / "lake")
    writer = Writer(lake)
    call = make.call(
        TOKENS,
        TOKENS[::-1],
        request_messages=dumps([{"role": "user", "content": f'"{ASKED}"\n'}]),
        response_message=dumps({"role": "assistant", "content": SECRET}),
    )
    mine = make.batch("shop", 0, calls=[call], subject="ada-lovelace", problem_kind="external")
    ada = mine.episodes[0].episode_id
    mine.actions = [action.model_copy(update={"observation": SECRET, "tree": "a" * 64}) for action in mine.actions]
    others = [make.batch("p", number, subject="ada-lovelace-2") for number in range(3)]
    writer.put_problems([make.problem("shop", kind="external"), make.problem("p")])
    writer.append("sources", [_allowed("made up")])
    for batch in (others[0], mine, others[1]):
        writer.append("dispatches", [make.dispatch(batch.episodes[0].problem_id, batch.episodes[0].sample_index)])
        batch.land(lake)
    ids = [batch.episodes[0].episode_id for batch in (others[0], mine, others[1])]
    _judge(writer, ids, mine.episodes[0].attempt_id)
    writer.compact()
    for name in TABLES:
        if Path(lake, name).exists():
            DeltaTable(f"{lake}/{name}").create_checkpoint()
    others[2].land(lake)
    _train(writer, make, [ids[0], ada])
    return Town(root, lake, ada, [batch.episodes[0].episode_id for batch in others])


def _allowed(source: str) -> Source:
    """A source whose content lands as it is: the door has tests of its own."""
    uses = {"allowed_uses": ["training"], "consent": "given", "privacy": "allow", "retention_days": None}
    return Source(source=source, licence="CC0-1.0", **uses, declared_by="bob", declared_at=now())


def _judge(writer: Writer, ids: list[str], attempt: str) -> None:
    for number, name in enumerate(ids):
        judged = {"episode_id": name, "rubric": "search", "rubric_version": 1, "labelled_at": now()}
        reward = {"outcome": 1.0, "reward": 1.0, "status": "scored", "components": "{}"}
        writer.append("rewards", [Reward(**judged, **reward)])
        writer.append("call_rewards", [CallReward(**judged, call_id="c0", reward=1.0, reason=f"because {name}")])
        told = {
            "reviewer": "bob",
            "queue": "random",
            "outcome": 1.0,
            "comment": f"{name} is fine",
            "reviewed_at": now(),
        }
        writer.append("reviews", [Review(review_id=f"rv-{number}", episode_id=name, **told)])
        place = {"attempt_id": attempt, "place": "calls/0/tools", "detector": "email", "count": 1, "created_at": now()}
        writer.append("redactions", [Redaction(episode_id=name, **place)])
        row = {
            "table_name": "calls",
            "row_key": "{}",
            "rule": "r",
            "payload": dumps({"m": name}),
            "payload_digest": "d",
        }
        refused = {"quarantine_id": f"q{number}", "episode_id": name, "attempt_id": attempt, "quarantined_at": now()}
        writer.append("quarantine", [Quarantined(**row, **refused)])


def _train(writer: Writer, make, ids: list[str]) -> None:
    rows = [
        TrainingRow(
            training_set_id="ts-1",
            row_index=index,
            episode_id=name,
            group_id="g",
            problem_kind="search",
            input_ids=TOKENS,
            loss_mask=[1] * len(TOKENS),
            logprobs=[-0.5] * len(TOKENS),
            weight_versions=[1] * len(TOKENS),
            reward=1.0,
            advantage=1.0,
        )
        for index, name in enumerate(ids[1:])
    ]
    about = {"objective": "sft", "rubrics": ["search@1"], "filter": "sft", "table_versions": "{}", "policy_version": 1}
    counts = {"n_rows": 1, "n_episodes": 1, "n_trained_tokens": 40, "ledger": "{}", "digest": "d", "created_at": now()}
    writer.append("training_rows", rows)
    writer.append("training_sets", [TrainingSet(training_set_id="ts-1", **about, **counts)])
    versions = [make.version(1), make.version(2, 1), make.version(3, 2), make.version(4, 1)]
    versions[1] = versions[1].model_copy(update={"training_set_id": "ts-1"})
    taught = make.version(5, 1).model_copy(update={"learnt_from": ["toy@3"]})
    writer.append("model_versions", [*versions, taught])
