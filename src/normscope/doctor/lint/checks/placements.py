"""Formulas that do not agree: of blocks with each other, with the configuration, or with the stack's depth."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ....placement import Placement, Site, StackShape, SublayerKind, named, registered
from ....placement.base import ModelKind
from ....placement.printing import ranges
from ...find.segments import Segment
from ...identify.candidates import blocks_of
from ...identify.matching import TOLERANCE, Outline, matches, outline
from ...identify.stacks import wired_like
from ...record import Stack, Sublayer
from ...result import Severity
from ..block_wirings import unlike_all
from ..patient import Patient, a_configured_placement
from ..rule import Fault, rule, stack_rule
from ..structure import carries_norm, explained, in_blocks, kinds_of, shape_of, wanted
from . import wiring

_Structure = tuple[Any, ...]
"""Of an outline."""
DEEPEST = 100
"""Blocks up to which a depth is looked for that a constant would be right for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NearMiss:
    """A placement whose formula a stack has, with other constants."""

    placement: type[Placement]
    found: tuple[float, ...]
    """One for each sub-layer, in order."""
    wanted: tuple[float, ...]
    source: str
    """Of what the found constants would be right; "" where that is not known."""


def near(patient: Patient, stack: Stack) -> tuple[_NearMiss, ...]:
    """The placements that differ from a stack in the values of one constant alone.

    Empty where a registered placement has the stack's constants, or the stack has none.
    """
    inside = in_blocks(stack)
    observed = _outlines([sublayer.formula.segment for sublayer in inside])
    if not observed or explained(inside):
        return ()
    shape = shape_of(patient.stacks, stack)
    found = []
    for placement in registered().values():
        formula = _Formula(placement=placement, kinds=kinds_of(stack))
        wanted = formula.outlines(shape, shape.blocks)
        if not _alike(observed, wanted):
            continue
        ((structure, slot),) = _slots(observed)
        numbers, expected = (_at(some, structure, slot) for some in (observed, wanted))
        source = formula.source(shape, numbers, structure, slot)
        found.append(_NearMiss(placement=placement, found=tuple(numbers), wanted=tuple(expected), source=source))
    return tuple(found)


def _outlines(pieces: Sequence[Segment]) -> list[Outline]:
    """Formulas as outlines; none where one of them has none."""
    made = [outline(piece) for piece in pieces]
    return [one for one in made if one is not None] if None not in made else []


def _slots(some: Sequence[Outline]) -> set[tuple[_Structure, int]]:
    """Where a constant other than 1 stands in any of the formulas."""
    return {(one.structure, n) for one in some for n, number in enumerate(one.numbers) if not is_same(number, 1.0)}


def _at(some: Sequence[Outline], structure: _Structure, slot: int) -> list[float]:
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

    def source(self, shape: StackShape, numbers: Sequence[float], structure: _Structure, slot: int) -> str:
        """Of which other stack, or count, the constants found would be those of the placement."""
        if not _all_same(numbers, [numbers[0]] * len(numbers)):
            return self._miscounted(shape, numbers, structure, slot)
        for text, other in _other_shapes(shape):
            wanted = _at(self.outlines(other, 1), structure, slot)
            if wanted and _all_same([numbers[0]] * len(wanted), wanted):
                return f"in {text}"
        return ""

    def _miscounted(self, shape: StackShape, numbers: Sequence[float], structure: _Structure, slot: int) -> str:
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


@rule("mixed-placements")
def mixed_placements(patient: Patient) -> Iterator[Fault]:
    """Blocks of one stack with different formulas that no registered placement has together."""
    shapes = {name: tuple(weight.shape) for name, weight in patient.weights.items()}
    for stack in patient.stacks:
        inside = in_blocks(stack)
        # A mistake that is known by its name is told by that alone.
        known = any(True for _ in wiring.misplaced_step.check(patient))
        if not known and not _is_a_mixture(patient, stack) and (odd := unlike_all(stack, shapes)):
            yield odd
            continue
        yield from _by_one_block(patient, stack)
        if explained(inside) or near(patient, stack) or carries_norm(patient, stack):
            continue
        # Of a mean over depth every sub-layer reads one value more than the one before.
        if any(sublayer.formula.over_depth for sublayer in inside):
            continue
        blocks = _by_formulas(inside)
        if len(blocks) > 1:
            parts = [
                f"block{'s' if len(numbers) > 1 else ''} {ranges(numbers)}: {', '.join(words)}"
                for words, numbers in blocks.items()
            ]
            few = min(blocks.values(), key=len)
            yield Fault(
                severity=Severity.WARNING if _is_a_slip(patient, stack, few) else Severity.INFO,
                where=[sublayer for sublayer in inside if sublayer.block in few],
                message="the blocks of one stack are wired differently, as no registered placement has them: "
                + "; ".join(parts),
                fix="wire all blocks alike, or by the rule of a placement that mixes them, such as Mix-LN's first "
                f"⌊L/4⌋ = {stack.blocks // 4} of {stack.blocks} blocks",
            )


def _is_a_mixture(patient: Patient, stack: Stack) -> bool:
    """Whether a registered placement that wires blocks in several ways explains a stack."""
    formula = wanted(patient, stack) if explained(in_blocks(stack)) else None
    return formula is not None and any(not matches(piece, formula.blocks[0]) for piece in formula.blocks)


