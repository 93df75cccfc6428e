"""Which of many byte patterns occur in data: one pass over it, however many patterns there are."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

SHORTEST = 8  # bytes; what is shorter is found in anything
_KEY = 8


class Matcher:
    """Patterns of at least `SHORTEST` bytes each. ValueError for a shorter one.

    Every pattern is known by its last eight bytes. Two tables of byte pairs leave of the places in the data the few where
    such a key may stand.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self.patterns = sorted(set(patterns))
        short = next((one for one in self.patterns if len(one) < SHORTEST), None)
        if short is not None:
            raise ValueError(f"a pattern of {len(short)} bytes would be found in anything: take at least {SHORTEST}")
        self.longest = max(map(len, self.patterns), default=0)
        self._by_key: dict[bytes, list[bytes]] = defaultdict(list)
        self._first, self._second = np.zeros(1 << 16, np.bool_), np.zeros(1 << 16, np.bool_)
        for pattern in self.patterns:
            key = pattern[-_KEY:]
            self._by_key[key].append(pattern)
            self._first[int.from_bytes(key[0:2], "little")] = True
            self._second[int.from_bytes(key[4:6], "little")] = True

    def __call__(self, data: bytes) -> set[bytes]:
        """The patterns that occur in `data`."""
        found: set[bytes] = set()
        for place in self._places(np.frombuffer(data, np.uint8)).tolist():
            for pattern in self._by_key.get(data[place : place + _KEY], ()):
                begin = place + _KEY - len(pattern)
                if pattern not in found and begin >= 0 and data[begin : place + _KEY] == pattern:
                    found.add(pattern)
        return found

    def _places(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Where a key may begin."""
        if len(data) < _KEY:
            return np.zeros(0, np.int64)
        pairs = data[:-1].astype(np.uint16)
        pairs |= data[1:].astype(np.uint16) << 8
        likely = np.flatnonzero(self._first[pairs[: len(data) - _KEY + 1]])
        return likely[self._second[pairs[likely + 4]]]
