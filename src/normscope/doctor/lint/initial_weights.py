"""The weight matrices of a sub-layer, and how large they are beside what a placement's source
draws.

What a matrix is for is told by its shape and its order of use, never by its name.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ...placement import Placement, Site
from ..record import Stack, Sublayer
from .patient import Patient
from .structure import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightMatrix:
    """A weight matrix, or the part of a packed one that serves one purpose."""

    parameter: str
    """Name of the model's parameter that it is, or is part of."""
    deviation: float
    """Root mean square of its entries."""
    outputs: int
    inputs: int
    """The number of inputs; it does not matter here which side that is: Glorot's scale knows only
    the sum of both.
    """


def matrices_of(patient: Patient, sublayer: Sublayer, width: int) -> list[WeightMatrix]:
    """Returns the matrices of a sub-layer in order of use; none where shapes and order do not tell
    which is which.

    The last is the one whose product joins the stream. Before it stand, of attention, the three
    that make query, key and value, of which is not known which is which: packed into one (equal
    parts along its longer side), into two or into none; and of a feed-forward all the others, two
    where it is gated.
    """
    known = patient.weights
    used = [(name, known[name]) for name in sublayer.measured.parameters if name in known]
    weights = [
        (name, weight.detach())
        for name, weight in used
        if weight.ndim == 2 and width in weight.shape
    ]
    # Experts, convolutions and low-rank factors have weights of other shapes, complex ones other
    # laws: what they are for is not told by order.
    strangers = any(weight.ndim > 2 or not has_arithmetic(weight) for _, weight in used)
    if (
        strangers
        or len(weights) < 2
        or sublayer.kind in ("convolution", "mixer")
        or weights[-1][1].is_sparse
    ):
        return []
    whole = {name: _part(name, weight, patient.size_of(known[name])) for name, weight in weights}
    if sublayer.kind == "feed_forward":
        return [whole[name] for name, _ in weights]
    parts = []
    for name, weight in weights[:-1]:
        parts += _parts(name, weight, width) or [whole[name]]
    return [*parts, whole[weights[-1][0]]] if len(parts) == len(_PROJECTIONS) else []


def _parts(name: str, weight: Tensor, width: int) -> list[WeightMatrix]:
    """Returns the parts of a packed matrix; an empty list for one that packs nothing."""
    longer = int(weight.shape[1] > weight.shape[0])
    if weight.shape[1 - longer] != width or weight.shape[longer] not in (2 * width, 3 * width):
        return []
    parts = weight.chunk(weight.shape[longer] // width, longer)
    # Packed parts lie one after another, or head by head: then each row is told from the others by
    # its size alone.
    squares = torch.cat([_mean_squares(part, 1 - longer) for part in parts])
    sizes = [math.sqrt(float(rows.mean())) for rows in squares.chunk(len(parts))]
    made = [_part(name, part, size) for part, size in zip(parts, sizes, strict=True)]
    if width < 32 or not _interleaved(sizes, squares):
        return made
    return [
        _part(name, weight.index_select(longer, rows), math.sqrt(float(squares[rows].mean())))
        for rows in squares.argsort().chunk(len(parts))
    ]


def _mean_squares(part: Tensor, over: int) -> Tensor:
    """Returns the mean square of every row or column of a matrix, in float64."""
    given = part if part.dtype == torch.float64 else part.float()
    norms: Tensor = torch.linalg.vector_norm(given, dim=over)
    return norms.double().square() / part.shape[over]


_APART = 1.3
"""Sizes by which the rows of a packed matrix are told apart: a row of 32 entries strays from its
deviation by 13 %.
"""


def _interleaved(sizes: Sequence[float], squares: Tensor) -> bool:
    """Tells whether parts are of one size though rows, whose mean squares are given, are of as many
    sizes as there are parts.
    """
    smallest, *_, largest = squares.sort().values.chunk(len(sizes))
    spread = math.sqrt(float(largest.mean()) / max(float(smallest.mean()), 1e-300))
    return max(sizes) <= _APART * min(sizes) and spread >= _APART**2


def _part(name: str, weight: Tensor, deviation: float) -> WeightMatrix:
    return WeightMatrix(
        parameter=name, deviation=deviation, outputs=weight.shape[0], inputs=weight.shape[1]
    )


_MatrixRole = Literal["query", "key", "value", "output", "ffn_in", "ffn_out"]
"""The words in which `Placement.gain` is asked; of `query` and `key` it is not known which is
which.
"""
_PROJECTIONS: tuple[_MatrixRole, ...] = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixGain:
    """A matrix of a sub-layer beside what a placement wants of it."""

    block: int
    role: _MatrixRole
    parameter: str
    gain: float
    """The size in multiples of Glorot's √(2 / (inputs + outputs))."""
    wanted: float
    """The gain of the placement."""

    @property
    def ratio(self) -> float:
        """The gain that was found over the one that was wanted."""
        return self.gain / self.wanted


def weighed(
    patient: Patient, stack: Stack, placement: type[Placement], fits: Callable[[MatrixGain], bool]
) -> list[MatrixGain]:
    """Returns every matrix of the stack's sub-layers whose purpose can be told, with the gain that
    a placement gives it.

    fits: what counts as agreement; of the three projections of attention it decides which one is
    the value, where the usual order (query, key, value) does not fit and another one does.

    Raises ValueError where the placement is not defined for such a model.
    """
    shape = shape_of(patient.stacks, stack)
    made = placement(shape)
    found: list[MatrixGain] = []
    for sublayer in stack.sublayers:
        matrices = matrices_of(patient, sublayer, shape.width)
        if (
            not matrices
            or sublayer.block == 0
            or sublayer.kind == "convolution"
            or sublayer.kind == "mixer"
        ):
            continue
        site = Site(kind=sublayer.kind, block=sublayer.block, stack=shape)

        def gain(role: _MatrixRole, matrix: WeightMatrix, site: Site = site) -> MatrixGain:
            glorot = math.sqrt(2 / (matrix.inputs + matrix.outputs))
            wanted, own = made.gain(role, site), matrix.deviation / glorot
            return MatrixGain(
                block=site.block, role=role, parameter=matrix.parameter, gain=own, wanted=wanted
            )

        *before, last = matrices
        if site.kind == "feed_forward":
            found += [gain("ffn_out", last), *(gain("ffn_in", matrix) for matrix in before)]
            continue
        orders = [list(map(gain, roles, before)) for roles in permutations(_PROJECTIONS)]
        found += [
            gain("output", last),
            *next((order for order in orders if all(map(fits, order))), orders[0]),
        ]
    return found


def typical(sizes: list[float]) -> float:
    """Returns the geometric mean."""
    return math.exp(fmean(map(math.log, sizes)))
