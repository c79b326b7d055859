"""The weight matrices of a sub-layer, and how large they are beside what a placement's source draws.

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

from ...placement import Placement, Site
from ..observe.parameters import size_of
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
    """Which of the two is which does not matter here: Glorot's scale knows only their sum."""

    @property
    def glorot_gain(self) -> float:
        """Its size in multiples of Glorot's √(2 / (inputs + outputs))."""
        return self.deviation / math.sqrt(2 / (self.inputs + self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class SublayerMatrices:
    """Those of one sub-layer."""

    projections: tuple[WeightMatrix, ...]
    """Three of attention, in order of use: query, key and value, which of them is which is not known; else none."""
    first: tuple[WeightMatrix, ...]
    """Of a feed-forward: all but the last (two where it is gated); of attention none."""
    last: WeightMatrix
    """The one whose product joins the stream."""


def matrices_of(patient: Patient, sublayer: Sublayer, width: int) -> SublayerMatrices | None:
    """The matrices of a sub-layer; None where shapes and order do not tell which is which.

    Told are: attention with query, key and value matrices, packed into one (equal parts along its longer side), two or
    none, and an output matrix after them; feed-forwards of at least two matrices, the last of which is the output.
    """
    known = patient.weights
    used = [(name, known[name]) for name in sublayer.measured.parameters if name in known]
    weights = [(name, weight.detach()) for name, weight in used if weight.ndim == 2 and width in weight.shape]
    # Experts, convolutions and low-rank factors have weights of other shapes: what they are for is not told by order.
    strangers = [name for name, weight in used if weight.ndim > 2]
    if strangers or len(weights) < 2 or sublayer.kind in ("convolution", "mixer") or weights[-1][1].is_sparse:
        return None
    *before, last = weights
    if sublayer.kind == "feed_forward":
        return SublayerMatrices(
            projections=(), first=tuple(_whole(name, weight) for name, weight in before), last=_whole(*last)
        )
    parts = [part for name, weight in before for part in _parts(name, weight, width)]
    if len(parts) != 3:
        return None
    return SublayerMatrices(projections=tuple(parts), first=(), last=_whole(*last))


def _parts(name: str, weight: Tensor, width: int) -> list[WeightMatrix]:
    longer = int(weight.shape[1] > weight.shape[0])
    if weight.shape[1 - longer] != width or weight.shape[longer] not in (2 * width, 3 * width):
        return [_whole(name, weight)]
    parts = weight.chunk(weight.shape[longer] // width, longer)
    made = [_whole(name, part) for part in parts]
    # Packed parts lie one after another, or head by head: then each row is told from the others by its size alone.
    squares = torch.cat([part.double().square().mean(1 - longer) for part in parts])
    if width < 32 or not _interleaved([one.deviation for one in made], squares):
        return made
    return [_whole(name, weight.index_select(longer, rows)) for rows in squares.argsort().chunk(len(parts))]


_APART = 1.3
"""Sizes by which the rows of a packed matrix are told apart: a row of 32 entries strays from its deviation by 13 %."""


def _interleaved(sizes: Sequence[float], squares: Tensor) -> bool:
    """Whether parts are of one size though rows, whose mean squares are given, are of as many sizes as parts."""
    smallest, *_, largest = squares.sort().values.chunk(len(sizes))
    spread = math.sqrt(float(largest.mean()) / max(float(smallest.mean()), 1e-300))
    return max(sizes) <= _APART * min(sizes) and spread >= _APART**2


def _whole(name: str, weight: Tensor) -> WeightMatrix:
    return WeightMatrix(parameter=name, deviation=size_of(weight), outputs=weight.shape[0], inputs=weight.shape[1])


_MatrixRole = Literal["query", "key", "value", "output", "ffn_in", "ffn_out"]
"""The words in which `Placement.gain` is asked; of `query` and `key` it is not known which is which."""
_PROJECTIONS: tuple[_MatrixRole, ...] = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixGain:
    """A matrix of a sub-layer beside what a placement wants of it."""

    block: int
    role: _MatrixRole
    matrix: WeightMatrix
    wanted: float
    """The gain of the placement."""

    @property
    def ratio(self) -> float:
        """Gain over Glorot's scale, as it was found and as it was wanted, divided."""
        return self.matrix.glorot_gain / self.wanted


_Fits = Callable[[MatrixGain], bool]


def weighed(patient: Patient, stack: Stack, placement: type[Placement], fits: _Fits) -> list[MatrixGain]:
    """Every matrix of the stack's sub-layers whose purpose can be told, with the gain that a placement gives it.

    number: of the stack. fits: what counts as agreement; of the three projections of attention it decides which one is
    the value, where the usual order (query, key, value) does not fit and another one does.

    Raises ValueError where the placement is not defined for such a model.
    """
    shape = shape_of(patient.stacks, stack)
    made = placement(shape)
    found: list[MatrixGain] = []
    for sublayer in stack.sublayers:
        matrices = matrices_of(patient, sublayer, shape.width)
        if matrices is None or sublayer.block == 0 or sublayer.kind == "convolution" or sublayer.kind == "mixer":
            continue
        site = Site(kind=sublayer.kind, block=sublayer.block, stack=shape)

        def gain(role: _MatrixRole, matrix: WeightMatrix, site: Site = site) -> MatrixGain:
            return MatrixGain(block=site.block, role=role, matrix=matrix, wanted=made.gain(role, site))

        found.append(gain("ffn_out" if site.kind == "feed_forward" else "output", matrices.last))
        found += [gain("ffn_in", matrix) for matrix in matrices.first]
        orders = [list(map(gain, roles, matrices.projections)) for roles in permutations(_PROJECTIONS)]
        found += next((order for order in orders if all(map(fits, order))), orders[0])
    return found


def typical(sizes: list[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(map(math.log, sizes)))