def _by_one_block(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A mixture that a single block tells from Pre-LN, as Mix-LN of 4 to 7 blocks."""
    blocks = list(_by_formulas(in_blocks(stack)).values()) if _is_a_mixture(patient, stack) else []
    if len(blocks) != _MIXED or len(blocks[1]) != 1:
        return
    (odd,) = blocks[1]
    if wired_like(replace(stack, sublayers=tuple(one for one in stack.sublayers if one.block != odd))) == "Pre-LN":
        title = named(stack.placement).title
        yield Fault(
            severity=Severity.INFO,
            where=[one for one in stack.sublayers if one.block == odd],
            message=f"block {odd} of {stack.blocks} alone makes this {title}: the others are wired as Pre-LN too",
            fix=f"nothing, where {title} is meant; else wire block {odd} as the others",
        )


_MIXED = 2
"""Ways in which the blocks of a mixture are wired."""


def _is_a_slip(patient: Patient, stack: Stack, few: list[int]) -> bool:
    """Whether the blocks that differ are in no place where a design would have them, and built like the others.

    Designs have them at the beginning (ModernBERT, Mix-LN), at the end, or every so often (Gemma 4, OLMo hybrid), and
    often with other matrices or with formulas of their own.
    """
    at_an_end = few in (list(range(1, len(few) + 1)), list(range(stack.blocks - len(few) + 1, stack.blocks + 1)))
    steps = {b - a for a, b in pairwise(few)}
    every_so_often = len(steps) == 1 and (stack.blocks - len(few)) // max(steps) <= len(few)
    if at_an_end or every_so_often or any(not sublayer.placement for sublayer in in_blocks(stack)):
        return False
    weights = patient.weights
    shapes: dict[int, list[tuple[int, ...]]] = {}
    for sublayer in stack.sublayers:
        names = sublayer.measured.matrices
        shapes.setdefault(sublayer.block, []).extend(tuple(weights[n].shape) for n in names if n in weights)
    return all(shapes[block] in [shapes[other] for other in shapes if other not in few] for block in few)


def _by_formulas(inside: list[Sublayer]) -> dict[tuple[str, ...], list[int]]:
    """Blocks by the formulas of their sub-layers, numbers and kinds left out; the commonest first."""
    blocks: dict[int, list[str]] = {}
    for sublayer in inside:
        shown = sublayer.formula.outlined(numbers=bool(sublayer.placement))
        blocks.setdefault(sublayer.block, []).append(str(shown))
    found: dict[tuple[str, ...], list[int]] = {}
    for number, texts in blocks.items():
        found.setdefault(tuple(texts), []).append(number)
    order = Counter({key: len(numbers) for key, numbers in found.items()}).most_common()
    # What every sub-layer of a block has is said once.
    return {tuple(dict.fromkeys(key)): found[key] for key, _ in order}


@rule("placement-flag-contradicts", a_configured_placement, of_structure=True)
def flag_contradicts(patient: Patient) -> Iterator[Fault]:
    """A configuration that names another placement than the model computes.

    Of one sub-layer alone it says nothing: that is a part of a backbone, or a network beside the blocks. What it cannot
    name may be the configured placement, in a form that was not understood: that contradicts nothing.
    """
    name = patient.wanted_placement
    if name is None or name not in registered():
        return
    for stack in patient.stacks:
        inside = in_blocks(stack)
        other = [sublayer for sublayer in inside if name not in (sublayer.placement, *sublayer.also)]
        if other and len(inside) > 1:
            found = Counter(sublayer.placement or str(sublayer.formula) for sublayer in other).most_common(1)[0][0]
            says = f"the configuration says {named(name).title} ({name})"
            of = f"{len(other)} of {len(inside)} sub-layers"
            if found in registered():
                yield Fault(
                    where=stack.name,
                    message=f"{says}, but {of} are not: most of these compute {found}",
                    fix="correct the configuration, or whatever reads it: weights trained under one placement are of "
                    "no use under another",
                )
            else:
                yield Fault(
                    severity=Severity.INFO,
                    where=stack.name,
                    message=f"{says}; {of} were not recognised as it, nor as another: most are read as {found}",
                    fix="compare that formula with the placement's own: either they differ, or the doctor does not "
                    "follow it in this model",
                )


@stack_rule("wrong-constants", of_structure=True)
def wrong_constants(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A placement's formula with constants of another depth, or of none."""
    several = near(patient, stack)
    if not several:
        return
    right = [one for one in several if one.source] or list(several)
    first = right[0]
    formula = in_blocks(stack)[0].formula
    wanted = "; ".join(f"{one.placement.title} has {_shown(one.wanted)}" for one in right)
    sources = [f"{one.placement.title}'s {one.source}" for one in right if one.source]
    source = " and ".join(sources) or "of no registered placement at any depth"
    by_block = len(set(first.wanted)) > 1
    swapped = [one for one in several if not one.source and _is_gain(patient, stack, one.placement, first.found)]
    if swapped:
        source = f"what {swapped[0].placement.title} multiplies initial weights with, in the place of its constant"
    yield Fault(
        severity=Severity.WARNING if first.source or swapped else Severity.INFO,
        where=stack.name,
        message=f"{formula}: the constant is {_shown(first.found)}, {source}; with {stack.blocks} blocks {wanted}",
        fix="compute it from the number of " + ("the block, counted from 1" if by_block else "blocks"),
    )


def _is_gain(patient: Patient, stack: Stack, placement: type[Placement], found: Sequence[float]) -> bool:
    """Whether a constant is the one by which a placement draws its weights."""
    shape = shape_of(patient.stacks, stack)
    gain = placement(shape).gain("value", Site(kind="attention", block=1, stack=shape))
    return gain != 1 and all(abs(one / gain - 1) < _SAME_GAIN for one in found)


_SAME_GAIN = 1e-3


def _shown(numbers: Sequence[float]) -> str:
    if all(is_same(number, numbers[0]) for number in numbers):
        return f"{numbers[0]:.4g}"
    shown = ", ".join(f"{number:.3g}" for number in numbers[:6])
    return shown + (", …" if len(numbers) > 6 else "")
