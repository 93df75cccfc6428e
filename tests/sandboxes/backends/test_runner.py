"""The runner outside a box."""

import subprocess
import sys
from importlib import resources

from sandboxes.backends import runner


def test_the_runner_refuses_to_run_where_it_would_kill_more_than_a_box():
    # Even without its check it would end at once: after the program stdin is at its end.
    done = subprocess.run([sys.executable, *runner.command()], input=runner.program(), capture_output=True)
    assert done.returncode == 1
    assert b"must be PID 1" in done.stderr


def test_a_box_is_handed_every_part():
    files = {file.name.removesuffix(".py") for file in resources.files(runner).iterdir() if file.name.endswith(".py")}
    assert set(runner.PARTS) == files - {"__init__"}
