import subprocess
import sys

import pytest

import lakehouse
from lakehouse import store
from lakehouse.query import SQL, query, relation, relations
from lakehouse.query.relations import SCHEMAS
from lakehouse.schema import TABLES, duckdb_type
from lakehouse.write import Writer


def test_every_relation_can_be_queried_on_an_empty_lake(lake):
    with lakehouse.connect(lake) as connection:
        for each in relations():
            assert connection.sql(f"from {each.quoted}").pl().height == 0, each.name
        for table in TABLES:
            assert connection.sql(f"from {table}").pl().height == 0, table


def test_an_empty_table_has_the_types_of_a_written_one(lake, make):
    with lakehouse.connect(lake) as connection:
        before = connection.sql("describe calls").fetchall()
    make.batch().land(lake)
    with lakehouse.connect(lake) as connection:
        assert connection.sql("describe calls").fetchall() == before
    assert {name: kind for name, kind, *_ in before} == {f.name: duckdb_type(f.type) for f in TABLES["calls"].arrow}


def test_looking_makes_nothing(lake):
    query("from episodes", lake)
    assert store.versions(lake) == {}


def test_a_name_of_a_file_is_the_name_of_its_relation():
    names = {each.name.split(".")[1] for each in relations()}
    assert {path.stem for part in SCHEMAS for path in (SQL / part).glob("*.sql")} <= names


def test_every_file_states_its_grain():
    for path in (path for part in SCHEMAS for path in (SQL / part).glob("*.sql")):
        assert any(line.startswith("-- grain:") for line in path.read_text().splitlines()), path.name


def test_tokens_has_one_row_per_completion_token(lake, make):
    sampled = make.call([9], [4, 5], index=0, version=3, logprobs=[-0.25, -0.5])
    shown = make.call([9], [6], index=1, logprobs=None, weight_versions=[-1], token_route="demonstration")
    make.batch(calls=[sampled, shown]).land(lake)
    rows = query("select * exclude (episode_id) from tokens order by call_index, position", lake).rows()
    assert rows == [(0, 0, 4, -0.25, 3), (0, 1, 5, -0.5, 3), (1, 0, 6, None, -1)]


def test_pinned_tables_stay_as_they_were(lake, make):
    make.batch(sample=0).land(lake)
    pinned = store.versions(lake)
    make.batch(sample=1).land(lake)
    with lakehouse.connect(lake, pinned=pinned) as connection:
        assert connection.sql("from episodes").pl().height == 1
    assert query("from episodes", lake).height == 2


def test_connections_to_two_lakes_do_not_meet(tmp_path, make):
    lakes = [str(tmp_path / name) for name in ("one's", "two")]
    make.batch().land(lakes[0])
    with lakehouse.connect(lakes[0]) as first, lakehouse.connect(lakes[1]) as second:
        assert first.sql("from calls").pl().height == 1
        assert second.sql("from calls").pl().height == 0


def test_the_newest_edition_of_a_problem_holds(lake, make):
    later = make.problem(title="second", created_at=make.problem().created_at.replace(year=2027))
    Writer(lake).append("problems", [later])
    Writer(lake).append("problems", [make.problem()])
    assert query("select title from problems", lake)["title"].to_list() == ["second"]


def test_an_unknown_relation_is_refused_by_name():
    with pytest.raises(KeyError, match=r"no relation 'filters.nope'; there are .*filters.grpo"):
        relation("filters.nope")


def test_record_types_come_without_duckdb_and_deltalake():
    code = "import sys, lakehouse.records; sys.exit(bool({'duckdb', 'deltalake', 'polars'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
