"""The runner outside a box."""

import subprocess
import sys
from importlib import resources

from sandboxes.backends import runner


def test_the_runner_refuses_to_run_where_it_would_kill_more_than_a_box():
    # Even without its check it would end at once: stdin is empty.
    command = [sys.executable, "-I", "-S", "-c", runner.program()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert "must be PID 1" in done.stderr


def test_a_box_is_handed_every_part_and_the_text_fits_into_one_argument():
    files = {file.name.removesuffix(".py") for file in resources.files(runner).iterdir() if file.name.endswith(".py")}
    assert set(runner.PARTS) == files - {"__init__"}
    assert len(runner.program().encode()) < 131_072
