"""Model folders that appear whole or not at all. Imports no torch: registry and serving read the marker too."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open

from tasks.training.errors import TrainingError

DONE = "DONE"
PROBE = "probe.json"  # log-probs under the new weights, for the weight-sync proof
SUMMARY = "training.json"  # what the run measured, and the digests of the other weights that it learnt from
WRITTEN_HERE = {DONE, PROBE, SUMMARY}


def weights_digest(folder: Path) -> str:
    """SHA-256 over the names and bytes of the folder's safetensors files, in name order."""
    total = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        total.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                total.update(chunk)
    return total.hexdigest()


def done(folder: Path) -> dict[str, str] | None:
    """What the folder's DONE marker holds, or None where the folder is missing or unfinished."""
    marker = folder / DONE
    return json.loads(marker.read_text()) if marker.is_file() else None


def other_weights(folder: Path) -> list[str]:
    """Weights digests of the other models that these weights learnt from; none where they were not trained here."""
    summary = folder / SUMMARY
    return sorted(json.loads(summary.read_text()).get("learnt_from", {}).values()) if summary.is_file() else []


def partial_of(folder: Path) -> Path:
    """Where a folder is filled before it appears."""
    return folder.with_name(f".{folder.name}.partial")


@contextmanager
def appearing(folder: Path, facts: dict[str, str]) -> Iterator[Path]:
    """Gives a temporary sibling to fill; on leaving it is finished. A failure removes it, a crash leaves it to the next attempt.

    An existing folder is never replaced.
    """
    partial = partial_of(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        finish(partial, folder, facts)
    except BaseException:  # an interrupt too: a folder appears whole or not at all
        shutil.rmtree(partial, ignore_errors=True)
        raise


def finish(partial: Path, folder: Path, facts: dict[str, str]) -> None:
    """Syncs a filled folder to disk, marks it with `facts` and its weights digest, and gives it its name."""
    for file in partial.rglob("*"):
        _sync(file)
    marker = {**facts, "weights_digest": weights_digest(partial)}
    (partial / DONE).write_text(json.dumps(marker, indent=1, sort_keys=True))
    _sync(partial / DONE)
    _sync(partial)
    partial.rename(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_model(folder: Path) -> None:
    """Raises TrainingError unless the folder holds a model, its tokenizer and safetensors weights, as far as a look tells."""
    needed = {
        "config.json": folder / "config.json",
        "a tokenizer (tokenizer.json or tokenizer.model)": next(
            folder.glob("tokenizer.[jm]*"), folder / "tokenizer.json"
        ),
        "weights (*.safetensors)": next(folder.glob("*.safetensors"), folder / "model.safetensors"),
    }
    missing = [what for what, file in needed.items() if not file.is_file()]
    if missing:
        raise TrainingError(f"{folder} is not a model folder in Hugging Face format: it lacks {', '.join(missing)}")
    file = needed["config.json"]
    try:
        if not isinstance(json.loads(file.read_text(encoding="utf-8")), dict):
            raise ValueError("it is no object")
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="numpy"):  # reads the header, and whether all of the file is there
                pass
    except (ValueError, SafetensorError) as error:
        raise TrainingError(f"{file} is broken or cut off ({error}): fetch or copy the model anew") from error


def copy_companions(source: Path, target: Path) -> None:
    """Copies everything but the weights: config, tokenizer, chat template, licence. They are never re-rendered."""
    for file in source.iterdir():
        is_weight = file.suffix in {".safetensors", ".bin", ".gguf", ".pt"} or file.name.endswith(".index.json")
        if file.is_file() and not is_weight and file.name not in WRITTEN_HERE:
            shutil.copyfile(file, target / file.name)
