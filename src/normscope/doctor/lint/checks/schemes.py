"""The scheme that the initial weights follow, and the places where half of them follow another one,
or another depth.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from torch import nn

from ....placement import named
from ...record import Stack
from ...result import Severity
from .. import initial_schemes as laws
from ..initial_schemes import WIDTH_LAWS, DrawnAlike, WidthLaw
from ..patient import Patient, initial_weights, numbered
from ..rule import Fault, stack_rule

_LEAST_BLOCKS = 3
"""The fewest blocks: with fewer, √(2L) is too near to other factors."""
_DEEP = 12
"""Blocks from which on weights that are not divided by depth are worth a note."""
_CLOSED = 0.6
"""The share of GPT-2's deviation for this depth below which weights were divided for a much deeper
stack.
"""
_VARIANCE = 1e-3
"""A deviation below every one in use: 0.02 over √(2 · 96) is 0.0014, and outputs alone are divided
so.
"""
_WAITING = 1e-6
"""The deviation below which weights wait for a checkpoint, as SAM's at 1e-10 do."""
_FAR = 25.0
"""Factor between purposes beyond what depth, width of heads or inputs make."""
_ROUND = (0.5, 0.25, 0.1)
"""Ratios that somebody may have chosen, and no depth."""


@stack_rule("initial-scheme", initial_weights)
def initial_scheme(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Stacks that are drawn by half of a scheme; and, as a note, by several, or without the
    division of a deep one.
    """
    placement = named(stack.placement) if stack.placement else None
    # Where the placement has a scheme of its own, another rule compares with it.
    if stack.blocks > 1 and not (placement and placement.initialisation.startswith("xavier-")):
        yield from _of_stack(patient, stack)


def _of_stack(patient: Patient, stack: Stack) -> Iterator[Fault]:
    groups = laws.drawn_alike(patient, stack)
    if not groups:
        return
    usual = {group.purpose: median(group.sizes) for group in groups}
    # What joins the stream may start next to 0.
    inside = [group.purpose for group in groups if not group.joins] or list(usual)
    largest, least = max(inside, key=usual.__getitem__), min(inside, key=usual.__getitem__)
    if _WAITING < usual[largest] < _VARIANCE:
        yield Fault(
            where=stack.name,
            message=(
                f"all matrices of the {stack.blocks} blocks start at {usual[largest]:.2g} or less, "
                f"where no scheme draws so small: {usual[largest]:.2g} is the square of "
                f"{usual[largest] ** 0.5:.2g}, as where a variance is given for a deviation"
            ),
            fix="draw them at 0.02, or at 1/√(inputs)",
        )
        return
    if usual[least] and usual[largest] > _FAR * usual[least]:
        yield Fault(
            where=[name for group in groups if group.purpose == largest for name in group.names],
            message=f"{largest} start at {usual[largest]:.3g}, {usual[largest] / usual[least]:.0f} "
            f"times larger than {least}, at {usual[least]:.3g}: no scheme has them so far apart",
            fix="draw all matrices by one scheme",
        )
        return
    split = [
        (group, laws.split_in_two(group)) for group in groups if len(group.sizes) > _LEAST_BLOCKS
    ]
    # Experts are several of one purpose in each block.
    split = [
        (group, parts)
        for group, parts in split
        if parts[0] and len(set(group.blocks)) == len(group.blocks)
    ]
    if split:
        yield from _blocks_apart(stack, split)
        return
    inner, outer = ([group for group in groups if group.joins == joins] for joins in (False, True))
    law = laws.width_law(inner, stack.width)
    if (
        law is None
        and stack.blocks >= _LEAST_BLOCKS
        and (fault := _inner_divided(stack, inner, outer))
    ):
        yield fault
    elif law is None:
        yield from _by_purpose(patient, stack, groups)
    if law is None:
        return
    fault = (
        _misdivided(patient, stack, law, inner, outer) if stack.blocks >= _LEAST_BLOCKS else None
    )
    yield from [fault] if fault else _undivided(stack, law, outer)


def _blocks_apart(
    stack: Stack, split: Sequence[tuple[DrawnAlike, tuple[list[int], list[int]]]]
) -> Iterator[Fault]:
    group, (low, high) = split[0]
    small, large = group.sizes[low[0]], group.sizes[high[0]]
    depth = abs(large / small / math.sqrt(2 * stack.blocks) - 1) < 0.05
    yield Fault(
        where=[group.names[place] for place in (low if len(low) <= len(high) else high)],
        message=f"{group.purpose} start at {small:.3g} in "
        f"{numbered([group.blocks[place] for place in low])} and at {large:.3g} in "
        f"{numbered([group.blocks[place] for place in high])}"
        + (
            f", √(2 · {stack.blocks}) = {math.sqrt(2 * stack.blocks):.3g} times as much"
            if depth
            else ""
        )
        + (f"; so do {len(split) - 1} more purposes" if len(split) > 1 else ""),
        fix="draw all blocks by one scheme"
        + (": divide these weights by √(2L) in every block, or in none" if depth else ""),
    )


def _by_purpose(patient: Patient, stack: Stack, groups: Sequence[DrawnAlike]) -> Iterator[Fault]:
    """Reports the initialisation that no one law explains, each purpose by its own law, where every
    one has a law.
    """
    own = [
        next((law for law in WIDTH_LAWS if law.fits(group, stack.width)), None) for group in groups
    ]
    # torch's own attention has one scheme inside a layer of another.
    stock = any(isinstance(module, nn.MultiheadAttention) for module in patient.model.modules())
    if all(own) and not stock:
        said = {
            law.title: [g.purpose for g, of in zip(groups, own, strict=True) if of is law]
            for law in own
            if law
        }
        yield Fault(
            severity=Severity.INFO,
            where=stack.name,
            message="initial weights by several schemes: "
            + "; ".join(f"{', '.join(purposes)} at {title}" for title, purposes in said.items()),
            fix="nothing, where this is meant; else draw all matrices by one scheme",
        )


def _misdivided(
    patient: Patient,
    stack: Stack,
    law: WidthLaw,
    inner: Sequence[DrawnAlike],
    outer: Sequence[DrawnAlike],
) -> Fault | None:
    """Division by depth of one kind of sub-layer, twice, of all weights, or for another depth.

    inner: weights that read the stream. outer: those whose products join it.
    """
    return (
        _divided_in_part(stack, law, outer)
        or _divided_twice(stack, law, outer)
        or _all_divided(patient, stack, law, inner, outer)
        or _divided_for_other_depth(stack, law, outer)
    )


def _divided_in_part(stack: Stack, law: WidthLaw, outer: Sequence[DrawnAlike]) -> Fault | None:
    """Division by depth of one kind of sub-layer alone."""
    divided = [group for group in outer if laws.depth_factor(group, law, stack).startswith("√")]
    whole = [group for group in outer if laws.depth_factor(group, law, stack) == "1"]
    if not divided or not whole:
        return None
    root = math.sqrt(2 * stack.blocks)
    return Fault(
        where=[name for group in whole for name in group.names],
        message=f"{_purposes(divided)} start at {divided[0].size:.3g}, {law.title} over "
        f"{laws.depth_factor(divided[0], law, stack)}, and {_purposes(whole)} undivided at "
        f"{whole[0].size:.3g}: what the latter add makes the stream alone, in all of "
        f"{stack.blocks} blocks",
        fix=f"divide both by √(2L) = {root:.3g}, as GPT-2 does, or neither",
    )


def _divided_twice(stack: Stack, law: WidthLaw, outer: Sequence[DrawnAlike]) -> Fault | None:
    """Division by depth that was done two times."""
    root = math.sqrt(2 * stack.blocks)
    twice = [group for group in outer if group.at(law.wanted(group, stack.width)[0] / root**2)]
    if not twice:
        return None
    group = twice[0]
    wanted = law.wanted(group, stack.width)[0]
    return Fault(
        where=[name for one in twice for name in one.names],
        message=f"{_purposes(twice)} start at {group.size:.3g}, {wanted:.3g} over {root**2:.3g} = "
        f"√(2 · {stack.blocks})²: it was divided twice by √(2L)",
        fix=f"divide once: a deviation of {wanted / root:.3g}",
    )


def _all_divided(
    patient: Patient,
    stack: Stack,
    law: WidthLaw,
    inner: Sequence[DrawnAlike],
    outer: Sequence[DrawnAlike],
) -> Fault | None:
    """Division by depth of all weights, those that read the stream among them."""
    # A law that needs no division is the likelier one: He's over √(2 · 3) is torch's default.
    if law in WIDTH_LAWS or not outer:
        return None
    if any(laws.depth_factor(group, law, stack) != "1" for group in outer):
        return None
    base = _divided_base(patient, stack, inner, outer)
    if base is None:
        return None
    title, size = base
    root = math.sqrt(2 * stack.blocks)
    return Fault(
        where=stack.name,
        message=f"every matrix of the {stack.blocks} blocks starts at {title} over √(2 · "
        f"{stack.blocks}) = {root:.3g}, those that read the stream too "
        f"({inner[0].size:.3g} in place of {size:.3g})",
        fix=f"divide only the matrices whose products join the stream ({_purposes(outer)}), "
        f"and draw the others at {size:.3g}",
    )


def _divided_for_other_depth(
    stack: Stack, law: WidthLaw, outer: Sequence[DrawnAlike]
) -> Fault | None:
    """Division by the depth of another stack, as of a deeper one whose recipe was copied."""
    if not outer:
        return None
    root = math.sqrt(2 * stack.blocks)
    small = [group.size / law.wanted(group, stack.width)[0] * root for group in outer]
    chosen = any(abs(small[0] / root / one - 1) < 0.01 for one in _ROUND)
    several = len(outer) > 1
    deeper = several and not chosen and max(small) < min(_CLOSED, 1.05 * min(small))
    wanted = law.wanted(outer[0], stack.width)[0] if several else 0.0
    if deeper and law is WIDTH_LAWS[0]:
        blocks = round((root / max(small)) ** 2 / 2)
        told = (
            f"{law.title} over {root / max(small):.3g}: with √(2L) that is the scheme of {blocks} "
            f"blocks, and here are {stack.blocks}"
        )
    elif wanted and (depth := _other_depth(stack, law, outer)):
        told = (
            f"{wanted:.3g} over √(2 · {depth}): the scheme of {depth} blocks, and here are "
            f"{stack.blocks} with a sum after each of two sub-layers"
        )
    else:
        return None
    return Fault(
        where=[name for group in outer for name in group.names],
        message=f"{_purposes(outer)} start at {outer[0].size:.3g}, {told}",
        fix=f"divide by √(2 · {stack.blocks}) = {root:.3g}: a deviation of {wanted / root:.3g}",
    )


def _inner_divided(
    stack: Stack, inner: Sequence[DrawnAlike], outer: Sequence[DrawnAlike]
) -> Fault | None:
    """Division by depth of a matrix that reads the stream, in the place of the one whose product
    joins it.
    """
    law = laws.width_law([group for group in inner if group.projects], stack.width)
    if law is None:
        return None
    root = math.sqrt(2 * stack.blocks)
    divided = [group for group in inner if group.at(law.wanted(group, stack.width)[0] / root)]
    whole = [group for group in outer if law.fits(group, stack.width)]
    if not divided or not whole or 2 * stack.blocks in _head_widths(stack):
        # Of heads as wide as 2L the division may be that of T5's queries, by √d of a head.
        return None
    return Fault(
        where=[name for group in (*divided, *whole) for name in group.names],
        message=f"{_purposes(divided)} start at {divided[0].size:.3g}, {law.title} over √(2 · "
        f"{stack.blocks}), and {_purposes(whole)} undivided at {whole[0].size:.3g}: the "
        "division is at the matrix that reads the stream, and not at the one whose product "
        "joins it",
        fix=f"divide {_purposes(whole)} by √(2L) = {root:.3g}, and draw {_purposes(divided)} as "
        "all others",
    )


def _head_widths(stack: Stack) -> set[int]:
    seen = [one.measured.attention for one in stack.sublayers]
    return {one.head_width for one in seen if one is not None}


def _divided_base(
    patient: Patient, stack: Stack, inner: Sequence[DrawnAlike], outer: Sequence[DrawnAlike]
) -> tuple[str, float] | None:
    """Returns the law of width that all matrices follow once each is multiplied by √(2L), with its
    size for the first.
    """
    root = math.sqrt(2 * stack.blocks)
    tables = [
        patient.size_of(p)
        for p in patient.model.parameters()
        if p.ndim == 2 and stack.width in p.shape
    ]
    for law in WIDTH_LAWS:
        wanted = [(group, law.wanted(group, stack.width)[0]) for group in (*inner, *outer)]
        size = wanted[0][1]
        # Any other law than the usual one may be a coincidence, unless another matrix of the model
        # has it undivided.
        known = size == laws.USUAL or any(abs(table / size - 1) < 0.02 for table in tables)
        if known and all(group.at(size / root) for group, size in wanted):
            return law.title, size
    return None


def _other_depth(stack: Stack, law: WidthLaw, outer: Sequence[DrawnAlike]) -> int | None:
    """Returns the number of blocks for which these weights would be divided by √(2L); None where it
    is none, or their own.
    """
    sums = sum(sublayer.block > 0 and not sublayer.parallel for sublayer in stack.sublayers)
    known = {laws.depth_factor(group, law, stack) for group in outer} - {f"√{stack.blocks}", ""}
    if known or sums < 2 * stack.blocks:
        return None
    ratio = math.sqrt(fmean(law.ratio(group, stack.width) ** 2 for group in outer))
    depth = round(1 / (2 * ratio**2))
    # The mean square of n draws strays by √(2/n); where that is half a block, it tells no depth.
    strays = 0.01 + 2 * math.sqrt(2 / sum(group.entries * len(group.sizes) for group in outer))
    exact = 2 <= depth < 0.5 / strays and abs(1 / (2 * ratio**2) / depth - 1) < strays
    if not exact or any(abs(ratio / one - 1) < 0.01 for one in _ROUND):
        return None
    factor = math.sqrt(2 * depth)
    return (
        depth
        if all(group.at(law.wanted(group, stack.width)[0] / factor) for group in outer)
        else None
    )


def _undivided(stack: Stack, law: WidthLaw, outer: Sequence[DrawnAlike]) -> Iterator[Fault]:
    """A note on a deep stream that grows with depth, by GPT-2's deviation without its division."""
    whole = bool(outer) and {laws.depth_factor(group, law, stack) for group in outer} == {"1"}
    # Where every sum is normed, no stream grows with depth.
    normed = any(sublayer.formula.sum_is_normed for sublayer in stack.sublayers)
    if whole and law is WIDTH_LAWS[0] and stack.blocks >= _DEEP and not normed:
        scaled = law.wanted(outer[0], stack.width)[0] / math.sqrt(2 * stack.blocks)
        yield Fault(
            severity=Severity.INFO,
            where=stack.name,
            message=(
                f"every matrix of the {stack.blocks} blocks starts at {law.title}, none divided by "
                f"depth. GPT-2 would draw {_purposes(outer)} at {scaled:.3g}, over √(2 · "
                f"{stack.blocks})"
            ),
            fix="nothing; in a deep Pre-LN model dividing by √(2L) keeps the stream at the size of "
            "one branch",
        )


def _purposes(groups: Sequence[DrawnAlike]) -> str:
    return " and ".join(dict.fromkeys(group.purpose for group in groups))
