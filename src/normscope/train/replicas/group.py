"""The processes of one training, and what they tell each other. Every method is called by all of them, in one order."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import UserError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class PeerLost(Exception):
    """Another process of the training has gone, so that this one cannot go on."""


class Group:
    """A process that trains alone; `Replicas` are several."""

    rank = 0
    size = 1
    in_step = False
    """Whether a model's forward pass needs all processes, so that all of them pass the same items through."""

    @property
    def first(self) -> bool:
        """Whether this is the process that holds the run folder: it alone writes, and speaks."""
        return self.rank == 0

    def owner(self, number: int) -> int:
        """The rank of the process that works on the micro-batch of that number."""
        return number % self.size

    def gather(self, value: _Item) -> list[_Item]:
        """The value of every process, by rank."""
        return [value]

    def summed(self, values: Tensor) -> Tensor:
        """The sum of the tensors of all processes on the CPU; exact where only one of them is not 0."""
        return values

    def together(self, action: Callable[[], _Result]) -> _Result:
        """Run the action in every process. Where it raises UserError in some, all raise that of the lowest rank."""
        return action()

    def first_only(self, action: Callable[[], object]) -> None:
        """Run the action in the first process alone. All raise its UserError."""
        self.together(action if self.first else lambda: None)

    def from_first(self, value: _Item) -> _Item:
        """The first process's value, in every process."""
        return value

    def any_message(self, words: str | None) -> str | None:
        """The message of the lowest rank that has one; None where no process has."""
        return next(filter(None, self.gather(words)), None)

    def share(self, items: Sequence[_Item], compute: Callable[[_Item], _Result]) -> list[_Result]:
        """`compute` of each item, in their order: one process computes it, and all get it."""
        if self.in_step:
            return [compute(item) for item in items]
        mine = [compute(item) for item in items[self.rank :: self.size]]
        parts = self.gather(mine)
        return [parts[number % self.size][number // self.size] for number in range(len(items))]

    def any_signal(self, number: int | None) -> int | None:
        """The highest signal that a process was sent; None where none was."""
        return number

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Raises PeerLost where somebody has gone while torch itself speaks with them, as within a sharded model."""
        yield


ALONE = Group()


class Replicas(Group):
    """The processes of torch's default group, which speak of what is no gradient over the CPU."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, value: _Item) -> list[_Item]:
        found: list[Any] = [None] * self.size
        self.met(lambda: dist.all_gather_object(found, value))
        return found

    def summed(self, values: Tensor) -> Tensor:
        self.met(lambda: dist.all_reduce(values))
        return values

    def together(self, action: Callable[[], _Result]) -> _Result:
        problem, made = None, list[_Result]()
        try:
            made.append(action())
        except UserError as error:
            problem = error
        messages = self.gather(None if problem is None else str(problem))
        for rank, message in enumerate(messages):
            if message is not None:
                raise UserError(message if rank == 0 else f"process {rank} of {self.size}: {message}") from problem
        return made[0]

    def from_first(self, value: _Item) -> _Item:
        return self.gather(value if self.first else None)[0]  # type: ignore[return-value]

    def any_signal(self, number: int | None) -> int | None:
        highest = torch.tensor([number or 0])
        self.met(lambda: dist.all_reduce(highest, op=dist.ReduceOp.MAX))
        return int(highest) or None

    def met(self, collective: Callable[[], _Result]) -> _Result:
        """What comes of a call that all of us make together. Raises PeerLost where somebody has gone."""
        try:
            return collective()
        except RuntimeError as error:
            raise self._lost() from error

    @contextmanager
    def noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or _OF_A_CONNECTION.search(str(error)):
                raise self._lost() from error
            raise

    def _lost(self) -> PeerLost:
        return PeerLost(
            f"process {self.rank} of {self.size} has lost another one, which says why, here or on its own machine"
        )


_OF_A_CONNECTION = re.compile("gloo|nccl|connection (closed|reset|refused)|broken pipe|socket", re.IGNORECASE)
"""What torch says in an error of a backend that has no class of its own."""
