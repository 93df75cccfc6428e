"""Erasure beside the lake: journal, work trees, training runs, servers' databases, logs, aliases."""

import json
import sqlite3
import struct
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from lakehouse.governance import audit
from lakehouse.governance import erase as core
from lakehouse.governance import plan as plans
from lakehouse.home import home
from lakehouse.query import query
from lakehouse.records import ModelVersion, Problem, Source, TrainingRow, digest, now
from lakehouse.write import Writer
from sandboxes.backends.trees import TreeStore
from sandboxes.external import KIND, episode_of
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.schema import KeyRow, SessionRow
from tasks import erase, release, train
from tasks.registry import moves
from tasks.registry.versions import Lineage, Registry

SUBJECT = "ada-lovelace"
TOKENS = list(range(500, 530))
STARTED = now().isoformat()


def session(n: int, task: str, started: str = STARTED) -> SessionRow:
    return SessionRow(
        n=n,
        session_id=f"{task}-{n}",
        task_id=task,
        mode="policy",
        engine_version="1",
        template_digest="d",
        started_at=started,
    )


EPISODE = episode_of({"session_id": "shop/9-1", "started_at": STARTED})


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry with a base version and one made of the episode, which is promoted."""
    where = home().root / "mlflow"
    where.mkdir()
    found = Registry(f"sqlite:///{where / 'mlflow.db'}")
    found.client.create_experiment("lakeloop", artifact_location=(where / "artifacts").as_uri())
    for number, training_set in ((1, None), (2, "ts-1")):
        folder = home().root / "runs" / f"r{number}" / "model"
        folder.mkdir(parents=True)
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        content = len(header).to_bytes(8, "little") + header + struct.pack("<f", number)
        (folder / "model.safetensors").write_bytes(content)
        lineage = Lineage(stage="sft", parent=number - 1 or None, training_set=training_set)
        assert found.register("tiny", folder, lineage=lineage) == number
    found.promote("tiny", 2)
    monkeypatch.setattr(erase, "Registry", lambda _url: found)
    return found


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


@pytest.fixture
async def played(registry, landed):
    """Everything that a session of ada's has left behind; a session of the same name from another journal is not hers."""
    where = home()
    journal = Journal(where.gateway / "journal.db", where.keys / "sessions")
    for row in (session(1, "shop/9"), session(2, "shop/9", "2020-01-01T00:00:00+00:00")):
        await journal.start_session(
            row, [KeyRow(digest=f"k{row.n}", session_id=row.session_id, scopes="m", created_at=STARTED)]
        )
    journal.close()
    run = where.root / "runs" / "sft-1"
    run.mkdir()
    pl.DataFrame({"episode_id": [EPISODE], "input_ids": [TOKENS]}).write_parquet(run / "rows.parquet")
    (run / "probe.json").write_text(json.dumps([[TOKENS, [0.5]]]))
    np.save(run / "batch.npy", np.array(TOKENS))
    where.logs.mkdir()
    (where.logs / "worker.log").write_text(f"landed {EPISODE} of {SUBJECT}\n")
    (where.root / "prefect").mkdir()
    db = sqlite3.connect(where.root / "prefect" / "prefect.db")
    db.executescript(f"create table log (message text); insert into log values ('landed {EPISODE}');")
    db.close()


@pytest.fixture
def landed():
    """The episode in the lake, its problem, a training set of it, and the versions."""
    writer = Writer()
    tree = TreeStore().put({"a.txt": b"what ada wrote"})
    uses = {"licence": "x", "allowed_uses": ["training"]}
    writer.append(
        "sources",
        [
            Source(
                source="*",
                **uses,
                consent="given",
                privacy="allow",
                retention_days=None,
                declared_by="b",
                declared_at=now(),
            )
        ],
    )
    writer.put_problems(
        [
            Problem(
                problem_id="shop/9", kind=KIND, source="shop", split="train", title="t", prompt="p", spec="{}", **uses,
                difficulty=0.5, oracle_passed=True, null_failed=True, created_at=now(),
            )
        ]
    )  # fmt: skip
    writer.land(*_episode(tree))
    writer.append(
        "training_rows",
        [
            TrainingRow(
                training_set_id="ts-1", row_index=0, episode_id=EPISODE, group_id="g", problem_kind=KIND, input_ids=TOKENS,
                loss_mask=[1] * 30, logprobs=[0.0] * 30, weight_versions=[1] * 30, reward=1.0, advantage=1.0,
            )
        ],
    )  # fmt: skip
    made = {
        "mlflow_run_id": "m",
        "weights_path": "w",
        "weights_digest": "d",
        "stage": "sft",
        "commit": "",
        "created_at": now(),
    }
    writer.append(
        "model_versions",
        [
            ModelVersion(name="tiny", version=1, parent_version=None, training_set_id=None, **made),
            ModelVersion(name="tiny", version=2, parent_version=1, training_set_id="ts-1", **made),
        ],
    )
    return tree


