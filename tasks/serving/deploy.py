"""Put a registered version into a running engine, and keep it only with a proof that it is there."""

import json
import random
from pathlib import Path

from tasks.serving.engine import Engine
from tasks.serving.gate import Gate
from tasks.serving.proof import Proof, Scores, expected, prove, served
from tasks.training.folder import PROBE

Sequences = list[list[int]]

HELD_S = 600.0  # the most a gateway holds calls back for; reload and proof have shorter deadlines of their own
MADE_UP = 4  # sequences, where the trainer left none
MADE_UP_TOKENS = 64


def deploy(engine: Engine, folder: Path, version: int, gate: Gate) -> Proof:
    """Reload the weights in `folder` as `version` and compare what is served with what the trainer computed.

    Calls that are generating go on, from one token to the next with the new weights. The gateway begins no call from
    before the swap until after the proof. The proof may say no: then the engine's version label says that nobody knows what
    it serves, and nothing may be sampled for training until a version is deployed with success. EngineError when the
    engine did not do as told.
    """
    sequences, trained = probe(folder)
    before = served(engine, sequences)
    with gate.held(engine.url, HELD_S):
        engine.reload(folder, version)
        proof = prove(served(engine, sequences), trained, before, version=version)
        if proof.passed:
            gate.proven(engine.url, version)
        else:
            engine.distrust()
    return proof


def probe(folder: Path) -> tuple[Sequences, Scores]:
    """The probe the trainer left beside the weights, else a made-up one, scored now: token ids and expected log-probs."""
    left = folder / PROBE
    if left.is_file():
        entries = json.loads(left.read_text())
        return [entry["token_ids"] for entry in entries], [entry["logprobs"] for entry in entries]
    vocabulary = int(json.loads((folder / "config.json").read_text())["vocab_size"])
    draw = random.Random(0)  # noqa: S311 - a fixed probe, not a secret
    sequences = [[draw.randrange(vocabulary) for _ in range(MADE_UP_TOKENS)] for _ in range(MADE_UP)]
    return sequences, expected(folder, sequences)
