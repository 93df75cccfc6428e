import pytest

from lakehouse.label import Labelled
from tasks.label import apply


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)


@pytest.mark.parametrize("runs", [[], ["run-1", "o'neill"], ["') or true --"]])
def test_any_name_of_a_run_is_a_name_and_an_empty_lake_has_nothing_to_judge(runs):
    assert apply.fn("search@2", runs) == Labelled(scored=0, no_evidence=0, not_trainable=0, written=0)
