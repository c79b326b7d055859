"""A formula's numbers as theory reads them: parameters at their initial values, numbers of a token at their means."""

import math
from collections.abc import Hashable

from ..placement.base import Initial
from ..placement.operations import connect
from .moments import Followed, Moments
from .unpredictable import Unpredictable

SMALL = 0.25
"""The largest standard deviation of a token's logit for which its mean is taken. σ then scatters by a sixteenth about
½, and what the squares of such numbers add to a second moment is below two hundredths."""


class Number(float):
    """A parameter of the formula at its initial value: a number, or a tensor of which all entries are that number.

    std: of the distribution that it is drawn from, of which the mean alone counts wherever it multiplies.
    """

    shape: tuple[int, ...]
    std: float

    def __new__(cls, value: float, shape: tuple[int, ...] = (), std: float = 0.0) -> "Number":
        made = super().__new__(cls, value)
        made.shape, made.std = shape, std
        return made

    def __getitem__(self, index: int) -> "Number":
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"a parameter of shape {self.shape} has no entry {index}")
        return Number(self, self.shape[1:], self.std)


class Numbers(tuple["Number | Numbers", ...]):
    """A parameter whose entries start from different numbers: its entries, or its rows."""


class FollowedNumber(Number, Followed):
    """A parameter of the formula whose updates are followed wherever it multiplies a value.

    What is computed from it first, such as 1 less it, is a number that stays.
    """


def followed(value: Number, number: Hashable) -> FollowedNumber:
    """The same, belonging to the parameter of that name."""
    made = FollowedNumber(value, value.shape, value.std)
    made.number, made.entries = number, math.prod(value.shape)
    return made


def first_values(initial: Initial, shape: tuple[int, ...], std: float) -> Number | Numbers:
    """A parameter as theory reads it."""
    if isinstance(initial, tuple):
        return Numbers(first_values(entry, shape[1:], std) for entry in initial)
    return Number(initial, shape, std)


@connect.register
def _connect(
    x: Moments, weight: Number, bias: Number | Numbers | float = 0.0, scale: float = 1.0, *, name: str = ""
) -> tuple[Number, ...]:
    """The biases: what such numbers are on average.

    Exactly so where the weight starts from 0. Raises Unpredictable where it is drawn so wide that logits scatter.
    """
    rows, *features, width = weight.shape
    scatter = abs(scale) * math.sqrt(width * x.q) * math.hypot(weight.std, weight)
    if scatter > SMALL:
        raise Unpredictable(
            f"the numbers that a token's streams are weighed with are drawn with a standard deviation of {scatter:.2g} "
            f"over {width:,} features: beyond {SMALL:g} they differ too much from token to token for theory to follow, "
            "and this placement cannot be predicted"
        )
    return _biases(rows, tuple(features), bias)


@connect.register
def _connect_number(
    x: float, weight: Number, bias: Number | Numbers | float = 0.0, scale: float = 1.0, *, name: str = ""
) -> tuple[Number, ...]:
    """Of numbers of a token, which stand for their mean, 0: those made of them scatter less than they do.

    Raises Unpredictable for another mean.
    """
    if x:
        raise Unpredictable(f"numbers of a token that are {x:.2g} on average are not followed any further")
    rows, *features, _ = weight.shape
    return _biases(rows, tuple(features), bias)


def _biases(rows: int, features: tuple[int, ...], bias: Number | Numbers | float) -> tuple[Number, ...]:
    starts = [bias[row] if isinstance(bias, Number | Numbers) else bias for row in range(rows)]
    return tuple(Number(start, features) for start in starts)  # type: ignore[arg-type]
