"""How a benchmark is called and tells what it found: progress on stderr, one JSON object on stdout."""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil


def arguments(description: str | None) -> argparse.Namespace:
    """`--quick` for a run of a minute or two whose numbers say only that the benchmark works."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast it is")
    return parser.parse_args()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def tell(found: dict[str, Any]) -> None:
    """Print the result with what it was measured on."""
    machine = {
        "cores": psutil.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "load_before": round(psutil.getloadavg()[0], 1),
    }
    print(json.dumps({**found, "machine": machine}, indent=2))


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]
