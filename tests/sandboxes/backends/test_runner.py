"""The runner outside a box."""

import subprocess
import sys
from pathlib import Path

import sandboxes.backends


def test_the_runner_refuses_to_run_where_it_would_kill_more_than_a_box():
    # Even without its check it would end at once: stdin is empty.
    runner = Path(sandboxes.backends.__file__).with_name("runner.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", runner], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "must be PID 1" in done.stderr
