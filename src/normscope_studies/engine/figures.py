"""Curves of a study's figures, from arrays."""

import numpy as np
from numpy.typing import ArrayLike

from normscope.report.chart import Kind, Series


def measured(label: str, hue: int, x: ArrayLike, mean: ArrayLike, half_width: ArrayLike) -> Series:
    """Points at the means, in a band of mean ± half width; all (X,)."""
    places, y, half = _floats(x), _floats(mean), _floats(half_width)
    low, high = ([value + sign * by for value, by in zip(y, half, strict=True)] for sign in (-1, 1))
    return Series(label=label, kind="measured", hue=hue, x=places, y=y, low=low, high=high)


def line(label: str, kind: Kind, hue: int, x: ArrayLike, y: ArrayLike | float) -> Series:
    """y: (X,), or one value for all places."""
    places = _floats(x)
    values = [float(y)] * len(places) if isinstance(y, int | float) else _floats(y)
    return Series(label=label, kind=kind, hue=hue, x=places, y=values)


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values, dtype=np.float64)]
