"""A policy's rules over what was measured: a verdict per rule and scope, and the decision, written down once."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from lakehouse.evaluation.measure import Measurements
from lakehouse.evaluation.metrics import METRICS, TOTAL
from lakehouse.evaluation.policy import Policy, Rule, WhenRefused
from lakehouse.query import connect
from lakehouse.records import GateDecision, digest, dumps, now
from lakehouse.write import Writer


class Verdict(BaseModel):
    """One rule in one scope. `keeps` None: it does not apply, and `note` says why."""

    model_config = ConfigDict(frozen=True)

    rule: str
    scope: str
    value: float | None
    keeps: bool | None
    note: str = ""

    @property
    def reason(self) -> str:
        """What breaking it is, in words."""
        where = "" if self.scope == TOTAL else f" of {self.scope}"
        found = "it could not be measured" if self.value is None else f"it is {self.value:.4g}"
        return f"{self.rule}{where}: {found}" + (f"; {self.note}" if self.note else "")


class Decision(BaseModel):
    """What the gate said of a version, and on what grounds."""

    model_config = ConfigDict(frozen=True)

    gate_id: str
    name: str
    candidate: int
    champion: int | None
    passed: bool
    reasons: list[str]
    when_refused: WhenRefused
    verdicts: list[Verdict]
    measured: Measurements
    confidence: float
    policy_digest: str


def judge(policy: Policy, measured: Measurements, *, champion: int | None, rules: Sequence[Rule]) -> list[Verdict]:
    """A verdict per rule and scope. Without a champion there is nothing to compare with, and such rules do not apply."""
    verdicts = []
    if "pairs" in measured.values[TOTAL]:
        verdicts.append(_enough("pairs", policy.min_pairs, TOTAL, measured))
    kinds = [scope for scope in measured.values if scope != TOTAL]
    thin = set()
    if any(rule.per_kind and METRICS[rule.metric].of == "pair" for rule in rules):
        for kind in kinds:
            enough = _enough("problems", policy.min_problems, kind, measured)
            if "pairs" in measured.values[TOTAL]:
                verdicts.append(enough)
            if not enough.keeps:
                thin.add(kind)
    for rule in rules:
        for scope in [TOTAL, *(kinds if rule.per_kind else [])]:
            of = METRICS[rule.metric].of
            if of == "pair" and champion is None:
                verdicts.append(_verdict(rule, scope, None, None, "no champion to compare with"))
            elif of == "pair" and scope in thin:
                verdicts.append(
                    _verdict(rule, scope, measured.values[scope].get(rule.metric), None, "too few problems")
                )
            else:
                verdicts.append(_judged(rule, scope, measured.values[scope].get(rule.metric)))
    return verdicts


def decide(
    policy: Policy,
    measured: Measurements,
    *,
    name: str,
    candidate: int,
    champion: int | None,
    rules: Sequence[Rule] | None = None,
) -> Decision:
    """Pass or refuse. `rules`: only these of the policy's."""
    verdicts = judge(policy, measured, champion=champion, rules=policy.rules if rules is None else rules)
    reasons = [one.reason for one in verdicts if one.keeps is False]
    grounds = dumps([measured.model_dump(), [one.model_dump() for one in verdicts]])
    return Decision(
        gate_id="gt-" + digest(name, str(candidate), str(champion), policy.digest, grounds)[:24],
        name=name,
        candidate=candidate,
        champion=champion,
        passed=not reasons,
        reasons=reasons,
        when_refused=policy.when_refused,
        verdicts=verdicts,
        measured=measured,
        confidence=policy.confidence,
        policy_digest=policy.digest,
    )


def write_down(lake: str | None, decision: Decision, policy: Policy, *, actor: str) -> bool:
    """Append the decision to `gates`; False where the same one, on the same grounds, is there."""
    told = decision.measured.model_dump() | {
        "confidence": decision.confidence,
        "when_refused": decision.when_refused,
        "rules": [one.model_dump() for one in decision.verdicts],
    }
    row = GateDecision(
        gate_id=decision.gate_id,
        name=decision.name,
        candidate=decision.candidate,
        champion=decision.champion,
        policy_digest=policy.digest,
        policy=policy.text,
        measurements=dumps(told),
        passed=decision.passed,
        reasons=decision.reasons,
        decided_at=now(),
        decided_by=actor,
    )
    return not Writer(lake).append_new("gates", [row], key="gate_id").skipped


def decisions(lake: str | None, name: str, version: int) -> list[GateDecision]:
    """Every decision about a version, the newest first."""
    with connect(lake) as connection:
        rows = connection.execute(
            "from gates where name = $1 and candidate = $2 order by decided_at desc", [name, version]
        ).pl()
    return [GateDecision(**row) for row in rows.to_dicts()]


def _enough(metric: str, least: int, scope: str, measured: Measurements) -> Verdict:
    found = measured.values[scope].get(metric, 0.0)
    fates = "; ".join(f"{side}: {_listed(told)}" for side, told in measured.fates.items())
    note = "" if found >= least else f"too few to decide on ({fates}). Play more problems or samples, or another seed"
    return Verdict(rule=f"{metric} >= {least}", scope=scope, value=found, keeps=found >= least, note=note)


def _listed(fates: dict[str, int]) -> str:
    return ", ".join(f"{count} {fate}" for fate, count in fates.items()) or "no episode"


def _judged(rule: Rule, scope: str, value: float | None) -> Verdict:
    if value is None:
        passes = rule.if_missing == "pass"
        return _verdict(rule, scope, None, None if passes else False, "not measured" if passes else "")
    keeps = rule.holds(value)
    return _verdict(rule, scope, value, keeps, "" if keeps else rule.why)


def _verdict(rule: Rule, scope: str, value: float | None, keeps: bool | None, note: str) -> Verdict:
    return Verdict(rule=rule.text, scope=scope, value=value, keeps=keeps, note=note)
