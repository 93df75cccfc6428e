"""`lakeloop bench sandbox --quick` as it is, but for the peers, whose installation takes a minute: one of ours speaks for them."""

import io
import json
import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from benchmarks import peers, sandbox
from flows.cli.bench import flat
from sandboxes.backends.base import BackendUnavailable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
PEER = """
import json, subprocess, sys, time
for line in sys.stdin:
    took = []
    for _ in range(int(line)):
        began = time.perf_counter()
        subprocess.run(["bash", "-c", "sleep 0.1; echo hello"], check=True, capture_output=True)
        took.append((time.perf_counter() - began) * 1000)
    print(json.dumps(took), flush=True)
"""


@pytest.fixture(scope="module")
def measured(docker_engine, tmp_path_factory):
    """What it prints."""
    folder = tmp_path_factory.mktemp("bench")
    driver, before = folder / "peer.py", tempfile.gettempdir()
    driver.write_text(PEER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKELOOP_HOME", str(folder / "home"))
        patch.setattr(peers, "environment", lambda name, wanted: Path(sys.executable))
        patch.setattr(sandbox, "DRIVER", driver)
        patch.setattr(sys, "argv", ["lakeloop bench sandbox", "--quick"])
        try:
            with redirect_stdout(io.StringIO()) as printed:
                sandbox.main()
        except BackendUnavailable as reason:
            pytest.skip(str(reason))
    assert tempfile.gettempdir() == before
    return json.loads(printed.getvalue())


def test_every_number_is_there_and_can_be_one(measured):
    machine = measured.pop("machine")
    assert machine["cores"] >= 1
    found = dict(flat(measured))
    sides = {
        f"{name}.{call}_ms.{at}"
        for name in sandbox.NAMES
        for call in ("start", "exec", "close")
        for at in ("p50", "p95")
    }
    workers = {f"gradings_per_min.{number}" for number in range(1, len(os.sched_getaffinity(0)) + 1)}
    speedups = {f"pool_speedup.{name}" for name in sandbox.NAMES}
    single = {"vs_mini_swe_agent", "vs_swe_rex", "commands_per_s", "problems_per_hour", "leaked"}
    assert set(found) == sides | workers | speedups | single
    assert found.pop("leaked") == 0
    assert all(value > 0 for value in found.values()), found
    for name in sandbox.NAMES:
        assert all(
            found[f"{name}.{call}_ms.p50"] <= found[f"{name}.{call}_ms.p95"] for call in ("start", "exec", "close")
        )
    # The peer of this test takes a tenth of a second and more for a command, and a Docker box a few milliseconds.
    assert min(found["vs_mini_swe_agent"], found["vs_swe_rex"]) > 1


def test_the_page_names_what_is_measured_and_nothing_else(measured):
    (section,) = re.findall(r"^## sandbox$(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    named = set(
        re.findall(r"`([a-z_]+)", " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("| `")))
    )
    calls = {"exec_ms", "close_ms"}  # named by themselves, as parts of both sides
    assert named == {name for name in measured if name != "machine"} | calls
