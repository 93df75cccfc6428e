"""Control of a running engine over HTTP: health, weight version, hot reload, log-probs of given tokens."""

import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from lakehouse.home import home
from sandboxes.gateway.engines.labels import claimed, unproven
from tasks.serving.errors import EngineError
from tasks.serving.watchdog import watched
from tasks.serving.weights import servable

BASE_VERSION = 0  # the label of weights that were never registered: what the engine started with
UNKNOWN_VERSION = -1  # a reload failed half-way: nobody can say which weights are served
SCORE_S = 120.0  # for one request of a proof: an engine that is busy with calls takes its time
_BASE_LABEL = "default"  # vLLM's own label until somebody sets one
NO_LOGPROB = -9999.0
TOLD = 20  # tokens that an engine tells the log-probs of at one place: vLLM's limit unless it is started with another

# What becomes of requests in flight while weights are swapped (vLLM's pause modes): they are frozen and go on with the new
# weights; they end with the old ones first; they are ended at once, to be asked again.
Swap = Literal["keep", "wait", "abort"]


class Engine:
    """One vLLM engine. Every call is bounded in time and its status is checked."""

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        # No connection is kept: after an error of its own the engine closes it without telling.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False, limits=limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def health(self) -> bool:
        """Whether the engine answers and its workers live."""
        try:
            return self._client.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def wait_ready(self, deadline_s: float) -> None:
        """Return once the engine is healthy; EngineError after `deadline_s` seconds."""
        deadline = time.monotonic() + deadline_s
        while not self.health():
            if time.monotonic() > deadline:
                raise EngineError(f"the engine at {self.url} was not healthy within {deadline_s:.0f} s")
            time.sleep(0.25)

    def models(self) -> list[str]:
        """The names under which it serves."""
        return [str(model["id"]) for model in self._call("GET", "/v1/models")["data"]]

    def folder(self) -> Path:
        """The model folder it was started with."""
        return Path(self._call("GET", "/v1/models")["data"][0]["root"])

    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return int(self._call("GET", "/v1/models")["data"][0]["max_model_len"])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, without what a tokenizer puts before a prompt."""
        body = {"model": self.models()[0], "prompt": text, "add_special_tokens": False}
        tokens: list[int] = self._call("POST", "/tokenize", json=body)["tokens"]
        return tokens

    def served_version(self, *, proven: bool = True) -> int:
        """The registry version of the weights now served, or BASE_VERSION, or UNKNOWN_VERSION.

        Weights whose proof is under way, or never ended, are unknown; without `proven` they are what they were swapped in as.
        """
        label = str(self._call("GET", "/weight_info")["weight_version"])
        if label == _BASE_LABEL:
            return BASE_VERSION
        if not proven:
            label = claimed(label) or label
        try:
            return int(label)
        except ValueError:
            return UNKNOWN_VERSION  # labelled by somebody else

    def reload(
        self, weights_path: Path | str, version: int, *, swap: Swap = "keep", deadline_s: float = 120.0
    ) -> float:
        """Swap the weights under running requests; returns the seconds generation stood still.

        They are labelled as `version` that is not proven: who proves it says so with `label`.

        With `keep` requests in flight are frozen and go on with the new weights; their attention caches are computed again,
        because what the old weights left in the cache is not what the new ones would have put there. With `wait` they end
        first, which may take up to `deadline_s` seconds; with `abort` they end at once, unfinished. Damaged weights are
        refused beforehand (ModelError). When the swap itself fails the label becomes UNKNOWN_VERSION and EngineError is
        raised. Generation is resumed in every case, by another process where this one is killed.
        """
        cache = home().cache  # not the system's temporary folder: the engine may see the home folder only
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="reload-", dir=cache) as scratch:
            folder = servable(Path(weights_path).resolve(), Path(scratch) / "view")
            with watched(self.url, 4 * deadline_s) as runs_again:
                began = time.monotonic()
                try:
                    self._call("POST", "/pause", params={"mode": swap}, timeout=deadline_s)
                    if swap == "wait":  # it generated until now
                        began = time.monotonic()
                    self._swap(folder, version, deadline_s)
                finally:
                    self._resume()
                    runs_again()
                return time.monotonic() - began

    def _swap(self, folder: Path, version: int, deadline_s: float) -> None:
        load = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}, "timeout": deadline_s}
        try:
            self._call("POST", "/collective_rpc", json=load, timeout=deadline_s + 5)
            self._label(unproven(version))
            # Without `reset_running_requests` this is refused while any request is in flight.
            everything = {"reset_running_requests": "true"}
            answer = self._call("POST", "/reset_prefix_cache", params=everything, timeout=deadline_s)
            if not answer.get("success"):
                raise EngineError(f"{self.url} kept caches of the old weights (/reset_prefix_cache: {answer})")
        except EngineError:
            with suppress(EngineError):  # the first failure is the one to report
                self.distrust()
            raise

    def label(self, version: int) -> None:
        """Say which version the served weights are: they were proven to be that one's."""
        self._label(str(version))

    def _label(self, label: str) -> None:
        self._call("POST", "/update_weight_version", json={"new_version": label})

    def distrust(self) -> None:
        """Say that nobody knows which weights are served, so that nothing sampled from them is trained on."""
        self.label(UNKNOWN_VERSION)

    def _resume(self) -> None:
        """A paused engine looks alive and answers nothing, so this is tried more than once."""
        for attempt in range(3):
            try:
                self._call("POST", "/resume")
                return
            except EngineError:
                if attempt == 2:
                    raise
                time.sleep(1.0)

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs in nats of `token_ids[1:]`, each given the tokens before it: `len(token_ids) - 1` values.

        NaN where the engine gives none, as under damaged weights.
        """
        if len(token_ids) < 2:
            raise ValueError("a sequence needs at least two tokens to be scored")
        sampling = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        body = {"token_ids": list(token_ids), "sampling_params": sampling}
        answer = self._call("POST", "/inference/v1/generate", json=body, timeout=SCORE_S)
        entries = answer["prompt_logprobs"][1:]
        return [_nats(entry[str(token)]["logprob"]) for token, entry in zip(token_ids[1:], entries, strict=True)]

    def likely(self, token_ids: Sequence[int], temperature: float) -> dict[int, float]:
        """The TOLD likeliest next tokens at a temperature with their log-probs in nats: as sampling sees them, caches and all."""
        sampling = {"max_tokens": 1, "temperature": temperature, "logprobs": TOLD}
        body = {"token_ids": list(token_ids), "sampling_params": sampling}
        answer = self._call("POST", "/inference/v1/generate", json=body, timeout=SCORE_S)
        [entry] = answer["choices"][0]["logprobs"]["content"]
        return {one["token_id"]: _nats(one["logprob"]) for one in entry["top_logprobs"]}

    def _call(self, method: str, path: str, **how: Any) -> Any:
        try:
            answer = self._client.request(method, path, **how)
        except httpx.TimeoutException as error:
            raise EngineError(f"{method} {self.url}{path} did not answer in time") from error
        except httpx.ConnectError as error:
            raise EngineError(
                f"no engine answers at {self.url} ({error}): where `lakeloop up` started it, logs/engine.log in the home folder "
                "says why, and `lakeloop up` starts it again"
            ) from error
        except httpx.HTTPError as error:
            raise EngineError(f"{method} {self.url}{path} failed: {error}") from error
        if answer.status_code == 404 and "detail" in answer.text:
            raise EngineError(
                f"{self.url} has no route {path}: start the engine with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"
            )
        if answer.status_code != 200:
            raise EngineError(f"{method} {self.url}{path} gave {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else {}


def _nats(told: float | None) -> float:
    """A log-prob as the engine tells it; NaN for what it puts in place of one that is NaN or minus infinity."""
    return math.nan if told is None or told <= NO_LOGPROB else told
