"""The weight matrices of a sub-layer by what they are for, told by shape and order of use, never by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...placement import StackShape
from ..record import Stack, Sublayer
from .rules import Patient


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
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
class Matrices:
    """Those of one sub-layer."""

    projections: tuple[Matrix, ...]
    """Three of attention, in order of use: query, key and value, which of them is which is not known; else none."""
    first: tuple[Matrix, ...]
    """Of a feed-forward: all but the last (two where it is gated); of attention none."""
    last: Matrix
    """The one whose product joins the stream."""


def matrices_of(patient: Patient, sublayer: Sublayer, width: int) -> Matrices | None:
    """The matrices of a sub-layer; None where shapes and order do not tell which is which.

    Told are: attention with query, key and value matrices, packed into one (equal parts along its longer side), two or
    none, and an output matrix after them; feed-forwards of at least two matrices, the last of which is the output.
    """
    known = parameters_by_name(patient)
    used = [(name, known[name]) for name in sublayer.measured.parameters if name in known]
    weights = [(name, weight.detach()) for name, weight in used if weight.ndim == 2 and width in weight.shape]
    # Experts, convolutions and low-rank factors have weights of other shapes: what they are for is not told by order.
    strangers = [name for name, weight in used if weight.ndim > 2]
    if strangers or len(weights) < 2 or sublayer.kind in ("convolution", "mixer") or weights[-1][1].is_sparse:
        return None
    *before, last = weights
    if sublayer.kind == "feed_forward":
        return Matrices(
            projections=(), first=tuple(_whole(name, weight) for name, weight in before), last=_whole(*last)
        )
    parts = [part for name, weight in before for part in _parts(name, weight, width)]
    if len(parts) != 3:
        return None
    return Matrices(projections=tuple(parts), first=(), last=_whole(*last))


def parameters_by_name(patient: Patient) -> Mapping[str, Tensor]:
    """The model's parameters, those with several names under each of them."""
    return dict(patient.model.named_parameters(remove_duplicate=False))


def _parts(name: str, weight: Tensor, width: int) -> list[Matrix]:
    longer = int(weight.shape[1] > weight.shape[0])
    if weight.shape[1 - longer] != width or weight.shape[longer] not in (2 * width, 3 * width):
        return [_whole(name, weight)]
    parts = weight.shape[longer] // width
    rows = weight.T if longer else weight
    # Packed parts lie one after another, or head by head: then each row is told from the others by its size alone.
    return _together(name, rows.chunk(parts)) or [_whole(name, part) for part in rows.chunk(parts)]


_APART = 1.3
"""Sizes by which the rows of a packed matrix are told apart: a row of 32 entries strays from its deviation by 13 %."""


def _together(name: str, parts: Sequence[Tensor]) -> list[Matrix]:
    """The parts of a packed matrix in which they are interleaved, in order of their rows' sizes; none where not so."""
    sizes = [_size(part) for part in parts]
    rows = torch.cat(list(parts)).double()
    ordered = rows[rows.square().mean(1).argsort()].chunk(len(parts))
    spread = _size(ordered[-1]) / max(_size(ordered[0]), 1e-300)
    if max(sizes) > _APART * min(sizes) or spread < _APART**2 or rows.shape[1] < 32:
        return []
    return [_whole(name, part) for part in ordered]


def _whole(name: str, weight: Tensor) -> Matrix:
    return Matrix(parameter=name, deviation=_size(weight), outputs=weight.shape[0], inputs=weight.shape[1])


def _size(weight: Tensor) -> float:
    return float(torch.linalg.vector_norm(weight.float())) / math.sqrt(weight.numel())


def shape_of(stacks: Sequence[Stack], number: int) -> StackShape:
    """The shape under which a placement is read for a stack: a decoder's memory is the stack before it that has none.

    As when stacks are identified: what attends to no other stack is an encoder, and a decoder alone stands beside an
    encoder as deep as itself.
    """
    stack = stacks[number]
    crosses = [any(s.kind == "cross_attention" for s in one.sublayers) for one in stacks]
    encoder_blocks, decoder_blocks = stack.blocks, 0
    if crosses[number]:
        memories = [one.blocks for one, other in zip(stacks[:number], crosses[:number], strict=True) if not other]
        encoder_blocks, decoder_blocks = memories[-1] if memories else stack.blocks, stack.blocks
    else:
        readers = [one.blocks for one, other in zip(stacks[number:], crosses[number:], strict=True) if other]
        decoder_blocks = readers[0] if readers else 0
    return StackShape(
        kind="decoder" if crosses[number] else "encoder",
        width=stack.width,
        heads=2,
        encoder_blocks=encoder_blocks,
        decoder_blocks=decoder_blocks,
    )
