"""`up`, `down` and `status` where nothing runs; the whole stack is tested with tasks/stack."""

import json

import pytest


def test_status_names_every_service_and_ends_with_1_when_one_is_down(lakeloop):
    ended = lakeloop("status", "--json")
    assert ended.status == 1
    told = json.loads(ended.out)
    assert {state["name"]: state["condition"] for state in told["services"]} == dict.fromkeys(
        ("engine", "prefect", "mlflow", "gateway", "worker", "watcher"), "down"
    )
    assert [one.partition(":")[0] for one in told["unknown"]] == ["served", "aliases", "prefect", "split"]
    assert (told["served"], told["champion"], told["loops"], told["places"]) == (None, None, [], [])
    shown = lakeloop("status")
    assert shown.status == 1
    assert "served unknown, champion none" in shown.said
    assert json.loads(lakeloop("status", "--services", "--json").out) == told["services"]


def test_down_without_a_stack_is_no_error(lakeloop):
    ended = lakeloop("down")
    assert (ended.status, ended.said) == (0, "nothing of this home folder was running")


def test_a_model_that_cannot_be_had_is_named_and_nothing_is_left_running(lakeloop, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    ended = lakeloop("up", "--model", str(tmp_path / "model"))
    assert ended.status == 1
    assert "lacks weights (*.safetensors), a tokenizer" in ended.said
    assert "Traceback" not in ended.said
    assert lakeloop("down").said == "nothing of this home folder was running"


@pytest.mark.parametrize(("name", "value"), [("LAKELOOP_PREFECT_PORT", "many"), ("LAKELOOP_ENGINE_URL", "gpu:8000")])
def test_a_wrong_setting_is_one_message_that_names_it(lakeloop, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    ended = lakeloop("status")
    assert ended.status == 1
    assert name in ended.said and "Traceback" not in ended.said
