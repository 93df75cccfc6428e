"""`lakeloop bench`."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.bench import BenchmarkError, bench, benchmarks, flat, module

ROOT = Path(__file__).resolve().parents[3]

HELP = """
import contextlib, io, runpy, sys

names, sys.argv[1:] = sys.argv[1:], ["--help"]
for name in names:
    said, status = io.StringIO(), "none"
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(name, run_name="__main__")
    except SystemExit as ended:
        status = ended.code
    print(name.removeprefix("benchmarks.").rstrip("_"), status, "--quick" in said.getvalue())
"""


def test_every_benchmark_is_listed_with_what_it_measures_and_can_be_run_by_itself() -> None:
    known = benchmarks()
    assert {"gateway", "async"} <= set(known)
    assert all(purpose for purpose in known.values())
    shown = subprocess.run(
        [sys.executable, "-c", HELP, *(f"benchmarks.{module(name)}" for name in known)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == [f"{name} 0 True" for name in known]


def test_an_unknown_benchmark_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BenchmarkError, match=r"no benchmark 'speed'; there are: .*gateway"):
        bench("speed")


def test_nested_results_are_told_by_dotted_names() -> None:
    assert list(flat({"added_ms": {"1": {"p50": 2.0}}, "ratio": 1})) == [("added_ms.1.p50", 2.0), ("ratio", 1)]
