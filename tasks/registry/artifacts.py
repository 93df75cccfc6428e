"""A version's files among MLflow's artifacts, laid out as `mlflow.transformers.load_model` reads them.

    model/weights.json            where the weights are from, with their digest
    model/model/                  a Hugging Face folder: config, tokenizer, weights
    model/components/tokenizer/   all of it but the weights once more, where MLflow looks for the tokenizer
    model/README.md               the model card
    model/MLmodel                 MLflow's own description; written last, so that nothing half there can be loaded

Where the server keeps artifacts in a folder of this machine, the files are hard links into the trainer's folder, so weights
are on the disk once. Elsewhere they are uploaded.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient

from tasks.training.folder import DONE

MODEL = "model"  # folder among a run's artifacts
MANIFEST = f"{MODEL}/weights.json"
CARD = f"{MODEL}/README.md"
WEIGHTS = f"{MODEL}/model"
TOKENIZER = f"{MODEL}/components/tokenizer"
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names, and torch's

_FICLONE = 0x40049409  # ioctl: the copy shares its blocks with the original (btrfs, XFS)


def publish(client: MlflowClient, run_id: str, folder: Path, manifest: Mapping[str, Any], store: Path | None) -> None:
    """Put the model folder among a run's artifacts. `store`: where the server may keep them on this machine."""
    client.log_dict(run_id, dict(manifest), MANIFEST)
    place = _local(client, run_id, manifest, store)
    for file, target in _files(folder):
        if place is None or not _linked(file.resolve(), place / target / file.name):
            client.log_artifact(run_id, str(file), target)
    client.log_dict(run_id, _described(folder, run_id, str(manifest["weight_digest"])), f"{MODEL}/MLmodel")


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file with the artifact folder it belongs to."""
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.name == DONE:
            continue
        yield file, WEIGHTS
        if file.suffix != ".safetensors" and not file.name.endswith(".index.json"):
            yield file, TOKENIZER


def _local(client: MlflowClient, run_id: str, manifest: Mapping[str, Any], store: Path | None) -> Path | None:
    """The run's artifact folder, if the manifest that the server was just sent lies there; None where it does not.

    A server that was adopted may keep its artifacts anywhere: only what is found is believed.
    """
    uri = urlsplit(client.get_run(run_id).info.artifact_uri)
    if uri.scheme == "mlflow-artifacts":
        place = store / unquote(uri.path).strip("/") if store is not None else None
    else:
        place = Path(unquote(uri.path)) if uri.scheme in ("", "file") else None
    with suppress(OSError, ValueError):
        if place is not None and json.loads((place / MANIFEST).read_text()) == manifest:
            return place
    return None


def _linked(file: Path, target: Path) -> bool:
    """Make `target` the same file, else a copy that shares its blocks. False where this disk can do neither."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # of an attempt that was cut off
    with suppress(OSError):
        os.link(file, target)
        return True
    try:
        with file.open("rb") as source, target.open("wb") as copy:
            fcntl.ioctl(copy, _FICLONE, source.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True


def _described(folder: Path, run_id: str, digest: str) -> dict[str, Any]:
    """MLflow's own description of a model, with its signature: token ids in, logits over the vocabulary out.

    JSON, which is YAML. Made by hand: MLflow's `log_model` loads the weights, and copies them twice.
    """
    config = folder / "config.json"
    vocabulary = json.loads(config.read_text()).get("vocab_size", -1) if config.exists() else -1
    return {
        "artifact_path": MODEL,
        "run_id": run_id,
        "flavors": {
            "transformers": {
                "task": "text-generation",
                "instance_type": "TextGenerationPipeline",
                "pipeline_model_type": "AutoModelForCausalLM",
                "model_binary": "model",
                "source_model_name": folder.name,
                # What the weights are. The config is the base model's and may say what that one was.
                **({"torch_dtype": f"torch.{dtype}"} if (dtype := _dtype(folder)) else {}),
                "components": ["tokenizer"],
                "tokenizer_type": "AutoTokenizer",
                "code": None,
            },
            "lakeloop": {"weights_path": str(folder), "weight_digest": digest},
        },
        "signature": {
            "inputs": _tensor("input_ids", "int64", [-1, -1]),
            "outputs": _tensor("logits", "float32", [-1, -1, vocabulary]),
            "params": None,
        },
    }


def _dtype(folder: Path) -> str | None:
    """The number format of the weights, from the header of their first file; None for one that torch has no name for."""
    with min(folder.glob("*.safetensors")).open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    held = [tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"]
    return DTYPES.get(max(held, key=held.count)) if held else None


def _tensor(name: str, dtype: str, shape: list[int]) -> str:
    return json.dumps([{"type": "tensor", "tensor-spec": {"dtype": dtype, "shape": shape}, "name": name}])
