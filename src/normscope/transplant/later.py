"""Values of a placement's formula that are computed later, when the model runs, and the norms, ends
and sub-layers that the formula meets while it is read over them.

What is computed is kept as it was asked for: a function and its arguments. The operations of
placements take such values as they take tensors.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import isqrt
from typing import Any

from ..placement import Site, operations
from ..placement.base import Initial

Part = tuple[str, str]
"""A place of a block, such as attention, start or finish, and the name of a norm or a number of it
there.
"""


class UnfitFormula(ValueError):
    """A formula asks for what cannot be followed in a foreign model."""


_Method = Callable[["Later", Any], "Later"]


def _of_two(function: Callable[..., Any]) -> tuple[_Method, _Method]:
    """Returns the methods by which a value stands on the left and on the right of an operator."""
    return lambda self, other: Later(function, (self, other)), lambda self, other: Later(
        function, (other, self)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """A value that is computed when the model runs: a function of values and constants."""

    function: Callable[..., Any] | str
    """The function that computes the value; "input", "branch", "norm", "parameter" and "scheduled"
    are supplied by the model.
    """
    arguments: tuple[Any, ...] = ()
    shape: tuple[int, ...] = ()
    """The shape of a parameter."""
    order: int = field(default_factory=count().__next__)
    """The place among all that a formula computes."""

    __add__, __radd__ = _of_two(operator.add)
    __sub__, __rsub__ = _of_two(operator.sub)
    __mul__, __rmul__ = _of_two(operator.mul)
    __truediv__ = _of_two(operator.truediv)[0]
    __pow__ = _of_two(operator.pow)[0]

    def __getitem__(self, index: int) -> "Later":
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"a value of shape {self.shape} has no entry {index}")
        return Later(operator.getitem, (self, index), self.shape[1:])


@dataclass(frozen=True, slots=True)
class NormOf:
    """A norm of the formula, which also stands for itself where attention over depth is given it
    for its keys.
    """

    part: Part

    def __call__(self, x: Later, /, *, groups: int | None = None) -> Later:
        if groups is not None:
            raise UnfitFormula("it norms parts of the stream each on their own")
        return Later("norm", (self.part, x))


@dataclass(frozen=True, slots=True)
class _LaterNorms:
    """The norms of one place. `given`: those that the model applies itself, outside of what is
    followed.
    """

    place: str
    given: bool = False

    def __call__(self, x: Later, /, *, groups: int | None = None) -> Later:
        return x if self.given else NormOf((self.place, "main"))(x, groups=groups)

    def __getattr__(self, name: str) -> NormOf:
        if name.startswith("__"):
            raise AttributeError(name)
        return NormOf((self.place, name))


class LaterEnd:
    """An end of a stack."""

    def __init__(self, place: str, *, given: bool = False) -> None:
        self.place, self.norm = place, _LaterNorms(place, given)

    def parameter(
        self, name: str, *, initial: Initial, shape: tuple[int, ...] = (), std: float = 0.0
    ) -> Later:
        return Later("parameter", ((self.place, name),), shape)

    def scheduled(self, name: str, *, initial: float) -> Later:
        return Later("scheduled", ((self.place, name),))


class LaterSublayer(LaterEnd):
    """F, which the model computes once it has what F reads."""

    def __init__(self, site: Site, branches: list[Later]) -> None:
        super().__init__(site.kind)
        self.site, self._branches = site, branches

    def __call__(self, x: Later, /, **inside: Callable[[Any], Any]) -> Later:
        if inside:
            raise UnfitFormula(
                f"it applies functions within {self.site.kind} ({', '.join(sorted(inside))})"
            )
        self._branches.append(Later("branch", (x, self.site.kind)))
        return self._branches[-1]

    def parameter(
        self, name: str, *, shape: tuple[int, ...] = (), shared_by_block: bool = False, **spec: Any
    ) -> Later:
        return Later("parameter", (("block" if shared_by_block else self.place, name),), shape)


def _mix(query: Later, values: Sequence[Later], key: Any, value: Any = None) -> Later:
    return Later(operations.mix, (query, tuple(values), key, value))


def _joined(x: Later, *others: Later, epsilon: float = 1e-6) -> Later:
    return Later(partial(operations.joined, epsilon=epsilon), (x, *others))


def _connect(
    x: Later, weight: Later, bias: Any = 0.0, scale: Any = 1.0, *, name: str = ""
) -> tuple[Later, ...]:
    whole = Later(operations.connect, (x, weight, bias, scale))
    return tuple(Later(operator.getitem, (whole, row)) for row in range(weight.shape[0]))


def _sinkhorn(
    first: Later, logits: tuple[Later, ...], rounds: int, epsilon: float
) -> tuple[tuple[Later, ...], ...]:
    whole = Later(operations.sinkhorn, (first, logits, rounds, epsilon))
    size = isqrt(len(logits))
    rows = [Later(operator.getitem, (whole, row)) for row in range(size)]

    def entries(row: Later) -> tuple[Later, ...]:
        return tuple(Later(operator.getitem, (row, column)) for column in range(size))

    return tuple(entries(row) for row in rows)


def _later(operation: Callable[..., Any]) -> Callable[..., Later]:
    return lambda *arguments: Later(operation, arguments)


for _operation in (
    operations.unit,
    operations.at_most_1,
    operations.sigmoid,
    operations.tanh,
    operations.silu,
    operations.softplus,
    operations.stopped,
    operations.by_head,
    operations.beside,
):
    _operation.register(Later, _later(_operation))
operations.mix.register(Later, _mix)
operations.joined.register(Later, _joined)
operations.connect.register(Later, _connect)
operations.sinkhorn.register(Later, _sinkhorn)
