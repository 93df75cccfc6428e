"""Gate: the Prefect tasks that find an exam, measure a candidate, decide, and tell what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.evaluation import exam as exams
from lakehouse.evaluation.decide import Decision, Verdict, decide, write_down
from lakehouse.evaluation.exam import Exam, Sat
from lakehouse.evaluation.measure import Values, measure
from lakehouse.evaluation.metrics import TOTAL
from lakehouse.evaluation.policy import Policy
from lakehouse.governance import audit
from tasks import events
from tasks.acting import actor
from tasks.registry import gates
from tasks.registry.versions import CHAMPION, Registry
from tasks.retrying import infrastructure
from tasks.serving.canary import LEASE_S
from tasks.serving.engine import Engine
from tasks.serving.gate import Gate
from tasks.showing import show
from tasks.stack.settings import Settings


@dataclass(frozen=True)
class Grounds:
    """What there is to decide on."""

    run: str | None  # of the candidate's exam; None: it has not played
    against: str | None  # of the champion's
    estimate: Values | None = None  # off-policy, before it plays
    only_estimate: bool = False  # by the rules about the estimate alone: there is nothing else yet


class NothingToDecide(ValueError):
    """The gate was asked about a version that there is nothing to decide about."""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def sides(candidate: int, champion: int | None) -> int | None:
    """The version to compare with: the one named, else the promoted one. NothingToDecide where that is the candidate.

    RegistryError where one of them is not registered or its weights are not what they were.
    """
    settings = Settings()
    registry = Registry(settings.mlflow_url)
    registry.intact(settings.model_name, candidate)
    rival = registry.promoted(settings.model_name, CHAMPION) if champion is None else champion
    if rival == candidate:
        raise NothingToDecide(
            f"{settings.model_name} version {candidate} is "
            + ("the champion: there is nothing to compare it with. Name another: --champion" if champion is None
               else "both candidate and champion")
        )  # fmt: skip
    if rival is not None:
        registry.intact(settings.model_name, rival)
    return rival


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def served() -> int:
    """The version that the engine serves; below 1 nobody knows what it is."""
    with Engine(Settings().engine) as engine:
        return engine.served_version()


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def spare(before: int) -> str | None:
    """An engine that may have an exam sat on it while the stack's own serves on: the last other one that serves the same version.

    None where there is none, as with a single engine.
    """
    settings = Settings()
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        serving = [url for url, one in gate.states().items() if one.version == str(before) and one.takes_calls]
    others = [url for url in serving if url != settings.engine]
    return others[-1] if others and settings.engine in serving else None


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def keep_sessions(before: int, version: int) -> None:
    """Sessions that ask for no version are all answered by `before`, until sessions are parted no more."""
    settings = Settings()
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        gate.part(before, version, 0.0, LEASE_S)


@task(cache_policy=NO_CACHE)
def sat(version: int, exam: Exam) -> Sat:
    """The run in which a version sits, or sat, an exam."""
    return exams.sat(None, Settings().model_name, version, exam.drawn(None))


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def decided(policy: Policy, candidate: int, champion: int | None, grounds: Grounds) -> Decision:
    """Measure, decide, and write the decision to `gates`; the same decision on the same grounds once."""
    settings = Settings()
    name = settings.model_name
    facts = gates.training_agreement(Registry(settings.mlflow_url), name, candidate) | (grounds.estimate or {})
    sitting = None if champion is None or grounds.against is None else (champion, grounds.against)
    measured = measure(
        None, name, candidate, run=grounds.run, against=sitting, facts=facts,
        confidence=policy.confidence, resamples=policy.resamples, adjust_kinds=policy.adjust_kinds,
    )  # fmt: skip
    rules = policy.before_playing if grounds.only_estimate else None
    decision = decide(policy, measured, name=name, candidate=candidate, champion=champion, rules=rules)
    if grounds.only_estimate and decision.passed:
        return decision  # it has to play yet
    if write_down(None, decision, policy, actor=actor()):
        said = {"gate_id": decision.gate_id, "passed": decision.passed, "against": champion, "policy": policy.digest}
        audit.note(None, "gate", f"{name}@{candidate}", said, actor=actor())
    return decision


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def tell(decision: Decision) -> None:
    """Metrics on the version's run in MLflow, tags on the version, and a page in Prefect."""
    settings = Settings()
    metrics = {
        f"gate/{metric}" if scope == TOTAL else f"gate/{scope}/{metric}": value
        for scope, values in decision.measured.values.items()
        for metric, value in values.items()
    }
    tags = {
        "gate": "passed" if decision.passed else "refused",
        "gate_id": decision.gate_id,
        "gate_champion": str(decision.champion),
        "gate_reasons": "; ".join(decision.reasons)[:4900],
    }
    gates.tell(Registry(settings.mlflow_url), decision.name, decision.candidate, metrics, tags)
    show(create_markdown_artifact, key="gate", markdown=page(decision))
    events.tell(
        "gate.decided",
        f"version.{decision.name}.{decision.candidate}",
        {"version": decision.candidate, "gate_id": decision.gate_id, "reasons": list(decision.reasons)},
        passed="yes" if decision.passed else "no",
    )


