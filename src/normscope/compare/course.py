"""The course of a loss over updates in a few stretches of equal length, however long the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

_MOST = 64
"""Stretches that are kept; of a longer run each is twice as long."""


@dataclass(slots=True)
class Course:
    """Means of values over stretches of updates, taken in one after the other in bounded memory."""

    updates_each: int = 1
    """Length of a stretch."""
    _sums: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def add(self, update: int, value: float) -> None:
        """Take in the value of an update, which is counted from 0."""
        while update // self.updates_each >= _MOST:
            self._halve()
        at = update // self.updates_each
        while len(self._sums) <= at:
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[at] += value
        self._counts[at] += 1

    def means(self, most: int) -> list[float]:
        """At most `most` means in the order of updates, as many as there are stretches with a value."""
        known = [(total, count) for total, count in zip(self._sums, self._counts, strict=True) if count]
        columns = min(most, len(known))
        parts = [known[len(known) * i // columns : len(known) * (i + 1) // columns] for i in range(columns)]
        return [_mean(part) for part in parts]

    def _halve(self) -> None:
        pairs = range(0, len(self._sums), 2)
        self._sums = [sum(self._sums[at : at + 2]) for at in pairs]
        self._counts = [sum(self._counts[at : at + 2]) for at in pairs]
        self.updates_each *= 2


def _mean(part: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in part) / sum(count for _, count in part)
