"""The token ledger: every sampled token is trained, masked (for a reason) or dropped (for a reason)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from lakehouse.records import dumps

BY = ["run_id", "model_name", "model_version"]


class LedgerGap(RuntimeError):
    """Tokens went missing, or were counted twice, between sampling and the training rows."""


@dataclass(frozen=True)
class Part:
    """The ledger of what one version of one model sampled in one run, and what that took."""

    run_id: str
    model_name: str
    model_version: int | None  # served when the episodes started; None for demonstrations
    episodes: int
    episode_seconds: float  # their durations, added up
    prompt_tokens: int
    sampled: int
    trained: int
    masked: Mapping[str, int]
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class Ledger:
    """Counts of completion tokens. `sampled` is what episodes counted when they ended, `trained` what masks hold."""

    sampled: int
    trained: int
    masked: Mapping[str, int]  # by reason; the token is context in a row, without loss
    dropped: Mapping[str, int]  # by reason; the token is in no row
    parts: Sequence[Part] = field(default=(), compare=False)  # the same by run and model

    @property
    def gap(self) -> int:
        return _gap(self)

    def closed(self) -> "Ledger":
        """Itself, or LedgerGap: neither the whole nor a part may have a gap."""
        if self.gap:
            raise LedgerGap(
                f"the token ledger has a gap of {self.gap}: sampled {self.sampled}, trained {self.trained}, "
                f"masked {dict(self.masked)}, dropped {dict(self.dropped)}. The check `checks.recorded_tokens` names the "
                "episodes whose calls are not all in the lake"
            )
        for part in self.parts:
            if _gap(part):
                raise LedgerGap(
                    f"the token ledger closes, but that of run {part.run_id} and {part.model_name} version "
                    f"{part.model_version} has a gap of {_gap(part)}: `checks.recorded_tokens` names the episodes"
                )
        return self

    def json(self) -> str:
        return dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Ledger":
        """What `json` wrote."""
        known = json.loads(text)
        return cls(**known | {"parts": [Part(**part) for part in known.get("parts", [])]})


def ledger(episodes: pl.DataFrame, fates: pl.DataFrame) -> Ledger:
    """The ledger of `episodes` (run_id, model_name, model_version, duration_s, n_prompt_tokens, n_completion_tokens).

    `fates`: tokens by `position` of their episode, `fate` (trained, masked, dropped) and `reason`.
    """
    known = episodes.with_row_index("position").select("position", *BY)
    told = (
        fates.join(known, on="position", how="left")
        .group_by(*BY, "fate", "reason")
        .agg(pl.col("tokens").sum())
        .filter(pl.col("tokens") > 0)
        .sort("reason")
    )
    sums = episodes.group_by(BY).agg(
        episodes=pl.len(),
        episode_seconds=pl.col("duration_s").sum().round(3),
        prompt_tokens=pl.col("n_prompt_tokens").sum(),
        sampled=pl.col("n_completion_tokens").sum(),
    )
    by_part = dict(told.group_by(BY))
    parts = [
        Part(**row, **_fates(by_part.get(tuple(row[name] for name in BY), told.clear())))
        for row in sums.sort(BY, nulls_last=True).to_dicts()
    ]
    whole = told.group_by("fate", "reason").agg(pl.col("tokens").sum()).sort("reason")
    return Ledger(sampled=int(episodes["n_completion_tokens"].sum()), **_fates(whole), parts=parts)


def _fates(told: pl.DataFrame) -> dict[str, Any]:
    def of(fate: str) -> pl.DataFrame:
        return told.filter(pl.col("fate") == fate)

    reasons = {fate: dict(of(fate).select("reason", "tokens").iter_rows()) for fate in ("masked", "dropped")}
    return {"trained": int(of("trained")["tokens"].sum()), **reasons}


def _gap(counts: Part | Ledger) -> int:
    return counts.sampled - counts.trained - sum(counts.masked.values()) - sum(counts.dropped.values())
