"""The processes of one training, and what they tell each other.

Every method is called by all of them, in one order. What is no gradient travels over the CPU.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ...errors import UserError
from ...signals import between_units
from .life_signs import LifeSigns, ended

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class PeerLost(Exception):
    """The error that another process of the training has gone, so that this one cannot go on.

    tells: whether this process is the one to say so.
    """

    def __init__(self, line: str, *, tells: bool) -> None:
        super().__init__(line)
        self.tells = tells


class SharedError(UserError):
    """A user's mistake that every process of a training raises; the first of them tells it."""


class OwnError(UserError):
    """A user's mistake that one process of a training has met, and tells."""


class Group:
    """A process that trains alone; `Several` are more than one."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """True for the process that holds the run folder: it alone writes, and reports."""
        return self.rank == 0

    def owned(self, numbers: range) -> range:
        """Returns those of the micro-batches that this process works on: n, where n mod size is its
        rank.
        """
        begin = numbers.start + (self.rank - numbers.start) % self.size
        return range(begin, numbers.stop, self.size)

    def part_of(self, items: Sequence[_Item]) -> Iterator[_Item]:
        """Yields those of the items that this process works on, each a unit of work that may be the
        last (`between_units`).
        """
        for item in items[self.rank :: self.size]:
            between_units()
            yield item

    def total(self, values: Sequence[float]) -> list[float]:
        """Returns each value's sum over the processes, in float64."""
        return list(values)

    def gather(self, value: _Item) -> list[_Item]:
        """Returns the value of every process, by rank."""
        return [value]

    def together(self, action: Callable[[], _Result]) -> _Result:
        """Runs the action in every process, and returns what it gave.

        Where it raises UserError in some, all raise that of the lowest rank.
        """
        return action()

    def of_first(self, action: Callable[[], _Result]) -> _Result:
        """Runs the action in the first process alone; all return what it gave, or raise its
        UserError.
        """
        return action()

    def message(self, words: str | None) -> str | None:
        """Returns the message of the lowest rank that has one; None where no process has."""
        return next(filter(None, self.gather(words)), None)

    def highest(self, number: int | None) -> int | None:
        """Returns the highest number of any process; None where none has one."""
        return number

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Raises PeerLost where another process has gone while torch itself speaks with it."""
        yield


ALONE = Group()
"""A process that trains alone."""


class Several(Group):
    """The processes of torch's default group."""

    def __init__(self, rank: int, size: int, signs: LifeSigns) -> None:
        self.rank = rank
        self.size = size
        self.signs = signs

    def total(self, values: Sequence[float]) -> list[float]:
        summed = torch.tensor(values, dtype=torch.float64)
        self._met(lambda: dist.all_reduce(summed))
        found: list[float] = summed.tolist()
        return found

    def gather(self, value: _Item) -> list[_Item]:
        found: list[Any] = [None] * self.size
        self._met(lambda: dist.all_gather_object(found, value))
        return found

    def together(self, action: Callable[[], _Result]) -> _Result:
        problem, made = None, list[_Result]()
        try:
            made.append(action())
        except UserError as error:
            problem = error
        messages = self.gather(None if problem is None else str(problem))
        for rank, message in enumerate(messages):
            if message is not None:
                said = message if rank == 0 else f"process {rank} of {self.size}: {message}"
                raise SharedError(said) from problem
        return made[0]

    def of_first(self, action: Callable[[], _Result]) -> _Result:
        given = self.together(lambda: action() if self.first else None)
        told: Any = self.gather(given)[0]
        found: _Result = told
        return found

    def highest(self, number: int | None) -> int | None:
        found = torch.tensor([number or 0])
        self._met(lambda: dist.all_reduce(found, op=dist.ReduceOp.MAX))
        return int(found) or None

    @contextmanager
    def noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or _OF_A_CONNECTION.search(str(error)):
                self._lost(error)
            raise

    def _met(self, collective: Callable[[], object]) -> None:
        """A call that all of us make together. Raises PeerLost where somebody has gone."""
        try:
            collective()
        except RuntimeError as error:
            self._lost(error)
            raise

    def _lost(self, error: RuntimeError) -> None:
        """Raise PeerLost that names who has gone; return where everybody is there."""
        if (lost := self.signs.found()) is not None:
            self.signs.end_halted(lost)
            raise PeerLost(ended(lost.words), tells=self.signs.tells()) from error


_OF_A_CONNECTION = re.compile(
    "gloo|nccl|connection (closed|reset|refused)|broken pipe|socket", re.IGNORECASE
)
"""The words in torch's error for a backend that has no error class of its own."""
