"""A GGUF file to a Hugging Face folder in float32: `python -m tasks.training.model.convert --gguf FILE --out DIR`."""

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

TEMPLATE = Path(__file__).with_name("chat_tools.jinja")


def convert(gguf: Path, out: Path) -> None:
    """Write config, float32 weights and tokenizer of `gguf` to `out`; the folder appears when it is complete."""
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # `save_pretrained` refuses a model whose config says "quantized", though its weights no longer are.
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    model.load_state_dict(quantised.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = config.max_position_embeddings
    # The template inside the file knows no tools; this one shows them and renders calls as the engine parses them.
    tokenizer.chat_template = TEMPLATE.read_text()
    draft = out.with_name(out.name + ".part")
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    shutil.rmtree(out, ignore_errors=True)
    draft.rename(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    convert(arguments.gguf.resolve(), arguments.out.resolve())


if __name__ == "__main__":
    main()
