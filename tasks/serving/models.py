"""From a model's name to a local folder that can be trained and served: config, weights, tokenizer, chat template."""

import json
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from lakehouse.home import Home
from tasks.serving.errors import ModelError
from tasks.serving.smollm2 import smollm2

TINY = Path(__file__).resolve().parents[1] / "training" / "tiny" / "weights"


def resolve(model: str, home: Home) -> Path:
    """The folder of "tiny", "smollm2", a folder, or a Hugging Face name such as "Qwen/Qwen2.5-0.5B-Instruct"."""
    if model == "tiny":
        return check(TINY)
    if model == "smollm2":
        return check(smollm2(home))
    if Path(model).exists():
        return check(Path(model).resolve())
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        return check(_from_hub(model, home))
    raise ModelError(f"no model {model!r}: give tiny, smollm2, a folder that exists, or a hub name such as ORG/NAME")


def local(model: str, home: Home) -> Path | None:
    """The folder that `resolve` gives, where it is on this machine already."""
    if model == "tiny":
        return TINY
    folder = Path(model) if Path(model).is_dir() else home.models / model.replace("/", "--")
    return folder if folder.is_dir() else None


def check(folder: Path) -> Path:
    """`folder`, if it holds all that training and serving need; else ModelError naming everything that is missing."""
    missing = []
    if not (folder / "config.json").is_file():
        missing.append("config.json")
    if not any(folder.glob("*.safetensors")):
        missing.append("weights (*.safetensors)")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        missing.append("a tokenizer (tokenizer.json)")
    if not _has_template(folder):
        missing.append("a chat template (chat_template.jinja, or chat_template in tokenizer_config.json)")
    if missing:
        raise ModelError(
            f"the model folder {folder} lacks {', '.join(missing)}. Save model and tokenizer into one folder with "
            "save_pretrained; the tokenizer must have a chat template."
        )
    return folder


def _from_hub(name: str, home: Home) -> Path:
    folder = home.models / name.replace("/", "--")
    if (folder / "config.json").is_file():
        return folder
    draft = folder.with_name(folder.name + ".part")  # the hub's client goes on where a broken download stopped
    try:
        snapshot_download(
            name, local_dir=draft, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(f"could not fetch {name} from the model hub: {error}. Give a local folder instead.") from error
    draft.rename(folder)
    return folder


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template"))
    except (FileNotFoundError, ValueError):
        return False
