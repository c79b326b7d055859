"""Tables of sines and cosines that are added to a stream, and how far each pair turns from one
place to the next.
"""

# T = places, D = width, P = pairs of columns

import math
from collections.abc import Iterator

import torch
from torch import Tensor

_SAME = 1e-3
"""The largest deviation, as a share of a pair's radius, and in radians."""
_MOST_PAIRS = 0.9
_LEAST = 4
"""Places, and pairs."""


def turns(rows_TD: Tensor) -> Tensor | None:
    """Returns, for each pair of features, the angle in radians between neighbouring places, from 0
    to π; None for a table whose pairs do not turn evenly.
    """
    for pairs_TP in _paired(rows_TD.double()):
        radii_TP = pairs_TP.abs()
        is_even_P = (radii_TP - radii_TP[:1]).abs().amax(0) <= _SAME * radii_TP[0]
        if float(is_even_P.double().mean()) < _MOST_PAIRS:
            continue
        steps_TP = (pairs_TP[1:] * pairs_TP[:-1].conj()).angle()
        apart_TP = (steps_TP - steps_TP[:1]).abs()
        apart_TP = torch.minimum(apart_TP, 2 * math.pi - apart_TP)
        is_steady_P = is_even_P & (apart_TP.amax(0) <= _ROUNDED)
        if float(is_steady_P.double().mean()) >= _MOST_PAIRS:
            return steps_TP[0].abs()[is_steady_P]
    return None


_ROUNDED = 0.05
"""The deviation in radians that rounding explains: angles of ten thousand are known in float32 to a
thousandth.
"""


def _paired(rows_TD: Tensor) -> Iterator[Tensor]:
    """A table as complex numbers: columns side by side, or of both halves."""
    places, width = rows_TD.shape
    if places < _LEAST or width % 2 or width < 2 * _LEAST:
        return
    halves = rows_TD.reshape(places, 2, width // 2)
    yield torch.complex(rows_TD[:, ::2], rows_TD[:, 1::2])
    yield torch.complex(halves[:, 0], halves[:, 1])
