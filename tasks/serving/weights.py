"""What an engine loads: a model folder whose output layer stands on its own.

vLLM's CPU build packs the output layer into a form of its own when it starts. A reload refreshes the packed form only
from a tensor named `lm_head.weight`, which a model with tied embeddings does not have: it would go on with the old output
layer under new weights, without an error. So the engine sees a tied model through a view in which the two are apart.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.serving.errors import ModelError

INDEX = "model.safetensors.index.json"
HEAD = "lm_head.weight"
HEAD_FILE = "part-output-layer.safetensors"
COMPARED_AT_ONCE = 1 << 22  # bytes
EMBEDDING = "model.embed_tokens.weight"  # of Llama, Qwen, Mistral, SmolLM and their kin


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in a safetensors file."""

    file: Path
    dtype: str
    shape: list[int]
    begin: int  # bytes from the start of the file
    end: int


def tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder by name, read from the files' headers. ModelError for a damaged or cut-off file."""
    found: dict[str, Tensor] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"no *.safetensors in {folder}: nothing to load")
    for file in files:
        found |= _header(file)
    return found


def servable(folder: Path, view: Path) -> Path:
    """`folder` itself, or for tied embeddings `view`, made anew: links to its files, and the embedding as output layer.

    Only the output layer is copied.
    """
    held = tensors(folder)
    if HEAD in held:
        return folder
    if EMBEDDING not in held:
        raise ModelError(f"{folder} has neither {HEAD} nor {EMBEDDING}: this architecture can not be reloaded safely")
    shutil.rmtree(view, ignore_errors=True)
    view.mkdir(parents=True)
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            # Under its own name a single file would be read alone, without the index and the layer added here.
            (view / f"part-{file.name}").symlink_to(file.resolve())
        elif file.is_file() and file.name not in ("config.json", INDEX):
            (view / file.name).symlink_to(file.resolve())
    config = json.loads((folder / "config.json").read_text())
    (view / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}, indent=1))
    _write(view / HEAD_FILE, HEAD, held[EMBEDDING])
    places = {HEAD: HEAD_FILE} | {name: f"part-{tensor.file.name}" for name, tensor in held.items()}
    size = sum(tensor.end - tensor.begin for tensor in [*held.values(), held[EMBEDDING]])
    (view / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": places}))
    return view


def same(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same weights, whatever their files are called and in whatever order they lie.

    Weights of another precision are other weights here.
    """
    left, right = tensors(folder), tensors(other)
    if left.keys() ^ right.keys() not in (set(), {HEAD}):  # a tied output layer may be written out or not
        return False
    return all(_equal(left[name], right[name]) for name in left.keys() & right.keys())


def _equal(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal, bit by bit."""
    if (left.dtype, left.shape, left.end - left.begin) != (right.dtype, right.shape, right.end - right.begin):
        return False
    with left.file.open("rb") as one, right.file.open("rb") as two:
        one.seek(left.begin)
        two.seek(right.begin)
        rest = left.end - left.begin
        while rest:
            size = min(rest, COMPARED_AT_ONCE)
            if one.read(size) != two.read(size):
                return False
            rest -= size
    return True


def _header(file: Path) -> dict[str, Tensor]:
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        held = file.stat().st_size
        try:
            header: dict[str, Any] = json.loads(stream.read(size)) if 0 < size < held else {}
            header.pop("__metadata__", None)
            found = {
                name: Tensor(file, one["dtype"], one["shape"], *(8 + size + offset for offset in one["data_offsets"]))
                for name, one in header.items()
            }
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{file} is no safetensors file: {error}") from error
    if not found or max(tensor.end for tensor in found.values()) != held:
        raise ModelError(f"{file} is damaged: its header and its length of {held} bytes do not agree")
    return found


def _write(file: Path, name: str, source: Tensor) -> None:
    """A safetensors file with one tensor, byte for byte that of `source`."""
    length = source.end - source.begin
    header = json.dumps({name: {"dtype": source.dtype, "shape": source.shape, "data_offsets": [0, length]}}).encode()
    header += b" " * (-len(header) % 8)
    with source.file.open("rb") as read, file.open("wb") as write:
        write.write(len(header).to_bytes(8, "little") + header)
        read.seek(source.begin)
        write.write(read.read(length))
