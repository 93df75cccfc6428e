"""What the gate can measure, by name. A policy's rules are about these and nothing else."""

from dataclasses import dataclass
from typing import Literal

TOTAL = "total"

Of = Literal["candidate", "pair", "version"]


@dataclass(frozen=True)
class Metric:
    """One number. Shares are between 0 and 1."""

    about: str
    of: Of  # the candidate's exam; both exams, pair by pair; the version itself, which is the same for every kind

    @property
    def per_kind(self) -> bool:
        """Whether it is measured for each kind of problem besides the total."""
        return self.of != "version"


def _both_ends(name: str, about: str) -> dict[str, Metric]:
    return {
        name: Metric(f"{about}, candidate less champion, over pairs", "pair"),
        f"{name}_low": Metric("lower end of its interval", "pair"),
        f"{name}_high": Metric("upper end of its interval: below 0 the candidate is significantly worse", "pair"),
    }


METRICS: dict[str, Metric] = {
    "success": Metric("share solved of the candidate's scored episodes", "candidate"),
    "reward": Metric("mean reward of the candidate's scored episodes", "candidate"),
    "hack_rate": Metric("share of the candidate's episodes in which the radar saw a severe hack", "candidate"),
    "tokens": Metric("tokens that the candidate sampled per episode", "candidate"),
    "truncated": Metric("share of the candidate's episodes cut off at their token or turn limit", "candidate"),
    "failed": Metric("share of the candidate's episodes lost by no doing of the policy, or that never landed", "candidate"),
    "unscored": Metric("share of the candidate's episodes that should have a reward and have none", "candidate"),
    "mixed": Metric("share of the candidate's episodes with tokens of other weights", "candidate"),
    **_both_ends("success_difference", "success"),
    **_both_ends("reward_difference", "mean reward"),
    "tokens_ratio": Metric("tokens per episode, candidate over champion", "pair"),
    "truncated_difference": Metric("share cut off, candidate less champion", "pair"),
    "hack_difference": Metric("hack rate, candidate less champion", "pair"),
    "pairs": Metric("episodes of the same problem and sample that are scored on both sides", "pair"),
    "problems": Metric("problems with a pair", "pair"),
    "paired": Metric("pairs as a share of the episodes that were to be played", "pair"),
    "training_hack_rate": Metric("share of the episodes it was trained on in which the radar saw a severe hack", "version"),
    "ledger_gap": Metric("tokens that its training set's ledger does not account for", "version"),
    "agreement": Metric("mean |trainer - engine| log-prob on its on-policy training tokens, in nats", "version"),
    "agreement_p99": Metric("99th percentile of the same", "version"),
    "proven": Metric("1 where the newest deployment on any engine was proven, 0 where it was refused on all", "version"),
    "proof_mean": Metric("mean |trainer - engine| log-prob of its newest deployment's proof, in nats", "version"),
    "proof_max": Metric("greatest difference of the same", "version"),
    "tainted": Metric("1 where it, or a version it comes from, was trained on what has been erased", "version"),
    "offpolicy_success": Metric("success estimated from the champion's episodes, before the candidate played", "version"),
    "offpolicy_difference": Metric("the same, less the champion's own success", "version"),
    "offpolicy_difference_low": Metric("lower end of its interval", "version"),
    "offpolicy_difference_high": Metric("upper end of its interval", "version"),
    "effective_samples": Metric("episodes that the estimate is worth: (sum of weights)^2 / sum of their squares", "version"),
}  # fmt: skip
