"""Formulas that do not agree: of blocks with each other, with the configuration, or with the
stack's depth.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Literal

from ....placement import Placement, Site, StackShape, SublayerKind, named, registered
from ...find.segments import Segment
from ...identify.candidates import blocks_of
from ...identify.matching import TOLERANCE, Outline, matches, outline
from ...identify.stacks import wired_like
from ...record import Stack, Sublayer
from ...result import Severity
from ..block_wirings import unlike_all
from ..patient import Patient, a_configured_placement, numbered
from ..rule import Fault, stack_rule
from ..structure import carries_norm, explained, in_blocks, kinds_of, shape_of, wanted
from . import wiring

_Structure = tuple[Any, ...]
"""The structure of an outline."""
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
    """The stack or count for which the constants found would be right; "" where that is not
    known.
    """


def near(patient: Patient, stack: Stack) -> tuple[_NearMiss, ...]:
    """Returns the placements that differ from a stack in the values of one constant alone.

    Empty where a registered placement has the stack's constants, or the stack has none.
    """
    inside = in_blocks(stack)
    observed = _outlines([sublayer.formula.segment for sublayer in inside])
    if len(slots := _slots(observed)) != 1 or explained(inside):
        return ()
    ((structure, slot),) = slots
    shape, kinds = shape_of(patient.stacks, stack), kinds_of(stack)
    found = []
    for placement in registered().values():

        def constants(
            shape: StackShape, blocks: int, of: type[Placement] = placement
        ) -> list[float]:
            return _at(_placed(of, kinds, shape, blocks), structure, slot)

        expected = _placed(placement, kinds, shape, shape.blocks)
        alike = [one.structure for one in observed] == [one.structure for one in expected]
        if alike and slots == _slots(expected):
            numbers = _at(observed, structure, slot)
            source = _source(shape, numbers, len(kinds), constants)
            wanted = tuple(_at(expected, structure, slot))
            found.append(
                _NearMiss(placement=placement, found=tuple(numbers), wanted=wanted, source=source)
            )
    return tuple(found)


def _outlines(pieces: Sequence[Segment]) -> list[Outline]:
    """Returns the formulas as outlines; none where one of them has none."""
    made = [outline(piece) for piece in pieces]
    return [one for one in made if one is not None] if None not in made else []


def _placed(
    placement: type[Placement], kinds: Sequence[SublayerKind], shape: StackShape, blocks: int
) -> list[Outline]:
    """A placement's over the first blocks of such a stack; empty where it has not one formula a
    sub-layer.
    """
    pieces = blocks_of(placement, shape, kinds, blocks) if shape.model in placement.models else []
    return _outlines(pieces) if len(pieces) == blocks * len(kinds) else []


def _slots(some: Sequence[Outline]) -> set[tuple[_Structure, int]]:
    """Returns the places of constants other than 1 in any of the formulas."""
    return {
        (one.structure, n)
        for one in some
        for n, number in enumerate(one.numbers)
        if not is_same(number, 1.0)
    }


def _at(some: Sequence[Outline], structure: _Structure, slot: int) -> list[float]:
    return [one.numbers[slot] for one in some if one.structure == structure]


def _source(
    shape: StackShape,
    numbers: Sequence[float],
    size: int,
    constants: Callable[[StackShape, int], list[float]],
) -> str:
    """Returns the other stack, or count, for which the constants found would be those of the
    placement.

    size: sub-layers of a block. constants: the placement's, over the first blocks of a stack of
    such a shape.
    """
    if not _all_same(numbers, [numbers[0]] * len(numbers)):
        return _miscounted(shape, numbers, size, constants)
    for text, other in _other_shapes(shape):
        wanted = constants(other, 1)
        if wanted and _all_same([numbers[0]] * len(wanted), wanted):
            return f"in {text}"
    return ""


def _miscounted(
    shape: StackShape,
    numbers: Sequence[float],
    size: int,
    constants: Callable[[StackShape, int], list[float]],
) -> str:
    """Describes constants that change from block to block: whether blocks were counted from another
    number, or sub-layers were.
    """
    count = len(numbers)
    encodes = shape.kind == "encoder"
    longer = (
        replace(shape, encoder_blocks=count + 1)
        if encodes
        else replace(shape, decoder_blocks=count + 1)
    )
    wanted = constants(longer, count + 1)
    by_block = wanted[::size]
    if len(wanted) < size * count:
        return ""
    if _all_same(numbers, [by_block[n // size + 1] for n in range(count)]):
        return "of the block after each: blocks are counted from 1, not from 2"
    if _all_same(numbers, by_block[:count]):
        return "of sub-layers counted one by one: blocks are counted"
    if _all_same(numbers, by_block[1 : count + 1]):
        return "of sub-layers counted one by one from 2: blocks are counted, from 1"
    power = _power(numbers, wanted[:count])
    return f"raised to the power {power:.3g}: an exponent of another kind" if power else ""


def _power(numbers: Sequence[float], wanted: Sequence[float]) -> float:
    """Returns the one power of all wanted constants that those found are; 0 where there is none, or
    too few to tell.
    """
    logs = [
        (math.log(a), math.log(b))
        for a, b in zip(numbers, wanted, strict=True)
        if min(a, b) > 0 and a != b
    ]
    power = logs[0][0] / logs[0][1] if len(logs) > 1 and logs[0][1] else 0.0
    fits = all(is_same(a, b**power) for a, b in zip(numbers, wanted, strict=True) if b > 0)
    return power if fits and len({b for _, b in logs}) > 1 else 0.0


def _all_same(numbers: Sequence[float], others: Sequence[float]) -> bool:
    return len(numbers) == len(others) and all(map(is_same, numbers, others))


def _other_shapes(shape: StackShape) -> Iterator[tuple[str, StackShape]]:
    kinds = ("encoder-only", "decoder-only", "encoder-decoder")
    # What is of the stack's own depth explains more than what is of another.
    depths = [shape.blocks, *(blocks for blocks in range(1, DEEPEST + 1) if blocks != shape.blocks)]
    for blocks, kind in product(depths, sorted(kinds, key=lambda kind: kind != shape.model)):
        encoder, decoder = (
            0 if kind == "decoder-only" else blocks,
            0 if kind == "encoder-only" else blocks,
        )
        sides: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder")
        for side in sides:
            text = f"a single stack of {blocks} blocks"
            if kind == "encoder-decoder":
                text = f"the {side} of an encoder-decoder of {blocks} + {blocks} blocks"
            elif side != kind.removesuffix("-only"):
                continue
            yield text, replace(shape, kind=side, encoder_blocks=encoder, decoder_blocks=decoder)


def is_same(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)


@stack_rule("mixed-placements")
def mixed_placements(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Blocks of one stack with different formulas that no registered placement has together."""
    inside = in_blocks(stack)
    # A mistake that is known by its name is told by that alone.
    known = any(True for _ in wiring.misplaced_step.check(patient))
    if (
        not known
        and not _is_a_mixture(patient, stack)
        and (odd := unlike_all(stack, patient.weights))
    ):
        yield odd
        return
    yield from _by_one_block(patient, stack)
    # Of a mean over depth every sub-layer reads one value more than the one before.
    over_depth = any(sublayer.formula.over_depth for sublayer in inside)
    if over_depth or explained(inside) or near(patient, stack) or carries_norm(patient, stack):
        return
    blocks = _by_formulas(inside)
    if len(blocks) > 1:
        few = min(blocks.values(), key=len)
        yield Fault(
            severity=Severity.WARNING if _is_a_slip(patient, stack, few) else Severity.INFO,
            where=[sublayer for sublayer in inside if sublayer.block in few],
            message="the blocks of one stack are wired differently, as no registered placement has "
            "them: "
            + "; ".join(
                f"{numbered(numbers)}: {', '.join(words)}" for words, numbers in blocks.items()
            ),
            fix="wire all blocks alike, or by the rule of a placement that mixes them, such as "
            f"Mix-LN's first ⌊L/4⌋ = {stack.blocks // 4} of {stack.blocks} blocks",
        )


