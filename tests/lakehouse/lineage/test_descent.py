"""A long line of versions whose teacher moves along: every pair once, by its shortest way, and taint to all that it went into."""

import pytest
from deltalake import DeltaTable

from lakehouse.governance import plan
from lakehouse.query import query
from lakehouse.records import Erasure
from lakehouse.write import Writer

LAST, EVERY = 60, 5


def reference(version: int) -> int | None:
    """The newest multiple of EVERY before this version."""
    return (version - 1) // EVERY * EVERY or None


def distances(version: int) -> dict[int, int]:
    """The fewest steps to every version that went into this one."""
    found, last = {version: 0}, [version]
    while last:
        nexts = {other: found[one] + 1 for one in last for other in (one - 1, reference(one)) if other}
        last = sorted(nexts.keys() - found.keys())
        found |= {one: nexts[one] for one in last}
    return found


@pytest.fixture
def long(lake, make) -> str:
    versions = [
        make.version(number, number - 1 or None).model_copy(
            update={
                "training_set_id": f"ts-{number}",
                "learnt_from": [f"toy@{reference(number)}"] if reference(number) else None,
            }
        )
        for number in range(1, LAST + 1)
    ]
    pupil = make.version(1, name="other").model_copy(update={"learnt_from": ["toy@40"]})
    Writer(lake).append("model_versions", [*versions, pupil])
    return lake


def erase(lake: str, make, erasure_id: str, *training_sets: str) -> None:
    told = {"subject": None, "reason": "", "requested_by": "bob", "rows": "{}", "files": 0, "scanned": None}
    row = Erasure(
        erasure_id=erasure_id, episode_ids=["a tombstone"], tainted=[], signature="", training_sets=list(training_sets),
        erased_at=make.problem().created_at, **told,
    )  # fmt: skip
    Writer(lake).append("erasures", [row])


def test_every_version_and_each_before_it_is_one_row_with_the_shortest_distance(long):
    rows = query(
        "select version, from_version, distance from descent where name = 'toy' and from_name = 'toy'", long
    ).rows()
    wanted = [(version, *one) for version in range(1, LAST + 1) for one in distances(version).items()]
    assert len(wanted) == LAST * (LAST + 1) // 2
    assert sorted(rows) == sorted(wanted)
    pupil = query("select from_name, from_version, distance from descent where name = 'other'", long).rows()
    assert sorted(pupil) == sorted(
        [("other", 1, 0), *(("toy", one, steps + 1) for one, steps in distances(40).items())]
    )


def test_the_way_to_a_version_that_is_not_in_the_lake_is_told_as_well(long):
    DeltaTable(f"{long}/model_versions").delete("name = 'toy' and version <= 20")
    assert query("select count(*) from descent where version <= 20 and name = 'toy'", long).item() == 0
    (row,) = query(
        "select distance from descent where name = 'toy' and version = 27 and from_version = 20", long
    ).rows()
    assert row == (2,)


def test_taint_goes_on_to_pupils_and_names_one_set_and_one_erasure(long, make):
    erase(long, make, "ee-none", "of no version")
    assert query("from tainted_versions", long).is_empty()
    erase(long, make, "ee-2", "ts-39", "ts-55")
    rows = query("from tainted_versions", long).rows()
    assert rows == [
        ("other", 1, "ts-39", "ee-2"),
        *(("toy", number, "ts-39", "ee-2") for number in range(39, LAST + 1)),
    ]
    erase(long, make, "ee-1", "ts-1")
    assert query("select version, because_of, erasure_id from tainted_versions where name = 'toy'", long).rows() == [
        (number, "ts-1", "ee-1") for number in range(1, LAST + 1)
    ]


def test_taint_goes_on_through_a_teacher_where_no_parent_leads(line, make, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    batch = make.group([True, False], run="a")
    made = line.train(2, batch)
    line.register(3, None, name="other", parent_version=None, learnt_from=["toy@2"])
    line.register(4, None, parent_version=1, learnt_from=["other@3", "toy@2"])
    line.register(5, None, parent_version=4)
    line.register(6, None, parent_version=1)
    wanted = plan.plan(line.lake, episode_ids=[batch.episodes[0].episode_id], reason="ticket", requested_by="bob")
    assert wanted.tainted == ["other@3", "toy@2", "toy@4", "toy@5"]
    erase(line.lake, make, "ee-1", made.training_set_id)
    rows = query("select name || '@' || version from tainted_versions", line.lake).rows()
    assert [name for (name,) in rows] == wanted.tainted
