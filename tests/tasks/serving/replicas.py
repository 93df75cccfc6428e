"""Scripted engines with vLLM's control routes: weights are one number, which every token has as its log-prob."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from sandboxes.gateway.scripted.engine import Scripted
from tasks.serving.tokenizer import SAMPLE
from tasks.training.folder import PROBE
from tasks.training.probe_set import Heated, Probe, write


def made(folder: Path, value: float) -> Path:
    """A version's folder, probe set included, as a trainer leaves it. `value`: the log-prob of every token."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"lm_head.weight": np.full((1, 1), value, np.float32)}, folder / "model.safetensors")
    Tokenizer(WordLevel({"?": 0}, unk_token="?")).save(str(folder / "tokenizer.json"))
    heated = [Heated(place=0, token=7, logprob=value)]
    write(folder / PROBE, [Probe(token_ids=[5, 6, 7], logprobs=[value, value], heated=heated)])
    return folder


class Replica(Scripted):
    """Routes in `broken` answer 500."""

    def __init__(self, folder: Path, value: float, replies: Sequence[str] = ("hello",), **more):
        super().__init__(replies, **more)
        self.folder, self.value = folder, value
        self.broken: set[str] = set()
        self.breaks_once_swapped: set[str] = set()
        self.breaks_once_labelled: set[str] = set()
        self.loaded: list[float] = []
        self.overflow: float | None = None  # this value gives NaN here, though not where it was trained
        self.unmoved = False  # a swap answers OK and changes nothing
        self.holds: asyncio.Event | None = None  # scores wait for it once weights were swapped

    def app(self):
        made = super().app()
        ours = {
            "/pause": self.done, "/resume": self.done, "/reset_prefix_cache": self.done, "/collective_rpc": self.swap,
            "/update_weight_version": self.relabel, "/tokenize": self.ids, "/inference/v1/generate": self.sampled,
        }  # fmt: skip
        made.router.routes[:0] = [
            Route(path, self._unless_broken(path, do), methods=["POST"]) for path, do in ours.items()
        ]
        made.router.routes.insert(0, Route("/v1/models", self.told))
        return made

    def _unless_broken(self, path, do):
        async def handle(request: Request) -> Response:
            return JSONResponse({"error": "it broke"}, 500) if path in self.broken else await do(request)

        return handle

    async def done(self, _: Request) -> Response:
        return JSONResponse({"success": True})

    async def told(self, _: Request) -> Response:
        one = {"id": self.model, "root": str(self.folder), "max_model_len": self.max_model_len}
        return JSONResponse({"object": "list", "data": [one]})

    async def swap(self, request: Request) -> Response:
        asked = (await request.json())["kwargs"]["weights_path"]
        value = float(load_file(Path(asked) / "model.safetensors")["lm_head.weight"][0, 0])
        self.loaded.append(value)
        self.value = self.value if self.unmoved else value
        self.broken |= self.breaks_once_swapped
        return JSONResponse({})

    async def relabel(self, request: Request) -> Response:
        self.weight_version = (await request.json())["new_version"]
        self.broken |= self.breaks_once_labelled
        return JSONResponse({})

    async def ids(self, request: Request) -> Response:
        sample = (await request.json()).get("prompt") == SAMPLE
        return JSONResponse({"tokens": [0]}) if sample else await self.tokenize(request)

    async def sampled(self, request: Request) -> Response:
        body = await request.json()
        if "model" in body or not body:  # the gateway's
            return await self.generate(request)
        if self.loaded and self.holds:
            await self.holds.wait()
        value = float("nan") if self.value == self.overflow else self.value
        scores = [None, *({str(one): {"logprob": value}} for one in body["token_ids"][1:])]
        entry = {"top_logprobs": [{"token_id": 7, "logprob": value}]}
        answer = {"prompt_logprobs": scores, "choices": [{"logprobs": {"content": [entry]}}]}
        return Response(json.dumps(answer), media_type="application/json")
