"""Put a registered version into a running engine, and keep it only with a proof that it is there."""

import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tasks.serving import tokenizer
from tasks.serving.engine import Engine, Swap
from tasks.serving.errors import EngineError, ProbeError, Unchanged
from tasks.serving.gate import Gate
from tasks.serving.proof import SAME, Proof, Scored, differences, expected, prove, served
from tasks.serving.weights import same, tensors
from tasks.training.folder import PROBE
from tasks.training.probe_set import SHORTEST, Probe, affordable, cut, read

HELD_S = 600.0  # the most a gateway holds calls back for; reload and proof have shorter deadlines of their own


def deploy(
    engine: Engine, folder: Path, version: int, gate: Gate, *, swap: Swap = "keep", parent: Path | None = None
) -> Proof:
    """Reload the weights in `folder` as `version` and compare what is served with what the trainer computed.

    Calls that are generating are treated as `swap` says. The gateway begins no call from before the swap until after the
    proof. Until that says yes the engine's label says that the weights are not proven, also where this process dies. Where it
    says no, or cannot be had, the label says that nobody knows what is served, and nothing may be sampled for training until
    a version is deployed with success. `parent` is the folder that training began with.

    Before anything is touched: ModelError for damaged weights or another tokenizer than the engine's, Unchanged where the
    weights are the parent's, ProbeError for an empty probe set. EngineError when the engine did not do as told.
    """
    shared = tokenizer.check(engine, folder)
    probes = probe(folder, engine.context())
    refuse_unchanged(folder, parent, probes)
    before = served(engine, probes)
    with gate.held(engine.url, HELD_S):
        held = time.monotonic()
        swap_s = engine.reload(folder, version, swap=swap)
        proven = False
        try:
            proof = prove(served(engine, probes), Scored.trained(probes), before, version=version)
            if proof.passed:
                engine.label(version)
                gate.proven(engine.url, version)
                proven = True
        finally:
            if not proven:
                with suppress(EngineError):  # its label does not say that they are proven, in any case
                    engine.distrust()
        measured = {"swap": swap, "swap_s": round(swap_s, 4), "held_s": round(time.monotonic() - held, 4)}
    return proof.model_copy(update={**measured, "tokenizer": shared})


def probe(folder: Path, context: int) -> list[Probe]:
    """The probe set the trainer left beside the weights, else one made up and scored now; cut to what the engine takes.

    ProbeError where the trainer's is empty.
    """
    found = read(folder / PROBE)
    if found is None:
        found = expected(folder, made_up(folder, context))
    fitting = [cut(one, context - 1) for one in found if len(one.token_ids) > 1]  # one token is for the answer
    if not fitting:
        raise ProbeError(
            f"{folder / PROBE} holds no sequence to score, so nothing could be proven: remove the file, and a probe set is made"
        )
    return fitting


def made_up(folder: Path, context: int) -> list[list[int]]:
    """Sequences of several lengths with token ids drawn at random, the same ones each time."""
    config = json.loads((folder / "config.json").read_text())
    bytes_held = sum(one.end - one.begin for one in tensors(folder).values())
    room = min(context, config.get("max_position_embeddings") or context) - 1
    longest = affordable(bytes_held // 4, room, accelerated=False)
    draw = random.Random(0)  # noqa: S311 - a fixed probe, not a secret
    lengths = sorted({min(SHORTEST, longest), min(4 * SHORTEST, longest), longest})
    return [[draw.randrange(int(config["vocab_size"])) for _ in range(length)] for length in lengths]


def refuse_unchanged(folder: Path, parent: Path | None, probes: Sequence[Probe]) -> None:
    """Unchanged where the weights are those that training began with: a LoRA that bound nothing, a merge that was lost.

    The trainer's log-probs before and after tell most versions apart; only where they do not are the weights compared.
    """
    if parent is None or not parent.is_dir():
        return
    if all(one.previous_logprobs for one in probes):
        moved = differences([one.logprobs for one in probes], [one.previous_logprobs or [] for one in probes])
        if sum(moved) / len(moved) > SAME:
            return
    if same(folder, parent):
        raise Unchanged(
            f"the weights in {folder} are those of the version it was trained from ({parent}), under a new number: nothing was "
            "learned, such as with an adapter that bound no module, a merge that was lost, or a learning rate of 0. What was "
            "served goes on"
        )
