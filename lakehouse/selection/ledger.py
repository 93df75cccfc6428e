"""The token ledger: every sampled token is trained, masked (for a reason) or dropped (for a reason)."""

from dataclasses import asdict, dataclass

from lakehouse.records import dumps


class LedgerGap(RuntimeError):
    """Tokens went missing, or were counted twice, between sampling and the training rows."""


@dataclass(frozen=True)
class Ledger:
    """Counts of completion tokens. `sampled` is what episodes counted when they ended, `trained` what masks hold."""

    sampled: int
    trained: int
    masked: dict[str, int]  # by reason; the token is context in a row, without loss
    dropped: dict[str, int]  # by reason; the token is in no row

    @property
    def gap(self) -> int:
        return self.sampled - self.trained - sum(self.masked.values()) - sum(self.dropped.values())

    def closed(self) -> "Ledger":
        """Itself, or LedgerGap."""
        if self.gap:
            raise LedgerGap(
                f"the token ledger has a gap of {self.gap}: sampled {self.sampled}, trained {self.trained}, "
                f"masked {self.masked}, dropped {self.dropped}. The check `checks.recorded_tokens` names the "
                "episodes whose calls are not all in the lake"
            )
        return self

    def json(self) -> str:
        return dumps(asdict(self))
