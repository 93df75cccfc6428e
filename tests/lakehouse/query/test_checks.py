"""Each check finds the row that breaks its law, put there behind the writer's back."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse import connect
from lakehouse.query.relations import relations
from lakehouse.records import Deployment, Reward, TrainingRow
from lakehouse.schema import TABLES

ELSEWHERE = {"erased_rows", "unfinished_erasures", "orphans", "token_ledger", "one_landing", "recorded_tokens"}


def force(lake, table, *records):
    rows = pa.Table.from_pylist([record.model_dump() for record in records], schema=TABLES[table].arrow)
    write_deltalake(f"{lake}/{table}", rows, mode="append")


def call(lake, make, **changes):
    """A call of the landed episode with changes that the writer would refuse."""
    batch = make.batch()
    batch.land(lake)
    force(lake, "calls", batch.calls[0].model_copy(update={"call_index": 1, "call_id": "c1"} | changes))


def reward(lake, make, episode, **changes):
    values = {"outcome": 1.0, "reward": 1.0, "status": "scored"} | changes
    at = make.problem().created_at
    force(
        lake,
        "rewards",
        Reward(episode_id=episode, rubric="r", rubric_version=1, components="{}", labelled_at=at, **values),
    )


def row(lake, make, episode, **changes):
    values = {
        "training_set_id": "ts", "row_index": 0, "group_id": "g", "problem_kind": "search", "input_ids": [1, 2],
        "loss_mask": [0, 1], "logprobs": [0.0, -0.1], "weight_versions": [-1, 1], "reward": 1.0, "advantage": 1.0,
    }  # fmt: skip
    force(lake, "training_rows", TrainingRow(episode_id=episode, **values | changes))


def landed(lake, make, **changes):
    batch = make.batch(**changes)
    batch.land(lake)
    return batch.episodes[0].episode_id


def redacted(lake, make):
    masked = make.call([1], [4, 5], redacted=[1, 1])
    row(lake, make, landed(lake, make, calls=[masked]))


def hacker(lake, make):
    batch = make.batch(purpose="eval:x")
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    batch.evidence.append(make.evidence("scan", {"counts": {"runner": 1}}, **own))
    batch.land(lake)
    at = make.problem().created_at
    served = Deployment(
        deployment_id="d", name="toy", version=1, engine_url="u", proof="{}", accepted=True, reason="r", deployed_at=at
    )
    force(lake, "deployments", served)


def edition(lake, make):
    landed(lake, make, problem_edition="an-edition-of-before")


def backwards(lake, make):
    episode = make.batch().episodes[0]
    force(lake, "episodes", episode.model_copy(update={"duration_s": -1.0}))


BROKEN = {
    "token_lengths": lambda lake, make: call(lake, make, weight_versions=[1]),
    "logprobs": lambda lake, make: call(lake, make, logprobs=[0.5, float("nan")]),
    "parents": lambda lake, make: call(lake, make, parent_call_id="gone"),
    "unique_keys": lambda lake, make: call(lake, make, call_index=0),
    "row_lengths": lambda lake, make: row(lake, make, landed(lake, make), logprobs=[0.0]),
    "rewards_of_failures": lambda lake, make: reward(
        lake, make, landed(lake, make, status="infra_error"), outcome=0.0, reward=0.0
    ),
    "trained_on_evaluation": lambda lake, make: row(lake, make, landed(lake, make, split="eval")),
    "trained_on_nothing": lambda lake, make: row(lake, make, "ep-nobody"),
    "trained_on_redacted": redacted,
    "unknown_versions": lambda lake, make: (landed(lake, make), force(lake, "model_versions", make.version(7))),
    "unknown_editions": edition,
    "impossible_times": backwards,
    "accepted_hackers": hacker,
}


def rows(lake, check):
    with connect(lake) as connection:
        return connection.execute(f"select count(*) from checks.{check}").fetchone()[0]


def test_every_check_has_a_broken_lake():
    assert set(BROKEN) | ELSEWHERE >= {
        known.name.removeprefix("checks.") for known in relations() if known.name.startswith("checks.")
    }


@pytest.mark.parametrize("check", BROKEN)
def test_a_check_finds_what_breaks_its_law(lake, make, check):
    BROKEN[check](lake, make)
    assert rows(lake, check) == 1


@pytest.mark.parametrize("check", ["rewards_of_failures"])
def test_a_failure_without_a_number_is_as_it_should_be(lake, make, check):
    reward(lake, make, landed(lake, make, status="infra_error"), outcome=None, reward=None, status="not_trainable")
    assert rows(lake, check) == 0
