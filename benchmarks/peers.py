"""Environments of the programs we are measured against, each apart: their pins agree with nobody's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import say
from lakehouse.home import home

ROOT = Path(__file__).resolve().parent.parent
INSTALL_S = 1200


def environment(name: str, packages: Sequence[str]) -> Path:
    """The Python of an environment that has these packages, made once under `<home>/cache/bench`.

    RuntimeError with the installer's last lines where they cannot be had.
    """
    folder = home().cache / "bench" / name
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(packages)
    if done.is_file() and done.read_text() == wanted:
        return python
    say(f"installing {', '.join(packages)} into {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    installer = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = shutil.which("uv") or shutil.which("uv", path=ROOT / ".venv-tools" / "bin")
    if uv:
        installer = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
        for folder_of_wheels in os.environ.get("PIP_FIND_LINKS", "").split():  # pip knows the variable, uv does not
            installer += ["--find-links", folder_of_wheels]
        if index := os.environ.get("TORCH_INDEX"):
            installer += ["--extra-index-url", index, "--index-strategy", "unsafe-best-match"]
    _run([*installer, *packages])
    done.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} ... failed:\n{ended.stderr[-1500:]}")
