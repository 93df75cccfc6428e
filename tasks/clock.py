"""Seconds by stage of a long flow."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Adds up wall-clock seconds under names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the seconds of a block, also of one that fails, under `stage`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({stage: time.monotonic() - started})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Take over what another clock counted."""
        for stage, amount in seconds.items():
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + amount, 2)