def _episode(tree):
    from lakehouse.records import Action, Call, Episode

    own = {"episode_id": EPISODE, "attempt_id": "at-" + digest(EPISODE)[:16]}
    call = Call(
        **own, call_id="c0", session_id="shop/9-1", call_index=0, parent_call_id=None, segment=0, fork_reason=None,
        prompt_token_ids=TOKENS[:15], completion_token_ids=TOKENS[15:], logprobs=[-0.5] * 15, weight_versions=[1] * 15,
        token_status="exact", token_route="generate", status="ok", finish_reason="stop", tools="[]", sampling="{}",
        request_messages='[{"content": "where is the parcel of the grey house"}]', response_message="{}",
        template_digest="d", engine_version="1", latency_s=0.1, started_at=now(),
    )  # fmt: skip
    action = Action(
        **own, action_index=0, call_id="c0", tool="t", arguments="{}", observation="o", is_error=False, duration_s=0.1,
        started_at=now(), tree=tree,
    )  # fmt: skip
    episode = Episode(
        **own, run_id="external-1", group_id="g", problem_id="shop/9", problem_kind=KIND, split="train", sample_index=1,
        agent=KIND, backend="none", mode="policy", purpose=KIND, status="ok", error=None, session_id="shop/9-1",
        model_name="tiny", model_version=1, n_calls=1, n_prompt_tokens=15, n_completion_tokens=15, duration_s=1.0,
        started_at=now(), ended_at=now(), subject=SUBJECT,
    )  # fmt: skip
    return [episode], [call], [action], []


def test_nothing_beside_the_lake_is_left_either(played, landed, registry):
    plan = plans.plan(None, subject=SUBJECT, reason="ticket 7", requested_by="bob")
    plan.save()
    core.begin(plan)
    core.remove(plan)
    assert erase.remove_sessions.fn(plan.erasure_id) == 1
    assert erase.remove_trees.fn(plan.erasure_id) == 1
    demoted = erase.demote.fn(plan.erasure_id)
    assert demoted == ["champion of tiny version 2 moves to version 1"]
    row, notes = erase.proved(plans.load(plan.erasure_id), demoted)
    root = home().root
    assert row.tainted == ["tiny@2"]
    assert core.verify(row)
    assert notes["copies removed"] == ["runs/sft-1/batch.npy", "runs/sft-1/probe.json", "runs/sft-1/rows.parquet"]
    assert "prefect/prefect.db" in notes["blanked in"]
    assert "logs/worker.log" in notes["blanked in"]
    for path in root.rglob("*"):
        if path.is_file():
            assert EPISODE.encode() not in path.read_bytes(), path
            assert SUBJECT.encode() not in path.read_bytes(), path
    assert landed not in TreeStore()
    assert registry.promoted("tiny") == 1
    assert registry.client.get_model_version("tiny", "2").tags["tainted"] == plan.erasure_id
    assert query("select name, version from tainted_versions").rows() == [("tiny", 2)]
    for again in (release.serve.fn, release.promote.fn, train.starting_point.fn, train.version_folder):
        with pytest.raises(core.Tainted, match=plan.erasure_id):
            again(2)
    with sqlite3.connect(home().gateway / "journal.db") as journal:
        assert journal.execute("select session_id, n from sessions").fetchall() == [("shop/9-2", 2)]
        assert journal.execute("select digest from keys").fetchall() == [("k2",)]
    assert sorted(path.name for path in (home().keys / "sessions").iterdir()) == ["2"]


