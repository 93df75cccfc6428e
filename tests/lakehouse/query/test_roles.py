"""What each role sees."""

import pytest

import lakehouse
from lakehouse.query.roles import ROLES, UnknownRole
from lakehouse.records import AuditEntry, now
from lakehouse.schema import TABLES
from lakehouse.write import Writer


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


@pytest.fixture
def held(lake, make):
    make.batch("p", 0, subject="ada", error="said too much").land(lake)
    episode = make.batch("p", 0).episodes[0].episode_id
    entry = {"entry_id": "a", "actor": "bob", "action": "review", "object": episode, "detail": f'{{"of": "{episode}"}}'}
    Writer(lake).append("audit", [AuditEntry(**entry, noted_at=now())])
    return lake


def rows(lake, role, sql):
    with lakehouse.connect(lake, role=role) as connection:
        return connection.execute(sql).fetchall()


EPISODE = "select episode_id, subject, error, status from episodes"


def test_a_reviewer_sees_what_was_said_and_not_who(held, make):
    ((name, subject, error, status),) = rows(held, "reviewer", EPISODE)
    assert (subject, error, status) == (None, "said too much", "ok")
    assert name == make.batch("p", 0).episodes[0].episode_id


def test_a_researcher_sees_facts_under_other_names_that_still_join(held, make):
    real = make.batch("p", 0).episodes[0]
    ((name, subject, error, status),) = rows(held, "researcher", EPISODE)
    assert (subject, error, status) == (None, None, "ok")
    assert name.startswith("x-")
    assert rows(held, "researcher", EPISODE)[0][0] == name  # the same in the next connection
    joined = "select episodes.episode_id, len(weight_versions) from episodes join calls using (episode_id)"
    assert rows(held, "researcher", joined) == [(name, 2)]
    everything = str([rows(held, "researcher", f"from bronze.{table}") for table in TABLES])
    for hidden in (real.episode_id, real.attempt_id, real.group_id, "said too much", "ada", "bob"):
        assert f"'{hidden}'" not in everything
    assert real.episode_id not in everything


def test_another_home_has_other_names(held, tmp_path_factory, monkeypatch):
    ((before, *_),) = rows(held, "researcher", EPISODE)
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path_factory.mktemp("other")))
    ((after, *_),) = rows(held, "researcher", EPISODE)
    assert before != after


def test_an_operator_and_nobody_in_particular_see_everything(held):
    assert rows(held, "operator", EPISODE) == rows(held, None, EPISODE)
    assert rows(held, None, "select actor from audit") == [("bob",)]


@pytest.mark.parametrize("role", ROLES)
def test_every_table_can_be_read_in_every_role_with_its_own_types(lake, role):
    with lakehouse.connect(lake) as all_of_it, lakehouse.connect(lake, role=role) as some:
        for table in TABLES:
            described = f"select typeof(columns(*)) from (from bronze.{table} union all by name select 1 as n)"
            assert some.execute(described).fetchall() == all_of_it.execute(described).fetchall()


def test_an_unknown_role_is_refused(lake):
    with pytest.raises(UnknownRole, match="researcher"):
        lakehouse.connect(lake, role="boss")
