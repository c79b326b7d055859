"""Matrices that are drawn as no scheme has them: far wider, or to one side of 0."""

import math
from collections.abc import Iterator

from torch import Tensor

from ..patient import Patient, initial_weights
from ..rule import Fault, rule

_NEAR_ONE = 0.8, 1.25
"""Deviations that torch.randn leaves. What is drawn by a scheme at another gain is no such matrix,
and is told by the rules on schemes and on blocks that are unlike."""
_INPUTS = 16
"""The fewest inputs: their sum is 8 times as large as one."""
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


_ONE_SIDED = 0.5
"""The mean, in deviations, from which on entries lie to one side: a mean of n drawn entries is
within 4/√n.
"""
_LEAST_ENTRIES = 256


@rule("one-sided-matrices", initial_weights)
def one_sided_matrices(patient: Patient) -> Iterator[Fault]:
    """Matrices whose entries are drawn about another number than 0."""
    names = {name: None for one in patient.sublayers() for name in one.measured.matrices}
    names |= {one.name: None for one in patient.observed.output_matrices}
    found = {
        name: means
        for name in names
        if (weight := patient.weights.get(name)) is not None
        and (means := _mean_and_deviation(weight)) is not None
    }
    if found:
        name, (mean, deviation) = max(found.items(), key=lambda pair: abs(pair[1][0]))
        yield Fault(
            where=found,
            message=(
                f"{len(found)} matrices are drawn about a mean that is not 0: {name} about "
                f"{mean:.3g}, with a deviation of {deviation:.3g}: every unit sees above all the "
                "sum of its inputs, and all units say the same"
            ),
        )


def _mean_and_deviation(weight: Tensor) -> tuple[float, float] | None:
    """Returns mean and deviation of the entries of a drawn matrix that lie to one side; None for
    any other matrix.
    """
    if weight.ndim < 2 or min(weight.shape[-2:]) < _INPUTS or weight.numel() < _LEAST_ENTRIES:
        return None
    entries = weight.detach().float()
    mean, deviation = float(entries.mean()), float(entries.std())
    # What is one number everywhere is told by a rule of its own.
    return (mean, deviation) if 0 < deviation < abs(mean) / _ONE_SIDED else None
