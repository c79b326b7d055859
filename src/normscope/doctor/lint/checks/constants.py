"""Constants of a formula that are not those of the stack's depth."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....placement import Placement, StackShape, SublayerKind, registered
from ....placement.base import ModelKind
from ....report.doctor.contents import Finding, Severity
from ...identify.candidates import blocks_of
from ...identify.constants import Read, read_formula
from ...identify.formulas import formula_text
from ...identify.matching import TOLERANCE
from ..matrices import shape_of
from ..rules import Patient, Rule
from ..structure import explained, in_blocks, kinds_of

KIND = re.compile(r"cross_attention|attention|feed_forward|convolution|mixer")
"""As formulas name their sub-layers."""
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
    observed = _read([sublayer.formula for sublayer in inside])
    if not observed or explained(inside):
        return ()
    shape = shape_of(patient.stacks, number)
    found = []
    for placement in registered().values():
        formula = _Formula(placement=placement, kinds=kinds_of(stack))
        wanted = formula.read(shape, shape.blocks)
        if not _alike(observed, wanted):
            continue
        ((structure, slot),) = _slots(observed)
        numbers, expected = (_at(read, structure, slot) for read in (observed, wanted))
        source = formula.source(shape, numbers, structure, slot)
        found.append(Near(placement=placement, found=tuple(numbers), wanted=tuple(expected), source=source))
    return tuple(found)


def _read(formulas: Sequence[str]) -> list[Read]:
    """Formulas without the kinds of their sub-layers; none where one of them is not in known words."""
    read = [read_formula(KIND.sub("F", formula)) for formula in formulas]
    return [one for one in read if one is not None] if None not in read else []


def _slots(read: Sequence[Read]) -> set[tuple[str, int]]:
    """Where a constant other than 1 stands in any of the formulas."""
    return {(one.structure, n) for one in read for n, factor in enumerate(one.factors) if not _same(factor, 1.0)}


def _at(read: Sequence[Read], structure: str, slot: int) -> list[float]:
    return [one.factors[slot] for one in read if one.structure == structure]


def _alike(observed: Sequence[Read], wanted: Sequence[Read]) -> bool:
    """Whether all formulas agree but for the values of constants that stand at one and the same place."""
    if len(observed) != len(wanted) or any(a.structure != b.structure for a, b in zip(observed, wanted, strict=True)):
        return False
    slots = _slots(observed)
    return len(slots) == 1 and slots == _slots(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formula:
    placement: type[Placement]
    kinds: Sequence[SublayerKind]

    def read(self, shape: StackShape, blocks: int) -> list[Read]:
        """Over the first blocks of such a stack; empty where it has not one formula a sub-layer."""
        if shape.model not in self.placement.models:
            return []
        pieces = blocks_of(self.placement, shape, self.kinds, blocks)
        return _read([formula_text(piece) for piece in pieces]) if len(pieces) == blocks * len(self.kinds) else []

    def source(self, shape: StackShape, numbers: Sequence[float], structure: str, slot: int) -> str:
        """Of which other stack, or count, the constants found would be those of the placement."""
        if not _all_same(numbers, [numbers[0]] * len(numbers)):
            return self._miscounted(shape, numbers, structure, slot)
        for text, other in _other_shapes(shape):
            wanted = _at(self.read(other, 1), structure, slot)
            if wanted and _all_same([numbers[0]] * len(wanted), wanted):
                return f"in {text}"
        return ""

    def _miscounted(self, shape: StackShape, numbers: Sequence[float], structure: str, slot: int) -> str:
        """Where constants change from block to block: whether blocks were counted from elsewhere, or sub-layers."""
        size, count = len(self.kinds), len(numbers)
        longer = (
            replace(shape, encoder_blocks=count + 1)
            if shape.kind == "encoder"
            else replace(shape, decoder_blocks=count + 1)
        )
        wanted = _at(self.read(longer, count + 1), structure, slot)
        by_block = wanted[::size]
        if len(wanted) < size * count:
            return ""
        if _all_same(numbers, [by_block[n // size + 1] for n in range(count)]):
            return "of the block after each: blocks are counted from 1, not from 2"
        if _all_same(numbers, by_block[:count]):
            return "of sub-layers counted one by one: blocks are counted"
        if _all_same(numbers, by_block[1 : count + 1]):
            return "of sub-layers counted one by one from 2: blocks are counted, from 1"
        return ""


def _all_same(numbers: Sequence[float], others: Sequence[float]) -> bool:
    return len(numbers) == len(others) and all(map(_same, numbers, others))


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


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)


def wrong_constants(patient: Patient) -> Iterator[Finding]:
    """A placement's formula with constants of another depth, or of none."""
    for number, stack in enumerate(patient.stacks):
        several = near(patient, number)
        if not several:
            continue
        right = [one for one in several if one.source] or list(several)
        first = right[0]
        formula = in_blocks(stack)[0].formula
        wanted = "; ".join(f"{one.placement.title} has {_said(one.wanted)}" for one in right)
        sources = [f"{one.placement.title}'s {one.source}" for one in right if one.source]
        source = " and ".join(sources) or "of no registered placement at any depth"
        by_block = len(set(first.wanted)) > 1
        yield Finding(
            id="wrong-constants",
            severity=Severity.WARNING if first.source else Severity.INFO,
            where=stack.name,
            message=f"{formula}: the constant is {_said(first.found)}, {source}; with {stack.blocks} blocks {wanted}",
            fix="compute it from the number of " + ("the block, counted from 1" if by_block else "blocks"),
        )


def _said(numbers: Sequence[float]) -> str:
    if all(_same(number, numbers[0]) for number in numbers):
        return f"{numbers[0]:.4g}"
    shown = ", ".join(f"{number:.3g}" for number in numbers[:6])
    return shown + (", …" if len(numbers) > 6 else "")


RULES = (
    Rule(
        id="wrong-constants",
        severity=Severity.WARNING,
        title="A constant of another depth",
        explanation="Scales such as DeepNorm's are functions of the number of blocks, and differ between the stacks of "
        "an encoder-decoder; written as a number they are right for one model only.",
        reference="Wang et al. 2022, arXiv:2203.00555, figure 2; github.com/pixeli99/MixLN: 2.8284 at every depth; "
        "Sun et al. 2025, arXiv:2502.05795, section 3: blocks counted from 1",
        check=wrong_constants,
    ),
)
