"""What a curve over depth does, in a word and in an exponent."""

import math
from collections.abc import Sequence
from enum import StrEnum


class Behaviour(StrEnum):
    """In the order in which figures give them their hues."""

    GROWS = "grows"
    HELD = "stays at 1"
    STILL = "hardly moves"
    FALLS = "falls"
    OVERFLOWS = "leaves float32"


_HELD_WITHIN, _STILL_WITHIN, _FALLEN_BELOW = 0.005, 1.1, 0.8


def behaviour(depths: Sequence[int], rms: Sequence[float | None]) -> Behaviour:
    """What a curve does after its first block; None in `rms` is a value that is not finite."""
    values = [value for depth, value in zip(depths, rms, strict=True) if depth >= 1 and value is not None]
    if None in rms:
        return Behaviour.OVERFLOWS
    # The first block may be another than the others (KEEL, HybridNorm*).
    if all(abs(value - 1) < _HELD_WITHIN for value in values[1:] or values):
        return Behaviour.HELD
    if max(values) < _STILL_WITHIN * min(values):
        return Behaviour.STILL
    return Behaviour.FALLS if values[-1] < _FALLEN_BELOW * values[0] else Behaviour.GROWS


def exponent(depths: Sequence[int], rms: Sequence[float | None]) -> float | None:
    """Slope of ln RMS over ln depth in the last tenfold of depth: ½ where every block adds as much to E‖x‖²."""
    since = next(i for i, depth in enumerate(depths) if depth >= max(1, depths[-1] // 10))
    first, last = rms[since], rms[-1]
    if first is None or last is None or depths[since] == depths[-1]:
        return None
    return round(math.log(last / first) / math.log(depths[-1] / depths[since]), 3)
