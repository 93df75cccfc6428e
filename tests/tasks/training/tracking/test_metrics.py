"""The metrics of a run outlive what happens to it."""

import json
from pathlib import Path

from tasks.training.diagnosis import history
from tasks.training.tracking.metrics import MetricsLog


def test_a_resumed_log_keeps_its_history_on_the_disk_from_the_first_moment(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, None, resumed_at=0)
    for step in range(4):
        log.write(step, {"loss": 1 / (step + 3)})
    log.close("FAILED")
    file = tmp_path / "metrics.jsonl"
    written = file.read_text().splitlines()
    killed = MetricsLog(tmp_path, None, resumed_at=2)  # before it wrote a line of its own
    assert file.read_text().splitlines() == written[:3]
    assert len(killed.history) == 3
    log = MetricsLog(tmp_path, None, resumed_at=2)
    log.write(3, {"loss": 0.25})
    log.close("FINISHED")
    assert history(file) == log.history
    assert [entry["loss"] for entry in log.history] == [1 / 3, 1 / 4, 1 / 5, 0.25]
    MetricsLog(tmp_path, None, resumed_at=0).close("FAILED")  # begun anew, without a checkpoint
    assert file.read_text() == ""


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps({"step": 1, "loss": 1.0}) + '\n{"step": 2, "lo')
    assert [entry["step"] for entry in history(file)] == [1]
    log = MetricsLog(tmp_path, None, resumed_at=1)
    log.write(2, {"loss": 0.5})
    log.close("FINISHED")
    assert [entry["step"] for entry in history(file)] == [1, 2]
