"""Operations that are found again in another call of the same command, where others come in another
order.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .operations import Operation

_RUN = re.compile(r"(/(?:\.unfinished-)?)[^/ ]*_seed-\d+")
_NUMBER = re.compile(r"(?<=/\.tmp)\w{6}|[0-9a-f]{8}|\d+")


@dataclass(frozen=True, slots=True)
class Place:
    """One of the operations that do the same."""

    like: str
    """What it does to which file, whatever number, random name or run of a grid that file has in
    its path.
    """
    nth: int
    """Of those that do the same, from 1."""

    def __str__(self) -> str:
        return f"{self.like}, {self.nth}"


class Placed:
    """Gives each operation its place, when called with all of them in turn."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, operation: Operation) -> Place:
        path = _RUN.sub(r"\1#", f"{operation.kind} {operation.path} {operation.to}".rstrip())
        like = _NUMBER.sub("#", path)
        self._seen[like] += 1
        return Place(like, self._seen[like])


def taken(operations: Sequence[Operation], *, alike: bool) -> dict[int, Place]:
    """All operations by number; where `alike`, of those that do the same the first, and after all
    these the last.
    """
    places = dict(enumerate(map(Placed(), operations)))
    if not alike:
        return places
    last = {place.like: place.nth for place in places.values()}
    kept = {number: place for number, place in places.items() if place.nth in (1, last[place.like])}
    return dict(sorted(kept.items(), key=lambda item: item[1].nth > 1))
