"""Lists of numbers on a command line: values separated by commas, and grids `start:stop:count` among them."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from ..errors import UserError

Number = TypeVar("Number", int, float)
_DIGITS = 3
"""Significant digits of the values between a grid's ends: what is written is what is trained."""


def numbers(text: str, kind: Callable[[str], Number], option: str) -> list[Number]:
    """The values of "1e-3,2e-3" and "3e-4:3e-1:7", or of both in one list. Raises UserError naming the option.

    kind: int or float. A grid's values lie at equal distances in the logarithm, rounded to three significant digits or,
    for int, to whole numbers; its ends are as given.
    """
    found: list[Number] = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            found += _grid(part, kind) if ":" in part else [kind(part)]
        except ValueError as error:
            raise UserError(
                f"--{option} takes comma-separated values, and grids start:stop:count with equal steps in the "
                f"logarithm such as {'50:800:5' if kind is int else '3e-4:3e-1:7'}; got {text!r}: {error}"
            ) from error
    return found


def _grid(text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Raises ValueError that says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(
            f"{text!r} has {len(parts)} parts, and a grid has three: where it starts, where it stops, and how many"
        )
    start, stop, count = kind(parts[0]), kind(parts[1]), int(parts[2])
    if not (0 < start < stop and math.isfinite(stop)):
        beside = "; write 0 beside it, as in 0,50:800:5" if start == 0 else ""
        raise ValueError(f"{text!r} must rise from a number above 0 to a finite one: its steps are factors{beside}")
    if not 2 <= count <= 1000:
        raise ValueError(f"{text!r} asks for {count} values, and a grid has from 2 to 1000")
    factor = (stop / start) ** (1 / (count - 1))
    values = [_rounded(start * factor**step, kind) for step in range(count)]
    values[0], values[-1] = start, stop
    if any(not low < high for low, high in pairwise(values)):
        to = "whole numbers" if kind is int else f"{_DIGITS} significant digits"
        raise ValueError(f"{text!r} is so fine that two of its values are the same when rounded to {to}; ask for fewer")
    return values


def _rounded(value: float, kind: Callable[[str], Number]) -> Number:
    return kind(f"{value:.0f}" if kind is int else f"{value:.{_DIGITS - 1}e}")