def page(decision: Decision) -> str:
    """A decision that a person reads in a minute, as Markdown."""
    against = f"version {decision.champion}" if decision.champion is not None else "nothing: none is promoted"
    head = "passes" if decision.passed else "is refused"
    lines = [f"# {decision.name} version {decision.candidate} {head}", "", f"Compared with {against}."]
    lines += [f"* {reason}" for reason in decision.reasons]
    if not decision.passed:
        lines += ["", f"When refused: {WHEN_REFUSED[decision.when_refused]}"]
    lines += ["", *_compared(decision), "", "| rule | of | measured | |", "|---|---|---|---|"]
    lines += [f"| `{one.rule}` | {one.scope} | {_number(one.value)} | {_word(one)} |" for one in decision.verdicts]
    lines += [""]
    for side, fates in decision.measured.fates.items():
        counted = ", ".join(f"{count} {fate}" for fate, count in fates.items())
        lines.append(f"Episodes of the {side} (run `{decision.measured.runs[side]}`): {counted}.")
    lines += ["", f"Decision `{decision.gate_id}`, policy `{decision.policy_digest}`."]
    return "\n".join(lines)


WHEN_REFUSED: Mapping[str, str] = {
    "roll_back": "the champion is served.",
    "go_on": "nothing changes: what is served stays served.",
    "ask": "nothing changes: a person decides, and moves the alias `champion` or not.",
}


def _compared(decision: Decision) -> list[str]:
    """The table of success on both sides by kind, with the paired difference and its interval."""
    measured = decision.measured
    if "champion" not in measured.runs or "candidate" not in measured.runs:
        return []
    lines = [
        f"| problems | pairs | champion solves | candidate solves | difference | {decision.confidence:.0%} interval | reward |",
        "|---|---|---|---|---|---|---|",
    ]
    for scope, values in measured.values.items():
        theirs = measured.champion.get(scope, {})
        if "success_difference" in values:
            low, high = values["success_difference_low"], values["success_difference_high"]
            ends, word = f"{low:+.3f} to {high:+.3f}", "worse" if high < 0 else "better" if low > 0 else "alike"
            apart = f"{values['success_difference']:+.3f} ({word})"
        else:
            apart, ends = "too few pairs", ""
        lines.append(
            f"| {scope} | {values.get('pairs', 0):.0f} | {_number(theirs.get('success'))} | "
            f"{_number(values.get('success'))} | {apart} | {ends} | {_number(values.get('reward_difference'))} |"
        )
    return lines


def _word(one: Verdict) -> str:
    if one.keeps is None:
        return one.note
    return "🟢 holds" if one.keeps else f"🔴 **broken**: {one.note or 'not measured'}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
