"""Canary: the Prefect tasks that set one up, look at it, and tell how it ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.evaluation.production import fates, rewards
from lakehouse.evaluation.sequential import Comparison, compare
from lakehouse.governance import audit
from lakehouse.governance.erase import refuse_tainted
from lakehouse.home import home
from lakehouse.locks import locked
from tasks.acting import actor
from tasks.events import tell
from tasks.registry import moves
from tasks.registry.versions import Registry
from tasks.retrying import infrastructure, passes
from tasks.serving.canary import LOCK, Decision
from tasks.serving.gate import Gate
from tasks.showing import show
from tasks.stack.settings import Settings

Found = TypeVar("Found")
PATIENCE_S = 180.0  # for a server that is away in the middle of a canary
PAUSE_S = 5.0
LOCKED_S = 5.0


class CanaryImpossible(ValueError):
    """There is nothing to compare, or no engine to compare it on; the message says what to do."""


class CanaryRunning(RuntimeError):
    """Another process runs a canary, or has an exam of the gate sat, in this home."""


def alone() -> AbstractContextManager[None]:
    """Be the only canary, or exam of the gate, of this home while the block runs. CanaryRunning where there is another.

    So what else is split then was left by one that died, and a canary that has to be rolled back waits for no exam.
    """
    lock = home().root / LOCK

    def busy(holder: str) -> CanaryRunning:
        return CanaryRunning(
            f"process {holder} runs a canary here already, or has an exam of the gate sat ({lock}): wait for its end, or end it"
        )

    return locked(lock, deadline_s=LOCKED_S, busy=busy)


@dataclass(frozen=True)
class Setting:
    """Who is compared with whom, and where the challenger is served."""

    champion: int
    challenger: int
    engines: list[str]  # that serve the challenger meanwhile


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def survey(version: int, engines: Sequence[str] | None) -> Setting:
    """What a canary of this version would be. CanaryImpossible, Tainted or RegistryError where there can be none."""
    settings = Settings()
    name, registry = settings.model_name, Registry(settings.mlflow_url)
    refuse_tainted(None, name, version)
    registry.intact(name, version)
    champion = registry.promoted(name)
    if champion is None:
        raise CanaryImpossible(
            f"nothing of {name} is promoted, so there is nothing to compare with: release a version first"
        )
    if champion == version:
        raise CanaryImpossible(f"{name} version {version} is the champion: give another version")
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        labels, split = gate.labels(), gate.split()
    if split is not None:  # nobody is at work but we: see `alone`
        print(
            f"sessions are split between versions {split['champion']} and {split['challenger']}, and no canary is at work "
            "that would end it (one was killed, or somebody set the split): this one begins anew"
        )
    return Setting(champion, version, chosen(settings.engine, labels, engines, champion))


def chosen(own: str, labels: dict[str, str | None], wanted: Sequence[str] | None, champion: int) -> list[str]:
    """The engines that will serve the challenger: those that are wanted, else the last that is not the stack's own.

    CanaryImpossible where those that are left, one at least, do not all serve the champion: what another version was put
    onto, by a canary that was killed, would go on serving it once this one has ended.
    """
    if len(labels) < 2:
        raise CanaryImpossible(
            f"a canary needs two engines behind the gateway, one for each version, and there is {len(labels)}: start another "
            'engine of the same model and `POST /engines/add {"url": ...}` (docs/serving.md has the commands)'
        )
    engines = [url.rstrip("/") for url in wanted] if wanted else [url for url in labels if url != own][-1:]
    unknown = [url for url in engines if url not in labels]
    if unknown:
        raise CanaryImpossible(f"the gateway has no engine {', '.join(unknown)}: it has {', '.join(labels)}")
    if own in engines:
        raise CanaryImpossible(f"{own} is the stack's own engine, which serves the champion: give others")
    left = [url for url in labels if url not in engines]
    others = [url for url in left if labels[url] != str(champion)]
    if others:
        serving = ", ".join(f"{url} serves {labels[url]!r}" for url in others)
        raise CanaryImpossible(
            f"the engines that are left do not serve the champion, version {champion}: {serving}. Run `lakeloop reconcile`"
        )
    return engines


@dataclass(frozen=True)
class Live:
    """A canary at work, as `tasks.serving.canary.Parts` needs it; plain calls, which the flow puts into threads."""

    setting: Setting
    since: datetime
    bounds: tuple[float, float]
    confidence: float

    def part(self, share: float, for_s: float) -> None:
        with _gate() as gate:
            gate.part(self.setting.champion, self.setting.challenger, share, for_s)

    def open_sessions(self, which: Literal["champion", "challenger"]) -> int:
        with _gate() as gate:
            return gate.sessions(self.setting.champion if which == "champion" else self.setting.challenger)

    def compare(self) -> Comparison:
        both = (self.setting.champion, self.setting.challenger)
        found = rewards(None, Settings().model_name, both, self.since)
        return compare(found[both[0]], found[both[1]], bounds=self.bounds, confidence=self.confidence)

    def lost(self) -> str | None:
        with _gate() as gate:
            states = {url: state for url, state in gate.states().items() if url in self.setting.engines}
        served = [
            state for state in states.values() if state.version == str(self.setting.challenger) and state.takes_calls
        ]
        if served:
            return None
        return (
            "; ".join(f"{url}: {state.reason or state.version}" for url, state in states.items())
            or "its engine was removed"
        )


class GatewayAway(ConnectionError):
    """The gateway does not answer: it may be back in a moment."""


@contextmanager
def _gate() -> Iterator[Gate]:
    settings = Settings()
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        if not gate.engines():
            raise GatewayAway(f"the gateway at {settings.gateway_url} does not answer: `lakeloop up` starts it")
        yield gate


async def patiently(act: Callable[..., Awaitable[Found]], *given: Any, wait_s: float = PATIENCE_S) -> Found:
    """What `act` gives; tried again for `wait_s` seconds while it fails for a reason that may pass."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return await act(*given)
        except Exception as error:  # what passes is told apart in one place
            if not passes(error) or time.monotonic() + PAUSE_S > deadline:
                raise
            print(f"{type(error).__name__}: {error}; tried again in {PAUSE_S:.0f} s")
        await asyncio.sleep(PAUSE_S)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def stays(setting: Setting) -> int:
    """The version that serves everywhere where the challenger is not promoted: the champion of now.

    Somebody may have moved the alias meanwhile; and a canary that fails after its own move has promoted.
    """
    settings = Settings()
    return Registry(settings.mlflow_url).promoted(settings.model_name) or setting.champion


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def stop_splitting() -> None:
    """New sessions go to any engine again."""
    with _gate() as gate:
        gate.unsplit()


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def withdraw(setting: Setting, why: str, evidence: dict[str, Any]) -> None:
    """The alias `challenger` points at nothing any more, if it points at this canary's."""
    settings = Settings()
    registry, name = Registry(settings.mlflow_url), settings.model_name
    if registry.promoted(name, moves.CHALLENGER) == setting.challenger:
        moves.move(registry, name, moves.CHALLENGER, None, who=actor(), why=why, evidence=evidence)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def report(setting: Setting, decision: Decision, cut: int, since: datetime) -> None:
    """How a canary ended, in Prefect, at the version in MLflow and in the audit. `cut`: sessions that had not ended."""
    settings = Settings()
    name = settings.model_name
    Registry(settings.mlflow_url).tag(
        name, setting.challenger, "canary", f"{decision.action}: {decision.reason}"[:4900]
    )
    ended = fates(None, name, (setting.champion, setting.challenger), since)
    told = {**evidence(decision), "fates": ended, "cut": cut, "against": setting.champion}
    audit.note(None, "canary", f"{name}@{setting.challenger}", told, actor=actor())
    show(create_markdown_artifact, key="canary", markdown=page(name, setting, decision, ended, cut))
    tell(
        "canary.ended",
        f"version.{name}.{setting.challenger}",
        {"version": setting.challenger, "reason": decision.reason},
        action=decision.action,
    )