def _is_a_mixture(patient: Patient, stack: Stack) -> bool:
    """Tells whether a registered placement that wires blocks in several ways explains a stack."""
    formula = wanted(patient, stack) if explained(in_blocks(stack)) else None
    return formula is not None and any(
        not matches(piece, formula.blocks[0]) for piece in formula.blocks
    )


def _by_one_block(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A mixture that a single block tells from Pre-LN, as Mix-LN of 4 to 7 blocks."""
    blocks = list(_by_formulas(in_blocks(stack)).values()) if _is_a_mixture(patient, stack) else []
    if len(blocks) != _MIXED or len(blocks[1]) != 1:
        return
    (odd,) = blocks[1]
    if (
        wired_like(
            replace(stack, sublayers=tuple(one for one in stack.sublayers if one.block != odd))
        )
        == "Pre-LN"
    ):
        title = named(stack.placement).title
        yield Fault(
            severity=Severity.INFO,
            where=[one for one in stack.sublayers if one.block == odd],
            message=(
                f"block {odd} of {stack.blocks} alone makes this {title}: the others are wired as "
                "Pre-LN too"
            ),
            fix=f"nothing, where {title} is meant; else wire block {odd} as the others",
        )


_MIXED = 2
"""Ways in which the blocks of a mixture are wired."""


def _is_a_slip(patient: Patient, stack: Stack, few: list[int]) -> bool:
    """Tells whether the blocks that differ stand where no design would have them, and are built
    like the others.

    Designs have them at the beginning (ModernBERT, Mix-LN), at the end, or every so often (Gemma 4,
    OLMo hybrid), and often with other matrices or with formulas of their own.
    """
    at_an_end = few in (
        list(range(1, len(few) + 1)),
        list(range(stack.blocks - len(few) + 1, stack.blocks + 1)),
    )
    steps = {b - a for a, b in pairwise(few)}
    every_so_often = len(steps) == 1 and (stack.blocks - len(few)) // max(steps) <= len(few)
    if at_an_end or every_so_often or any(not sublayer.placement for sublayer in in_blocks(stack)):
        return False
    weights = patient.weights
    shapes: defaultdict[int, list[object]] = defaultdict(list)
    for sublayer in stack.sublayers:
        shapes[sublayer.block] += [
            weights[name].shape for name in sublayer.measured.matrices if name in weights
        ]
    return all(
        shapes[block] in [shapes[other] for other in shapes if other not in few] for block in few
    )


def _by_formulas(inside: list[Sublayer]) -> dict[tuple[str, ...], list[int]]:
    """Returns the blocks by the formulas of their sub-layers, numbers and kinds left out; the
    commonest first.
    """
    blocks: defaultdict[int, list[str]] = defaultdict(list)
    for sublayer in inside:
        blocks[sublayer.block].append(
            str(sublayer.formula.outlined(numbers=bool(sublayer.placement)))
        )
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, texts in blocks.items():
        found[tuple(texts)].append(number)
    # What every sub-layer of a block has is said once.
    return {
        tuple(dict.fromkeys(key)): found[key]
        for key in sorted(found, key=lambda key: -len(found[key]))
    }


@stack_rule("placement-flag-contradicts", a_configured_placement, of_structure=True)
def flag_contradicts(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A configuration that names another placement than the model computes.

    Of one sub-layer alone it says nothing: that is a part of a backbone, or a network beside the
    blocks. What it cannot name may be the configured placement, in a form that was not understood:
    that contradicts nothing.
    """
    name, inside = patient.wanted_placement or "", in_blocks(stack)
    other = [sublayer for sublayer in inside if name not in (sublayer.placement, *sublayer.also)]
    if name not in registered() or not other or len(inside) == 1:
        return
    found = Counter(sublayer.placement or str(sublayer.formula) for sublayer in other).most_common(
        1
    )[0][0]
    says, of = (
        f"the configuration says {named(name).title} ({name})",
        f"{len(other)} of {len(inside)} sub-layers",
    )
    if found in registered():
        yield Fault(
            where=stack.name, message=f"{says}, but {of} are not: most of these compute {found}"
        )
    else:
        yield Fault(
            severity=Severity.INFO,
            where=stack.name,
            message=(
                f"{says}; {of} were not recognised as it, nor as another: most are read as {found}"
            ),
            fix="compare that formula with the placement's own: either they differ, or the doctor "
            "does not follow it in this model",
        )


@stack_rule("wrong-constants", of_structure=True)
def wrong_constants(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A placement's formula with constants of another depth, or of none."""
    # The constants of blocks that are run several times are not those of as many blocks.
    used = [one.measured.matrices for one in in_blocks(stack) if one.measured.matrices]
    several = near(patient, stack) if len(set(used)) == len(used) else ()
    if not several:
        return
    right = [one for one in several if one.source] or list(several)
    first = right[0]
    formula = in_blocks(stack)[0].formula
    wanted = "; ".join(f"{one.placement.title} has {_shown(one.wanted)}" for one in right)
    sources = [f"{one.placement.title}'s {one.source}" for one in right if one.source]
    source = " and ".join(sources) or "of no registered placement at any depth"
    by_block = len(set(first.wanted)) > 1
    swapped = [
        one
        for one in several
        if not one.source and _is_gain(patient, stack, one.placement, first.found)
    ]
    if swapped:
        source = (
            f"what {swapped[0].placement.title} multiplies initial weights with, in the place of "
            "its constant"
        )
    yield Fault(
        severity=Severity.WARNING if first.source or swapped else Severity.INFO,
        where=stack.name,
        message=f"{formula}: the constant is {_shown(first.found)}, {source}; with {stack.blocks} "
        f"blocks {wanted}",
        fix="compute it from the number of "
        + ("the block, counted from 1" if by_block else "blocks"),
    )


def _is_gain(
    patient: Patient, stack: Stack, placement: type[Placement], found: Sequence[float]
) -> bool:
    """Tells whether a constant is the one by which a placement scales its initial weights."""
    shape = shape_of(patient.stacks, stack)
    gain = placement(shape).gain("value", Site(kind="attention", block=1, stack=shape))
    return gain != 1 and all(abs(one / gain - 1) < _SAME_GAIN for one in found)


_SAME_GAIN = 1e-3


def _shown(numbers: Sequence[float]) -> str:
    if all(is_same(number, numbers[0]) for number in numbers):
        return f"{numbers[0]:.4g}"
    shown = ", ".join(f"{number:.3g}" for number in numbers[:6])
    return shown + (", …" if len(numbers) > 6 else "")
