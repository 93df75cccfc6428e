"""What writers tidy up as they go: many small commits leave few files, and the rows are those that were written."""

import pytest

from lakehouse import clustering, compaction, store
from lakehouse.query import query
from lakehouse.write import Writer

CHILDREN = ("episodes", "calls", "actions", "evidence")


@pytest.fixture
def often(monkeypatch):
    """Every fourth commit tidies up."""
    monkeypatch.setattr(compaction, "EVERY", 4)


def files(lake, table):
    return len(store.opened(lake, table).file_uris())


def test_a_loop_of_small_landings_leaves_few_files_and_every_row(often, lake, make):
    for wave in range(14):
        Writer(lake).append_new("dispatches", [make.dispatch(run=f"r{wave}")], key="episode_id")
        make.batch(run=f"r{wave}").land(lake)
    assert all(files(lake, name) < 8 for name in (*CHILDREN, "dispatches"))
    assert query("select count(distinct episode_id) as n from calls", lake)["n"][0] == 14
    for name in (*CHILDREN, "dispatches"):
        assert query(f"select count(*) as n from bronze.{name}", lake)["n"][0] == 14


def test_what_has_landed_is_known_when_its_file_was_merged_away(often, lake, make):
    landed = [make.batch(run=f"r{wave}") for wave in range(5)]
    for batch in landed:
        batch.land(lake)
    assert files(lake, "episodes") == 2
    for wave, batch in enumerate(landed):
        again = batch.land(lake)
        assert (again.episodes, again.skipped) == (0, [batch.episodes[0].episode_id])
        dispatch = make.dispatch(run=f"r{wave}")
        assert Writer(lake).append_new("dispatches", [dispatch], key="episode_id").rows == 1
        assert Writer(lake).append_new("dispatches", [dispatch], key="episode_id").skipped


def test_other_tables_are_tended_too_but_for_what_lies_in_partitions_of_its_own(often, lake, make):
    for number in range(9):
        Writer(lake).append("model_versions", [make.version(number)])
        Writer(lake).append("problems", [make.problem(kind=f"kind{number}")])
    assert files(lake, "model_versions") <= 5
    assert files(lake, "problems") == 9


def test_a_writer_whose_tidying_is_overtaken_has_written_all_the_same(often, lake, make, monkeypatch, caplog):
    def overtaken(*_, **__):
        raise store.Overtaken("calls", ["part-0"])

    monkeypatch.setattr(clustering, "cluster", overtaken)
    caplog.set_level("INFO")
    for wave in range(5):
        assert make.batch(run=f"r{wave}").land(lake).episodes == 1
    assert files(lake, "calls") == 5
    assert (
        "the small files of table calls stay for now: table calls: 1 of the files that were being read were rewritten"
        in caplog.text
    )
    monkeypatch.undo()
    Writer(lake).compact()
    assert files(lake, "calls") == 1
