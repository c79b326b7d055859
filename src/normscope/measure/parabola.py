"""The bottom of a parabola through three points, and of a curve."""

import math
from collections.abc import Sequence


def bottom(x: Sequence[float], y: Sequence[float]) -> float:
    """Where the parabola through three points is lowest; the middle one's place where it has no bottom.

    x: rising. Beyond the outer points only where the middle one is not the lowest.
    """
    (a, b, c), (left, here, right) = x, y
    rise, fall = (b - a) * (right - here), (c - b) * (left - here)
    return b - 0.5 * ((b - a) * rise - (c - b) * fall) / (rise + fall) if rise + fall > 0 else b


def lowest(x: Sequence[float], y: Sequence[float]) -> float:
    """Where a curve is lowest, by the parabola through its lowest point and the neighbours of that.

    x: rising. That point itself where it is the first or the last, or where a neighbour is not finite.
    """
    at = min(range(len(y)), key=y.__getitem__)
    if not 0 < at < len(y) - 1 or not all(map(math.isfinite, y[at - 1 : at + 2])):
        return x[at]
    return bottom(x[at - 1 : at + 2], y[at - 1 : at + 2])
