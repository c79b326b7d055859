"""The start of the same parameter in every block: drawn, at one number, below 0, off its mean."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .. import likes
from ..patient import Patient, initial_weights
from ..rule import Fault, rule

SIZE_APART = 1.5
"""Factor beyond which a weight's size is no draw of the others' scheme."""
_STRAYS = 8.0
"""Standard errors of a mean by which no draw about 0 strays."""
_SHIFTED = 0.3
"""The distance of a mean from 0, in deviations, from which on it is off on purpose."""
_ENTRIES = 2**16
"""The number of a weight's entries that are examined, evenly: a mean strays by a 256th of the
deviation.
"""
_FEW = 16
"""Entries of which the mean, beside their own deviation, is one of chance."""
_SPARSE = 0.5
"""Share of entries that are exactly 0, as of an identity."""


@rule("start-unlike-others", initial_weights)
def start_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Parameters of one block that do not start as the same ones of the other blocks do."""
    # A branch that adds nothing has a rule of its own.
    told = {
        name for one in patient.sublayers() if one.is_closed for name in one.measured.parameters
    }
    odd = likes.odd_parameters(patient.model, _start)
    if odd:
        # So is another size.
        sized = likes.odd_weights(patient, apart=SIZE_APART)
        told |= {one.name for one in sized if one.value}
    by_block: dict[tuple[int, str], list[likes.OddOne[str]]] = {}
    for one in odd:
        if one.name not in told:
            by_block.setdefault((one.block, one.value), []).append(one)
    for (block, state), some in by_block.items():
        first = some[0]
        message = (
            f"block {block} of {first.likes}: {first.name} starts {state}, and the same parameter "
            f"of most other blocks {first.usual}"
        )
        if len(some) > 1:
            message += f"; so do {len(some) - 1} more of this block"
        yield Fault(where=some, message=message)


@torch.no_grad()
def _start(weight: Tensor) -> str:
    """Describes how a parameter starts, in words that do not depend on its size."""
    if not weight.is_floating_point() or weight.numel() < 2:
        return "as a number"
    whole = weight.detach().flatten()
    given = whole[:: 1 + len(whole) // _ENTRIES].float()
    low = float(given[0])
    if bool((given == low).all()) and bool((whole == low).all()):
        return f"at {low:.4g} everywhere"
    if weight.ndim > 1 and int(given.count_nonzero()) < _SPARSE * len(given):
        return "mostly at 0"
    if len(given) < _FEW:
        return "drawn"
    mean, deviation = float(given.mean()), float(given.std())
    error = deviation / math.sqrt(len(given))
    if abs(mean) > max(_STRAYS * error, _SHIFTED * deviation):
        return "about a mean above 0" if mean > 0 else "about a mean below 0"
    return "drawn about 0"
