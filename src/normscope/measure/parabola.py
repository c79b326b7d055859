"""The bottom of a parabola through three points."""

from collections.abc import Sequence


def bottom(x: Sequence[float], y: Sequence[float]) -> float:
    """Where the parabola through three points is lowest; the middle one's place where it has no bottom.

    x: rising. Beyond the outer points only where the middle one is not the lowest.
    """
    (a, b, c), (left, here, right) = x, y
    rise, fall = (b - a) * (right - here), (c - b) * (left - here)
    return b - 0.5 * ((b - a) * rise - (c - b) * fall) / (rise + fall) if rise + fall > 0 else b
