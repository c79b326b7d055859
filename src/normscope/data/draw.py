"""Random choices that are the same under every version of Python and NumPy."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Random choices from `random.Random.random` alone, whose sequence Python promises to keep between versions."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, number: int) -> int:
        """One of 0 to `number` - 1."""
        return int(self._random() * number)

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]
