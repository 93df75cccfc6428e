"""MLflow or Prefect goes away in the middle: waited for with a deadline, then a clear end, and nothing half-promoted."""

import pytest
from mlflow.exceptions import MlflowException
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from lakehouse.governance import audit
from tasks import limits, release
from tasks.limits import NoPlace, places
from tasks.registry import moves
from tasks.registry.versions import Lineage
from tasks.retrying import passes
from tasks.stack.limits import ENGINE
from tasks.stack.settings import Settings


@pytest.fixture
def nobody(free_ports):
    """A port where nobody listens."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(own_mlflow):
    return own_mlflow()


@pytest.fixture
def registry(server, tmp_path, monkeypatch, weights, request):
    """Two versions of a model of its own, the first is promoted. `Registry` in the tasks is this one."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKELOOP_MODEL", f"m{abs(hash(request.node.name))}")
    for number in (1, 2):
        folder = weights(tmp_path / f"w{number}", float(number))
        (folder / "config.json").write_text('{"vocab_size": 8}')
        lineage = Lineage(stage="base", parent=number - 1 or None)
        assert server.register(Settings().model_name, folder, lineage=lineage) == number
    server.promote(Settings().model_name, 1)
    monkeypatch.setattr(release, "Registry", lambda _: server)
    return server


def away(*_, **__):
    raise MlflowException("API request to http://127.0.0.1:5000 failed: connection refused")


def test_an_mlflow_that_is_away_ends_a_promotion_with_the_address_that_was_asked(tmp_path, monkeypatch, nobody):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setenv("LAKELOOP_MLFLOW_PORT", str(nobody))
    for name, value in Settings().environment().items():
        if name.startswith("MLFLOW_HTTP"):
            monkeypatch.setenv(name, "0" if "RETRIES" in name else value)
    with pytest.raises(MlflowException, match=f"port={nobody}") as told:
        release.promote.fn(2)
    assert passes(told.value)  # it is tried again, twice
    assert audit.entries().is_empty()


def test_where_mlflow_goes_away_before_the_alias_moves_it_stays_and_the_next_try_moves_it(registry, monkeypatch):
    with monkeypatch.context() as outage:
        outage.setattr(registry.client, "set_registered_model_alias", away)
        with pytest.raises(MlflowException) as told:
            release.promote.fn(2)
    assert passes(told.value)
    assert registry.promoted(Settings().model_name) == 1
    assert not [
        one for one in audit.entries(action=moves.MOVED).to_dicts() if '"to":2' in one["detail"].replace(" ", "")
    ]
    release.promote.fn(2)
    assert registry.promoted(Settings().model_name) == 2


def test_where_mlflow_goes_away_before_a_version_is_made_the_next_try_makes_one(
    registry, monkeypatch, weights, tmp_path
):
    folder = weights(tmp_path / "w3", 3.0)
    with monkeypatch.context() as outage:
        outage.setattr(registry.client, "create_model_version", away)
        with pytest.raises(MlflowException):
            registry.register(Settings().model_name, folder, lineage=Lineage(stage="sft"))
    assert [one.version for one in registry.versions(Settings().model_name)] == [1, 2]
    assert registry.register(Settings().model_name, folder, lineage=Lineage(stage="sft")) == 3
    assert registry.register(Settings().model_name, folder, lineage=Lineage(stage="sft")) == 3


async def test_a_prefect_that_is_away_is_waited_for_until_the_deadline(nobody, monkeypatch):
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "00000000-0000-0000-0000-000000000001")
    monkeypatch.setattr(limits, "POLL_S", 0.05)
    away = {PREFECT_API_URL: f"http://127.0.0.1:{nobody}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with (
        temporary_settings(away),
        pytest.raises(NoPlace, match=r"did not answer for \d+ s .*`lakeloop up` starts it again"),
    ):
        async with places(ENGINE, 4, deadline_s=0.3):
            raise AssertionError("held what nobody gave")
