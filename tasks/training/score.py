"""Log-probs of given tokens under a model folder: `python -m tasks.training.score --model DIR --probe FILE --out FILE`.

The probe is a JSON list of token-id lists; the result is a probe set (`probe_set.Probe`) over them.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from tasks.training.probe_set import TEMPERATURE, Heated, Probe, spread, write


def score(folder: Path, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """Log-probs of `ids[1:]` for each sequence, at temperature 1, computed in float32."""
    return [probe.logprobs for probe in scored(folder, sequences)]


def scored(folder: Path, sequences: Sequence[Sequence[int]]) -> list[Probe]:
    """The same at both temperatures. ValueError where the weights give no numbers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(mode=False)
    try:
        with torch.inference_mode():
            return [_scored(model, list(sequence)) for sequence in sequences]
    except ValidationError as error:
        raise ValueError(
            f"the weights in {folder} give log-probs that are no numbers: they are damaged, so train them again"
        ) from error


def _scored(model: Any, token_ids: list[int]) -> Probe:
    ids = torch.tensor([token_ids])
    logits = model(input_ids=ids).logits[0]
    places = spread(range(len(token_ids)))
    best, tokens = (logits[places] / TEMPERATURE).log_softmax(-1).max(-1)
    heated = zip(places, tokens.tolist(), best.tolist(), strict=True)
    return Probe(
        token_ids=token_ids,
        logprobs=logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist(),
        heated=[Heated(place=place, token=token, logprob=value) for place, token, value in heated],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "probe", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    write(arguments.out, scored(arguments.model, json.loads(arguments.probe.read_text())))


if __name__ == "__main__":
    main()
