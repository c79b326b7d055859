"""Matrices that are drawn far wider than any scheme has them."""

import math
from collections.abc import Iterator

from ..patient import Patient, initial_weights
from ..rule import Fault, rule

_NEAR_ONE = 0.8, 1.25
"""Deviations that torch.randn leaves. What is drawn by a scheme at another gain is no such matrix,
and is told by the rules on schemes and on blocks that are unlike."""
_INPUTS = 16
"""Of which the sum is 8 times as large as one."""
_ADDED = 4.0
"""Size of what such a branch adds; a norm or a factor behind its matrices keeps it near 1."""


@rule("wide-matrices", initial_weights)
def wide_matrices(patient: Patient) -> Iterator[Fault]:
    """Sub-layers of which matrices start at N(0, 1), or near it, and that add as much to the
    stream.
    """
    found: dict[str, float] = {}
    for one in patient.sublayers():
        if not one.measured.branch_square > _ADDED**2:
            continue
        for name in one.measured.matrices:
            weight = patient.weights.get(name)
            if weight is None or weight.ndim < 2 or min(weight.shape[-2:]) < _INPUTS:
                continue
            least, most = _NEAR_ONE
            if least <= (size := patient.size_of(weight)) <= most:
                found[name] = size
    if found:
        name, size = max(found.items(), key=lambda pair: pair[1])
        inputs = min(patient.weights[name].shape[-2:])
        yield Fault(
            where=found,
            message=(
                f"{len(found)} matrices of sub-layers are drawn with a deviation of {size:.3g}: "
                f"{name} makes of its {inputs} inputs or more what is "
                f"{size * math.sqrt(inputs):.0f} times larger, and its branch swamps the stream"
            ),
        )
