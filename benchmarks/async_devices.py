"""Simulated devices: what a decoding step, a prefill and a trained token cost, and engines that decode in batches.

A decoding step of an engine advances all its running sequences by one token and takes

    base + context_s * (tokens of context of all running)      seconds:

weights are read once for all sequences, and the attention cache of each. Devices are H800s, as in AReaL (arXiv 2505.24298). The
constant part is what Qwen publishes of vLLM at a batch of one on an A100, 183 tokens/s for 1.5 B and 81 at 6,144 tokens for 7 B
(qwen.readthedocs.io, Speed Benchmark), with the reading of weights scaled to the H800's bandwidth. A trained token costs 8 FLOPs
per parameter (forward, backward, and a forward for the proximal log-probs) at the rates that AReaL publishes (figure 6a).
"""

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass, field
from math import sqrt

BANDWIDTH = 0.8 * 3.35e12  # bytes/s of an H800's memory, four fifths of the peak
PREFILL = 0.5 * 989e12  # FLOP/s, half of the dense bf16 peak
OVERHEAD_S = 0.003  # of a step, whatever it computes: scheduling, launching, sampling


@dataclass(frozen=True)
class Policy:
    """A model on these devices."""

    name: str
    parameters: float
    cache_bytes: int  # of attention cache per token, bf16
    slots: int  # sequences that an engine runs at a time
    train_flops: float  # per second and device

    @property
    def base_s(self) -> float:
        """The part of a decoding step that does not depend on what runs."""
        return OVERHEAD_S + 2 * self.parameters / BANDWIDTH

    @property
    def context_s(self) -> float:
        """The part of a decoding step per token of context."""
        return self.cache_bytes / BANDWIDTH

    @property
    def prefill_s(self) -> float:
        """Seconds per token of a prompt."""
        return 2 * self.parameters / PREFILL

    @property
    def train_s(self) -> float:
        """Seconds per trained token on one device."""
        return 8 * self.parameters / self.train_flops


SMALL = Policy("1.5B", 1.54e9, 2 * 28 * 2 * 128 * 2, slots=256, train_flops=427e12)
LARGE = Policy("7B", 7.62e9, 2 * 28 * 4 * 128 * 2, slots=96, train_flops=455e12)


@dataclass
class Work:
    """What devices did, in device-seconds. `useful_s` is what the same tokens cost in full batches."""

    busy_s: float = 0.0
    useful_s: float = 0.0
    tokens: float = 0.0
    again: float = 0.0  # tokens that were thrown away and are sampled again

    def less(self, other: "Work") -> "Work":
        return Work(
            self.busy_s - other.busy_s,
            self.useful_s - other.useful_s,
            self.tokens - other.tokens,
            self.again - other.again,
        )


@dataclass(order=True)
class _Sequence:
    ends: float  # at this many steps of its engine
    number: int
    context: int = field(compare=False)  # tokens when it began
    tokens: int = field(compare=False)
    prefill: int = field(compare=False)
    done: "asyncio.Future[frozenset[int]]" = field(compare=False)
    first: int = field(compare=False, default=0)  # the version of its first token


