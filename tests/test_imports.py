"""What loading a module brings with it. `.importlinter` reads the imports as written; these tests watch them happen."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Prints which of the unwanted modules are loaded after importing the wanted ones (and all that is below them).
PROBE = """
import importlib, pkgutil, sys
names, unwanted = sys.argv[1].split(","), sys.argv[2].split(",")
for name in names:
    module = importlib.import_module(name)
    if name in ("sandboxes", "lakehouse"):
        for found in pkgutil.walk_packages(module.__path__, name + "."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
print(",".join(name for name in unwanted if name in sys.modules))
"""


def loaded(names: str, unwanted: str) -> str:
    """Which of `unwanted` (comma-separated) a fresh interpreter has loaded after importing `names`."""
    command = [sys.executable, "-c", PROBE, names, unwanted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("names", "unwanted"),
    [
        ("sandboxes,lakehouse", "prefect,mlflow,torch,transformers,vllm,flows,tasks"),
        ("tasks.training.config", "torch,transformers,prefect,mlflow"),
        ("flows.__main__", "torch,transformers,vllm"),
    ],
)
def test_a_part_loads_without_what_it_does_not_need(names: str, unwanted: str) -> None:
    assert loaded(names, unwanted) == ""


def test_the_probe_notices_what_is_loaded() -> None:
    assert loaded("lakehouse", "lakehouse,torch") == "lakehouse"


def test_every_package_in_tasks_is_kept_free_of_prefect() -> None:
    # A new package must be added to the contract: `exhaustive` asks for a layer only.
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    listed = contracts["importlinter:contract:prefect"]["source_modules"].split()
    packages = {f"tasks.{path.parent.name}" for path in (ROOT / "tasks").glob("*/__init__.py")}
    assert packages <= set(listed)


def test_only_the_trainer_reads_weights_as_torch_tensors() -> None:
    # import-linter sees other distributions as one module each, and `safetensors` alone brings no torch.
    sources = [path for part in ("flows", "tasks", "sandboxes", "lakehouse") for path in (ROOT / part).rglob("*.py")]
    users = {str(path.relative_to(ROOT)) for path in sources if "safetensors.torch" in path.read_text()}
    assert {name for name in users if not name.startswith("tasks/training/")} == set()
