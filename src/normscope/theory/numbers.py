"""A formula's numbers as theory reads them: parameters at their initial values, numbers of a token at their means."""

import math

from ..placement.base import Initial
from ..placement.operations import connect
from .moments import Moments

SMALL = 0.1
"""The largest standard deviation of a token's logit for which its mean is taken. σ then scatters by a fortieth about ½,
and what the squares of such numbers add to a second moment is below a hundredth."""


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

    Exactly so where the weight starts from 0. Raises ValueError where it is drawn so wide that logits scatter.
    """
    rows, width = weight.shape
    scatter = abs(scale) * math.sqrt(width * x.q) * math.hypot(weight.std, weight)
    if scatter > SMALL:
        raise ValueError(
            f"the numbers that a token's streams are weighed with are drawn with a standard deviation of {scatter:.2g} "
            f"at width {width}: beyond {SMALL:g} they differ too much from token to token for theory to follow, and "
            "this placement cannot be predicted"
        )
    return tuple(Number(bias[row] if isinstance(bias, Number | Numbers) else bias) for row in range(rows))  # type: ignore[arg-type]
