"""Compaction puts the rows of an episode together, whatever lands or is rewritten meanwhile."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import clustering, layout, store
from lakehouse.clustering import File, chosen, cluster, runs
from lakehouse.governance.purge import purge, rows_with
from lakehouse.query import connect, query
from lakehouse.store import Overtaken
from lakehouse.write import Writer


def files(lake, table="calls"):
    delta = store.opened(lake, table)
    return pa.table(delta.get_add_actions(flatten=True)).to_pylist()


def test_files_that_follow_each_other_are_one_run_and_small_ones_stand_alone():
    large = [File("a", 100, "a", "c"), File("b", 100, "c", "f"), File("c", 100, "b", "d"), File("d", 100, "g", "h")]
    small = [File("e", 1, "a", "b"), File("f", 1, "x", "y")]
    found = [[one.path for one in run] for run in runs([*large, *small], small=10)]
    assert found == [["a", "b", "d"], ["c"], ["e"], ["f"]]


def test_runs_are_merged_with_what_is_as_large_and_not_with_what_is_much_larger():
    run = {size: [File(str(size), size, "a", "z")] for size in (1, 2, 3, 100, 1000)}
    assert [one.size for one in chosen(list(run.values()))] == [1, 2, 3]
    assert [one.size for one in chosen([run[1000], run[1]])] == []
    assert chosen([]) == []


def test_each_row_is_rewritten_about_as_often_as_the_lake_doubles():
    sizes: list[int] = []
    written = 0
    for _ in range(512):
        sizes.append(1)
        merged = chosen([[File("", size, "a", "z")] for size in sizes])
        for one in merged:
            sizes.remove(one.size)
        if merged:
            sizes.append(sum(one.size for one in merged))
            written += sizes[-1]
    assert sum(sizes) == 512
    assert len(sizes) <= 10
    assert written <= 512 * 10


def test_the_rows_of_an_episode_lie_together_and_nothing_is_lost(lake, make, monkeypatch):
    monkeypatch.setattr(layout, "rows_per_group", lambda table, rows=None: 4)
    monkeypatch.setattr(layout, "FILE_BYTES", 20_000)
    for shard in range(5):
        (make.group([True] * 8, problem_id=f"p{shard}") + make.group([False] * 8, problem_id=f"q{shard}")).land(lake)
    before = query("select * from calls order by all", lake)
    assert cluster(lake, "calls") == 5
    there = sorted(files(lake), key=lambda one: one["min.episode_id"])
    assert len(there) > 1
    spans = [(one["min.episode_id"], one["max.episode_id"]) for one in there]
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    groups = []
    for one in there:
        held = pq.ParquetFile(f"{lake}/calls/{one['path']}")
        for number in range(held.num_row_groups):
            ids = held.read_row_group(number)["episode_id"].to_pylist()
            assert ids == sorted(ids)
            groups.append((ids[0], ids[-1]))
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(groups))
    assert query("select * from calls order by all", lake).equals(before)


def test_what_lands_during_a_merge_stays(lake, make, monkeypatch):
    for sample in range(3):
        make.batch(sample=sample).land(lake)
    real = clustering._commit

    def late(*arguments):
        make.batch(sample=3).land(lake)
        real(*arguments)

    monkeypatch.setattr(clustering, "_commit", late)
    cluster(lake, "calls")
    assert query("select count(*) as n, count(distinct episode_id) as ids from calls", lake).row(0) == (4, 4)
    make.batch(sample=3).land(lake)
    assert query("select count(*) as n from bronze.calls", lake)["n"][0] == 4


@pytest.mark.parametrize("moment", ["chosen", "_commit"])  # before they are read; when they were
def test_a_merge_of_files_that_were_erased_meanwhile_is_no_damage_and_leaves_nothing(lake, make, monkeypatch, moment):
    for sample in range(3):
        make.batch(sample=sample).land(lake)
    gone = make.batch(sample=1).episodes[0].episode_id
    real = getattr(clustering, moment)

    def erased(*arguments):
        purge(lake, "calls", rows_with("calls", "episode_id", [gone]))
        return real(*arguments)

    monkeypatch.setattr(clustering, moment, erased)
    with pytest.raises(Overtaken, match="rewritten meanwhile"):
        cluster(lake, "calls")
    assert query("select count(*) as n from bronze.calls", lake)["n"][0] == 2
    there = {one["path"] for one in files(lake)}
    on_disk = {path.name for path in (store.Path(lake) / "calls").glob("*.parquet")}
    assert sum(name.startswith("part-0") for name in on_disk - there) == len(on_disk - there)  # no file of the merge


def test_a_landing_that_reads_what_is_being_erased_looks_again(lake, make, monkeypatch):
    make.batch(sample=0).land(lake)
    make.batch(sample=1).land(lake)
    real, met = store.reading, []

    def erased(*arguments):
        if not met and arguments[1] == "calls":
            met.append(arguments)
            purge(lake, "calls", rows_with("calls", "episode_id", [make.batch(sample=0).episodes[0].episode_id]))
        return real(*arguments)

    monkeypatch.setattr(store, "reading", erased)
    landed = make.batch(sample=1).land(lake)  # it landed before: its calls are compared
    assert met
    assert landed.episodes == 0


def test_versions_of_before_a_merge_can_still_be_read(lake, make):
    for sample in range(3):
        make.batch(sample=sample).land(lake)
    pinned = store.versions(lake)
    Writer(lake).compact()
    with connect(lake, pinned=pinned) as connection:
        assert connection.execute("select count(*) from calls").fetchone() == (3,)


def test_row_groups_are_of_a_size_in_bytes_within_bounds():
    def rows(tokens):
        lists = pa.array([list(range(tokens))] * 8, pa.list_(pa.int32()))
        return pa.table({"prompt_token_ids": lists})

    assert layout.rows_per_group("calls", rows(10)) == layout.MOST
    assert layout.rows_per_group("calls", rows(8_000)) == 64 * 2
    assert layout.rows_per_group("calls", rows(100_000)) == layout.FEWEST
