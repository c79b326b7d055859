"""The measurements of a stack over depth: by sub-layer for pictures, and by block for a table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..measured import SublayerMeasurements
from ..record import Stack, StackTheory


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthColumn:
    """A column of the table: a block, or a sub-layer where the stack has only one block."""

    label: str
    members: tuple[int, ...]
    """Numbers of the sub-layers, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRow:
    """One quantity at every place of a stack."""

    name: str
    measured: tuple[float | None, ...]
    predicted: tuple[float | None, ...] | None
    """None where theory does not predict the quantity."""
    logarithmic: bool


def places(stack: Stack) -> list[_DepthColumn]:
    """The blocks from the first one on: what stands before it is left out."""
    blocks: dict[int, list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        if sublayer.block > 0:
            blocks.setdefault(sublayer.block, []).append(i)
    if len(blocks) == 1:
        (members,) = blocks.values()
        return [_DepthColumn(label=f"sub-layer {n}", members=(i,)) for n, i in enumerate(members, 1)]
    return [_DepthColumn(label=f"block {block}", members=tuple(members)) for block, members in blocks.items()]


def depth_rows(stack: Stack) -> list[DepthRow]:
    """Four quantities at every block: the stream's square and the similarity of its tokens where the block reads it,
    the mean energy ratio of the block's sub-layers, and the norm of their gradients as one vector."""
    where = places(stack)
    seen, predicted = [sublayer.measured for sublayer in stack.sublayers], stack.predicted
    return [
        _entering(stack, where, "stream E‖x‖²/d", True, lambda m: m.stream_square, lambda p: p.stream_square),
        _entering(stack, where, "token similarity", False, lambda m: m.correlation, lambda p: p.correlation),
        DepthRow(
            name="energy ratio F(x)",
            measured=tuple(math.fsum(seen[i].share for i in place.members) / len(place.members) for place in where),
            predicted=None,
            logarithmic=False,
        ),
        DepthRow(
            name="gradient norm",
            measured=tuple(together([seen[i].gradient_norm for i in place.members]) for place in where),
            predicted=None
            if predicted is None
            else tuple(together([predicted.gradient_norm[i] for i in place.members]) for place in where),
            logarithmic=True,
        ),
    ]


def _entering(
    stack: Stack,
    where: Sequence[_DepthColumn],
    name: str,
    logarithmic: bool,
    measured: Callable[[SublayerMeasurements], float | None],
    predicted: Callable[[StackTheory], Sequence[float]],
) -> DepthRow:
    """What is a number of the stream itself, where the first sub-layer of each place reads it."""
    first = [place.members[0] for place in where]
    theory = None if stack.predicted is None else predicted(stack.predicted)
    return DepthRow(
        name=name,
        measured=tuple(measured(stack.sublayers[i].measured) for i in first),
        predicted=None if theory is None else tuple(theory[i] for i in first),
        logarithmic=logarithmic,
    )


def together(norms: Sequence[float | None]) -> float | None:
    """The norm of several gradients as one vector; None where a norm is not known."""
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if len(known) == len(norms) else None


def depths(stack: Stack) -> list[float | None]:
    """How many blocks are completed where each sub-layer reads the stream, with fractions inside a block.

    None stands for sub-layers before the first block. In a stack of one block, completed sub-layers are counted
    instead. Parallel sub-layers of a block read at one place.
    """
    where: list[float | None] = [None] * len(stack.sublayers)
    blocks: dict[int, list[int]] = {}
    for i, found in enumerate(stack.sublayers):
        blocks.setdefault(found.block, []).append(i)
    single = len(blocks.keys() - {0}) == 1
    for block, members in blocks.items():
        if block == 0:
            continue
        slots = _slots([stack.sublayers[i].parallel for i in members])
        for i, slot in zip(members, slots, strict=True):
            where[i] = float(slot) if single else block - 1 + slot / (slots[-1] + 1)
    return where


def _slots(parallel: Sequence[bool]) -> list[int]:
    """The order in which sub-layers read the stream: one slot each, except that parallel neighbours share a slot."""
    slots: list[int] = []
    for i, beside in enumerate(parallel):
        if i == 0:
            slots.append(0)
        else:
            slots.append(slots[-1] if beside and parallel[i - 1] else slots[-1] + 1)
    return slots


def finite(value: float | None) -> float | None:
    """Return the value, or None where no axis can show it."""
    return value if value is not None and math.isfinite(value) else None


def positive(value: float | None) -> float | None:
    """Return the value, or None where no logarithmic axis can show it."""
    return value if value is not None and 0 < value < math.inf else None