def evidence(decision: Decision) -> dict[str, Any]:
    """What the decision rests on."""
    return {
        "action": decision.action,
        "reason": decision.reason,
        "comparison": asdict(decision.comparison) if decision.comparison else None,
    }


DONE = {
    "promote": "The challenger is the champion now.",
    "roll_back": "The champion stays, and serves everywhere again.",
    "ask": "Nothing is moved; the champion serves everywhere again. A person decides: in MLflow, move the alias `champion` to "
    "this version, or delete the alias `challenger`.",
}


def page(name: str, setting: Setting, decision: Decision, ended: dict[int, dict[str, int]], cut: int) -> str:
    """What a person reads in a minute, as Markdown."""
    found = decision.comparison
    lines = [
        f"# Canary of {name} version {setting.challenger} against {setting.champion}: {decision.action.replace('_', ' ')}",
        "",
        f"{decision.reason}. {DONE[decision.action]}",
        "",
        "| version | sessions with a reward | mean reward | sessions by ending |",
        "|---|---|---|---|",
    ]
    if found is not None:
        for version, sessions, mean in (
            (setting.champion, found.champion_sessions, found.champion_mean),
            (setting.challenger, found.challenger_sessions, found.challenger_mean),
        ):
            fates_of = ", ".join(f"{count} {status}" for status, count in ended[version].items())
            lines.append(f"| {version} | {sessions} | {'' if mean is None else f'{mean:.4g}'} | {fates_of} |")
    if cut:
        lines += ["", f"{cut} sessions of the version that went had not ended in time; their next call is a 503."]
    return "\n".join(lines)