class Engine:
    """One device that samples. Sequences beyond its slots wait in order of arrival."""

    def __init__(self, policy: Policy, version: int, work: Work) -> None:
        self.policy, self.version, self._work = policy, version, work
        self.sessions = 0
        self._running: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self._held = False
        self._steps = 0.0
        self._context = 0.0  # of all running, in tokens
        self._now = self._free = asyncio.get_running_loop().time()  # decoding is computed until; it stands still until
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Event | None = None

    async def sample(self, tokens: int, *, context: int, prefill: int) -> frozenset[int]:
        """Sample so many tokens after a context of which `prefill` tokens are not cached; the versions they came from."""
        self._numbers += 1
        done: asyncio.Future[frozenset[int]] = asyncio.get_running_loop().create_future()
        sequence = _Sequence(0.0, self._numbers, context, tokens, prefill, done)
        self._catch_up()
        self._waiting.append(sequence)
        self._go_on()
        try:
            return await done
        except asyncio.CancelledError:
            self._catch_up()
            self._forget(sequence)
            self._go_on()
            raise

    def keep(self, version: int, pause_s: float) -> None:
        """Swap under running sequences: they stand still, their caches are computed again, and they go on."""
        self._catch_up()
        self._swap(version, pause_s)
        self._stand_still(self._context * self.policy.prefill_s)
        self._go_on()

    def abort(self, version: int, pause_s: float) -> None:
        """Swap, and sample from the beginning what was running."""
        self._catch_up()
        for sequence in self._running:
            self._work.again += sequence.tokens - (sequence.ends - self._steps)
            sequence.prefill = sequence.context
        self._waiting.extendleft(sorted(self._running, reverse=True))
        self._running, self._context = [], 0.0
        self._swap(version, pause_s)
        self._go_on()

    def look(self) -> None:
        """Bring the account of work up to now."""
        self._catch_up()

    async def wait(self, version: int, pause_s: float) -> None:
        """Swap when what runs has ended; what comes meanwhile waits."""
        self._catch_up()
        self._held = True
        if self._running:
            self._quiet = asyncio.Event()
            await self._quiet.wait()
        self._catch_up()
        self._held = False
        self._swap(version, pause_s)
        self._go_on()

    def _swap(self, version: int, pause_s: float) -> None:
        self.version = version
        self._free = max(self._free, self._now) + pause_s  # not work

    def _stand_still(self, seconds: float) -> None:
        self._free = max(self._free, self._now) + seconds
        self._work.busy_s += seconds

    def _catch_up(self) -> None:
        """Compute what was decoded up to now."""
        now = asyncio.get_running_loop().time()
        begun = max(self._now, min(self._free, now))
        self._now = now
        if self._running and now > begun:
            self._advance(self._in(now - begun), now - begun)

    def _advance(self, steps: float, seconds: float) -> None:
        running, policy = len(self._running), self.policy
        read = self._context * steps + running * steps * steps / 2  # tokens of context, over all steps
        self._work.busy_s += seconds
        self._work.useful_s += running * steps * policy.base_s / policy.slots + read * policy.context_s
        self._work.tokens += running * steps
        self._steps += steps
        self._context += running * steps

    def _in(self, seconds: float) -> float:
        """Steps in so many seconds: contexts grow by a token each step, so time is a square of steps."""
        square, linear = len(self._running) * self.policy.context_s / 2, self._step_s
        return 2 * seconds / (linear + sqrt(linear * linear + 4 * square * seconds))

    @property
    def _step_s(self) -> float:
        return self.policy.base_s + self._context * self.policy.context_s

    def _go_on(self) -> None:
        """Begin what fits, and wake up when the next sequence ends."""
        while self._waiting and len(self._running) < self.policy.slots and not self._held:
            sequence = self._waiting.popleft()
            sequence.first = self.version
            sequence.ends = self._steps + sequence.tokens
            prefill_s = sequence.prefill * self.policy.prefill_s
            self._work.useful_s += prefill_s
            self._stand_still(prefill_s)
            self._context += sequence.context
            heapq.heappush(self._running, sequence)
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._running:
            if self._quiet:
                self._quiet.set()
                self._quiet = None
            return
        steps = max(0.0, self._running[0].ends - self._steps)
        seconds = steps * self._step_s + len(self._running) * self.policy.context_s * steps * steps / 2
        self._timer = asyncio.get_running_loop().call_at(max(self._now, self._free) + seconds, self._ended)

    def _ended(self) -> None:
        self._catch_up()
        ends = self._running[0].ends
        self._steps = max(self._steps, ends)  # what rounding left
        while self._running and self._running[0].ends <= self._steps + 1e-6:
            sequence = heapq.heappop(self._running)
            self._context -= sequence.context + sequence.tokens
            if not sequence.done.done():
                sequence.done.set_result(frozenset(range(sequence.first, self.version + 1)))
        self._go_on()

    def _forget(self, sequence: _Sequence) -> None:
        """It was cancelled."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        elif any(one is sequence for one in self._running):
            done = sequence.tokens - (sequence.ends - self._steps)
            self._work.again += done
            self._context -= sequence.context + done
            self._running = [one for one in self._running if one is not sequence]
            heapq.heapify(self._running)
