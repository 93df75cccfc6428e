"""Log-probs of given tokens under a model folder: `python -m tasks.training.score --model DIR --probe FILE --out FILE`.

The probe is a JSON list of token-id lists; the result has for each the log-probs of all tokens but the first, in nats.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def score(folder: Path, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """Log-probs of `ids[1:]` for each sequence, at temperature 1, computed in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(mode=False)
    scores = []
    with torch.inference_mode():
        for sequence in sequences:
            ids = torch.tensor([list(sequence)])
            logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            scores.append(logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist())
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "probe", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.write_text(json.dumps(score(arguments.model, json.loads(arguments.probe.read_text()))))


if __name__ == "__main__":
    main()
