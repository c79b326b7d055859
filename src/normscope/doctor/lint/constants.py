"""Placements whose formula a stack has with other constants, and what these would be right for."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...placement import Placement, StackShape, SublayerKind, registered
from ...placement.base import ModelKind
from ..find.segments import Segment
from ..identify.candidates import blocks_of
from ..identify.matching import TOLERANCE, Outline, Structure, outline
from .matrices import shape_of
from .rules import Patient
from .structure import explained, in_blocks, kinds_of

DEEPEST = 100
"""Blocks up to which a depth is looked for that a constant would be right for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A placement whose formula a stack has, with other constants."""

    placement: type[Placement]
    found: tuple[float, ...]
    """One for each sub-layer, in order."""
    wanted: tuple[float, ...]
    source: str
    """Of what the found constants would be right; "" where that is not known."""


def near(patient: Patient, number: int) -> tuple[Near, ...]:
    """The placements that differ from a stack in the values of one constant alone.

    Empty where a registered placement has the stack's constants, or the stack has none.
    """
    stack = patient.stacks[number]
    inside = in_blocks(stack)
    observed = _outlines([sublayer.formula.segment for sublayer in inside])
    if not observed or explained(inside):
        return ()
    shape = shape_of(patient.stacks, number)
    found = []
    for placement in registered().values():
        formula = _Formula(placement=placement, kinds=kinds_of(stack))
        wanted = formula.outlines(shape, shape.blocks)
        if not _alike(observed, wanted):
            continue
        ((structure, slot),) = _slots(observed)
        numbers, expected = (_at(some, structure, slot) for some in (observed, wanted))
        source = formula.source(shape, numbers, structure, slot)
        found.append(Near(placement=placement, found=tuple(numbers), wanted=tuple(expected), source=source))
    return tuple(found)


def _outlines(pieces: Sequence[Segment]) -> list[Outline]:
    """Formulas as outlines; none where one of them has none."""
    made = [outline(piece) for piece in pieces]
    return [one for one in made if one is not None] if None not in made else []


def _slots(some: Sequence[Outline]) -> set[tuple[Structure, int]]:
    """Where a constant other than 1 stands in any of the formulas."""
    return {(one.structure, n) for one in some for n, number in enumerate(one.numbers) if not is_same(number, 1.0)}


def _at(some: Sequence[Outline], structure: Structure, slot: int) -> list[float]:
    return [one.numbers[slot] for one in some if one.structure == structure]


def _alike(observed: Sequence[Outline], wanted: Sequence[Outline]) -> bool:
    """Whether all formulas agree but for the values of constants that stand at one and the same place."""
    if len(observed) != len(wanted) or any(a.structure != b.structure for a, b in zip(observed, wanted, strict=True)):
        return False
    slots = _slots(observed)
    return len(slots) == 1 and slots == _slots(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formula:
    placement: type[Placement]
    kinds: Sequence[SublayerKind]

    def outlines(self, shape: StackShape, blocks: int) -> list[Outline]:
        """Over the first blocks of such a stack; empty where it has not one formula a sub-layer."""
        if shape.model not in self.placement.models:
            return []
        pieces = blocks_of(self.placement, shape, self.kinds, blocks)
        return _outlines(pieces) if len(pieces) == blocks * len(self.kinds) else []

    def source(self, shape: StackShape, numbers: Sequence[float], structure: Structure, slot: int) -> str:
        """Of which other stack, or count, the constants found would be those of the placement."""
        if not _all_same(numbers, [numbers[0]] * len(numbers)):
            return self._miscounted(shape, numbers, structure, slot)
        for text, other in _other_shapes(shape):
            wanted = _at(self.outlines(other, 1), structure, slot)
            if wanted and _all_same([numbers[0]] * len(wanted), wanted):
                return f"in {text}"
        return ""

    def _miscounted(self, shape: StackShape, numbers: Sequence[float], structure: Structure, slot: int) -> str:
        """Where constants change from block to block: whether blocks were counted from elsewhere, or sub-layers."""
        size, count = len(self.kinds), len(numbers)
        longer = (
            replace(shape, encoder_blocks=count + 1)
            if shape.kind == "encoder"
            else replace(shape, decoder_blocks=count + 1)
        )
        wanted = _at(self.outlines(longer, count + 1), structure, slot)
        by_block = wanted[::size]
        if len(wanted) < size * count:
            return ""
        if _all_same(numbers, [by_block[n // size + 1] for n in range(count)]):
            return "of the block after each: blocks are counted from 1, not from 2"
        if _all_same(numbers, by_block[:count]):
            return "of sub-layers counted one by one: blocks are counted"
        if _all_same(numbers, by_block[1 : count + 1]):
            return "of sub-layers counted one by one from 2: blocks are counted, from 1"
        power = _power(numbers, wanted[: len(numbers)])
        return f"raised to the power {power:.3g}: an exponent of another kind" if power else ""


def _power(numbers: Sequence[float], wanted: Sequence[float]) -> float:
    """The one power of all wanted constants that those found are; 0 where there is none, or too few to tell."""
    logs = [(math.log(a), math.log(b)) for a, b in zip(numbers, wanted, strict=True) if min(a, b) > 0 and a != b]
    power = logs[0][0] / logs[0][1] if len(logs) > 1 and logs[0][1] else 0.0
    fits = all(is_same(a, b**power) for a, b in zip(numbers, wanted, strict=True) if b > 0)
    return power if fits and len({b for _, b in logs}) > 1 else 0.0


def _all_same(numbers: Sequence[float], others: Sequence[float]) -> bool:
    return len(numbers) == len(others) and all(map(is_same, numbers, others))


def _other_shapes(shape: StackShape) -> Iterator[tuple[str, StackShape]]:
    kinds: tuple[ModelKind, ...] = ("encoder-only", "decoder-only", "encoder-decoder")
    # What is of the stack's own depth explains more than what is of another.
    depths = [shape.blocks, *(blocks for blocks in range(1, DEEPEST + 1) if blocks != shape.blocks)]
    for blocks in depths:
        for kind in sorted(kinds, key=lambda kind: kind != shape.model):
            encoder = 0 if kind == "decoder-only" else blocks
            decoder = 0 if kind == "encoder-only" else blocks
            for side in ("encoder", "decoder"):
                if (encoder if side == "encoder" else decoder) and kind == "encoder-decoder":
                    text = f"the {side} of an encoder-decoder of {blocks} + {blocks} blocks"
                elif side == kind.removesuffix("-only"):
                    text = f"a single stack of {blocks} blocks"
                else:
                    continue
                other = replace(shape, kind=side, encoder_blocks=encoder, decoder_blocks=decoder)
                yield text, other


def is_same(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)