async def test_a_subject_whose_data_did_not_land_or_was_refused_can_be_erased(registry):
    def asked(recorded=erase.recorded):
        return plans.plan(None, subject=SUBJECT, reason="ticket 7", requested_by="bob", recorded=recorded)

    with pytest.raises(plans.NothingToErase, match="nothing of subject"):
        asked()
    journal = Journal(home().gateway / "journal.db", home().keys / "sessions")
    for row in (replace(session(1, "shop/9"), subject=SUBJECT), session(2, "shop/9")):
        await journal.start_session(row, [])
    journal.close()
    episodes, calls, actions, _ = _episode(None)
    assert Writer().land(episodes, calls, actions, []).quarantined == [EPISODE]  # no tokenizer is known
    plan = asked()
    for one in (plan, asked(lambda _: ())):  # the lake alone knows it too
        assert one.episode_ids == [EPISODE] and one.rows == {"quarantine": 1}
    plan.save()
    erase.remove_rows.fn(plan.erasure_id)
    assert erase.remove_sessions.fn(plan.erasure_id) == 1
    row, _ = erase.proved(plans.load(plan.erasure_id), [])
    assert core.verify(row) and json.loads(row.rows) == {"quarantine": 1}
    with sqlite3.connect(home().gateway / "journal.db") as left:
        assert left.execute("select session_id from sessions").fetchall() == [("shop/9-2",)]
    assert Writer().land(episodes, calls, actions, []).skipped == [EPISODE]


async def test_a_session_that_has_not_landed_is_enough_to_erase_a_subject_and_lands_no_more(registry):
    journal = Journal(home().gateway / "journal.db", home().keys / "sessions")
    await journal.start_session(replace(session(1, "shop/9"), subject=SUBJECT), [])
    journal.close()
    plan = plans.plan(None, subject=SUBJECT, reason="ticket 7", requested_by="bob", recorded=erase.recorded)
    assert plan.episode_ids == [EPISODE] and not plan.rows
    plan.save()
    erase.remove_rows.fn(plan.erasure_id)
    assert Writer().land(*_episode(None)).skipped == [EPISODE]
    assert erase.remove_sessions.fn(plan.erasure_id) == 1
    row, _ = erase.proved(plans.load(plan.erasure_id), [])
    assert core.verify(row)


def plan_of_ada():
    plan = plans.plan(None, subject=SUBJECT, reason="ticket 7", requested_by="bob")
    plan.save()
    core.begin(plan)
    core.remove(plan)
    return plan


def test_an_alias_ends_where_no_version_before_is_clean(landed, registry, monkeypatch):
    plan = plan_of_ada()
    monkeypatch.setattr(erase, "_tainted", lambda _: [erase.Version("tiny", 2, None), erase.Version("tiny", 9, 1)])
    assert erase.demote.fn(plan.erasure_id) == ["champion of tiny version 2 ends: no version is clean"]
    assert registry.promoted("tiny") is None


def test_what_is_demoted_is_the_erasures_also_where_it_has_to_be_tried_again(landed, registry, monkeypatch):
    plan = plan_of_ada()
    registry.client.set_registered_model_alias("tiny", "shop", "2")  # a person's own
    left, real = [None, None], audit.note

    def note(lake, action, *given, **told):
        if action == moves.MOVED and "erasure" in given[1]["why"] and left:
            left.pop()
            raise OSError("the lake is away")
        return real(lake, action, *given, **told)

    monkeypatch.setattr(audit, "note", note)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            erase.demote.fn(plan.erasure_id)
    told = ["champion of tiny version 2 moves to version 1", "shop of tiny version 2 moves to version 1"]
    assert sorted(erase.demote.fn(plan.erasure_id)) == sorted(erase.demote.fn(plan.erasure_id)) == told
    moved = audit.entries(action=moves.MOVED).to_dicts()
    found = sorted((one["object"], json.loads(one["detail"])["why"]) for one in moved if one["actor"] != moves.OTHERS)
    assert found == [(f"tiny@{alias}", f"tainted by erasure {plan.erasure_id}") for alias in ("champion", "shop")]
