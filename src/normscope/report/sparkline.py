"""A curve in one line of text: a letter for each stretch, in eight heights."""

import math
from collections.abc import Sequence

BARS, BROKEN = "▁▂▃▄▅▆▇█", "×"
"""Letters by height, and what stands for values that are not finite."""
ASCII_BARS, ASCII_BROKEN = "_.-:=+*#", "x"
"""The same for what shows nothing but ASCII."""


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """One letter for each value, from the lowest finite one to the highest; level values lie at the bottom."""
    bars, broken = (ASCII_BARS, ASCII_BROKEN) if ascii_only else (BARS, BROKEN)
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    step = (high - low) / (len(bars) - 1) or 1.0
    return "".join(bars[round((value - low) / step)] if math.isfinite(value) else broken for value in values)
