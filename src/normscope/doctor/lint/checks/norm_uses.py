"""Norms where they are applied: one for several sub-layers, one after another, one over the wrong
dimension.
"""

from collections import defaultdict
from collections.abc import Iterator

from ....placement import named
from ...identify.matching import matches
from ...measured import NormUse
from ...record import Stack, Sublayer
from ...result import Severity
from ..patient import Patient, is_librarys, listed
from ..rule import Fault, rule, stack_rule
from ..structure import blocks_end_normed, explained, in_blocks, wanted


@stack_rule("double-final-norm", of_structure=True)
def double_final_norm(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A norm after a stack whose last block ends in one already, or of a norm's output that nothing
    else reads.
    """
    formula = wanted(patient, stack)
    ends = formula is not None and stack.final_norm and blocks_end_normed(formula)
    # A placement may have a further norm at its end itself.
    at_end = ends and formula is not None and matches(formula.whole[-1], formula.blocks[-1])
    if at_end:
        published = is_librarys(patient.model, stack.norm_uses[-1].parameters)
        yield Fault(
            severity=Severity.INFO if published else Severity.WARNING,
            where=stack.name,
            message=f"a norm follows the stack, though each of the {stack.blocks} "
            f"{named(stack.placement).title} blocks ends in one: what is normalised is normalised "
            "again, which changes nothing but gains and shifts",
            fix="leave the norm after the stack out" + _PUBLISHED * published,
        )
    # To the length 1 is another size, as cosines for logits need it.
    doubled = [use for use in stack.norm_uses if use.again is not None and not use.of_unit_length]
    # That after the last block is spoken of already, or stands behind blocks of several placements.
    mixed = not explained(in_blocks(stack))
    spoken_of = at_end or (stack.final_norm and mixed and _ends_normed(patient, stack))
    doubled = (
        doubled[:-1] if spoken_of and doubled and doubled[-1] is stack.norm_uses[-1] else doubled
    )
    if doubled:
        published = all(is_librarys(patient.model, use.parameters) for use in doubled)
        yield Fault(
            severity=Severity.INFO if published else Severity.WARNING,
            where=[use.module for use in doubled],
            message=(
                f"the output of a norm is normalised again, and nothing else reads it, "
                f"{len(doubled)} times in {stack.blocks} blocks: {_place(stack, doubled[0])}. It "
                "changes nothing but gains and shifts"
            ),
            fix="leave one of the two norms out" + _PUBLISHED * published,
        )


_PUBLISHED = "; nothing, where a library put it there: its checkpoints have learnt with both"


def _ends_normed(patient: Patient, stack: Stack) -> bool:
    """Tells whether the last block's own placement, where blocks have several, leaves the stream
    normed.
    """
    last = stack.sublayers[-1].placement
    formula = wanted(patient, stack, last) if last != stack.placement else None
    return formula is not None and blocks_end_normed(formula)


def _readers(stack: Stack, use: NormUse) -> list[Sublayer]:
    """Returns the sub-layers in whose piece of the formula a norm stands; none of one before the
    blocks or after them.
    """
    return [
        sublayer
        for sublayer in stack.sublayers
        if any(term.kind == "norm" and term.at == use.at for term in sublayer.formula.segment.terms)
    ]


def _place(stack: Stack, use: NormUse) -> str:
    names = [sublayer.name for sublayer in _readers(stack, use)]
    return f"at {listed(names)}" if names else "after the last block"


@stack_rule("shared-norm")
def shared_norm(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Norms whose gain is used on different values for sub-layers that have matrices of their own.

    Whole blocks that are used several times, as ALBERT's, share all that they have. Sub-layers side
    by side may read one norm of one value.
    """
    shared: defaultdict[tuple[str, ...], list[NormUse]] = defaultdict(list)
    for use in stack.norm_uses:
        shared[use.parameters].append(use)
    found: list[tuple[str, list[str]]] = []
    for uses in [uses for parameters, uses in shared.items() if parameters]:
        places: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
        for use in uses:
            readers = _readers(stack, use)
            for matrices in [reader.measured.matrices for reader in readers] or [()]:
                places[matrices].add(use.reads)
        # Of one value it is one norm, whoever reads it.
        if (len(places) > 1 and len(set.union(*places.values())) > 1) or _twice(stack, uses):
            names = [reader.name for use in uses for reader in _readers(stack, use)]
            ended = [] if all(_readers(stack, use) for use in uses) else ["the end of the stack"]
            found.append((uses[0].module, list(dict.fromkeys([*names, *ended]))))
    if found:
        module, first = found[0]
        how = (
            "twice around one sub-layer"
            if len(first) == 1
            else "at several places, which have weights of their own"
        )
        yield Fault(
            where=[name for name, _ in found],
            message=f"{len(found)} norms of {stack.blocks} blocks are used {how}: {module} at "
            f"{listed(first, 4)}",
        )


def _twice(stack: Stack, uses: list[NormUse]) -> bool:
    """Tells whether one sub-layer has a norm at two places: in front of it and behind it, say."""
    return any(
        len({use.reads for use in uses if sublayer in _readers(stack, use)}) > 1
        for sublayer in stack.sublayers
        if len(uses) > 1
    )


@stack_rule("norm-over-others")
def norm_over_others(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Norms whose statistics are taken over other dimensions than the one that matrices after them
    contract.
    """
    wrong: defaultdict[tuple[tuple[int, ...], tuple[int, ...], int], list[NormUse]] = defaultdict(
        list
    )
    for use in stack.norm_uses:
        if use.features is not None and use.over and use.over != (use.features,):
            wrong[use.shape, use.over, use.features].append(use)
    for (shape, over, features), uses in wrong.items():
        several = "dimensions " if len(over) > 1 else "dimension "
        sizes = " × ".join(str(shape[at]) for at in over)
        # Images are normed over channels and places together on purpose, as in PoolFormer.
        meant = features in over and len(shape) > 3
        yield Fault(
            severity=Severity.INFO if meant else Severity.WARNING,
            where=[name for use in uses if (name := use.module)] or stack.name,
            message=(
                f"{len(uses)} of the {len(stack.norm_uses)} norms of {stack.blocks} blocks take "
                f"their statistics over {several}{' and '.join(map(str, over))} of {shape}, "
                f"{sizes} numbers; the features, which matrices after them read, are dimension "
                f"{features} alone, {shape[features]} numbers"
            ),
            fix=f"take mean and variance over the {shape[features]} features of each token; for "
            "LayerNorm, move them to the last dimension first",
        )


_ON_THE_SPHERE = ("ngpt",)
"""Placements whose streams are of length 1."""


@rule("norm-without-root")
def norm_without_root(patient: Patient) -> Iterator[Fault]:
    """Finds norms that take a token's mean square and do not divide by its root, and norms whose
    statistics get no gradient.
    """
    for stack in patient.stacks:
        detached = [use for use in stack.norm_uses if use.detached]
        if detached:
            yield Fault(
                where=listed(use.module for use in detached) or stack.name,
                message=(
                    f"{len(detached)} of the {len(stack.norm_uses)} norms of {stack.blocks} blocks "
                    "detach their statistics: the backward pass takes a token's size for a "
                    "constant, and pushes it along itself, which a norm takes out of the gradient"
                ),
                fix="take mean and variance of x itself, without detach, no_grad or .data",
            )
        uncentred = [use for use in stack.norm_uses if use.keeps_mean]
        if uncentred:
            published = all(is_librarys(patient.model, use.parameters) for use in uncentred)
            yield Fault(
                severity=Severity.INFO if published else Severity.WARNING,
                where=listed(use.module for use in uncentred) or stack.name,
                message=(
                    f"{len(uncentred)} of the {len(stack.norm_uses)} norms of {stack.blocks} "
                    "blocks divide each token by its deviation about its mean, and leave the mean "
                    "in, as neither LayerNorm nor RMSNorm does: a token whose entries have a mean "
                    "comes out larger than 1, the more so the larger the mean is"
                ),
                fix="divide by the root of the mean square, x.pow(2).mean(-1), as RMSNorm does, or "
                "take the mean away too, as LayerNorm does",
            )
        unit = [use for use in stack.norm_uses if use.of_unit_length and use.parameters]
        if len(unit) > 1 and not patient.trained and stack.placement not in _ON_THE_SPHERE:
            width = unit[0].shape[-1]
            yield Fault(
                where=[use.module for use in unit],
                message=f"{len(unit)} of the {len(stack.norm_uses)} norms of {stack.blocks} blocks "
                "divide by the root of a sum of squares and not of their mean: entries leave "
                f"them at 1/√{width} = {width**-0.5:.3g} and not at 1, so that all that "
                "matrices make of them is as much smaller",
                fix=f"take the mean over the features, or start the gain at √{width}",
            )
    powers = patient.observed.powers
    if len(powers) > 1:
        names, power = listed(name for name, _ in powers), powers[0][1]
        yield Fault(
            where=names,
            message=f"{len(powers)} modules "
            + (
                "take each token's mean away alone"
                if power == 1
                else "scale each token by its own mean square"
            )
            + f", and what comes out grows with the token's size to the power {power}; of a norm "
            "it does not depend on it",
            fix="divide by the root: x * rsqrt(mean(x²) + ε), or x / sqrt(mean(x²) + ε)",
        )


@stack_rule("norms-swapped", of_structure=True)
def norms_swapped(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Norms of a block that are numbered, as ln_1 and ln_2, and come in another order than their
    numbers.
    """
    uses: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for use in sorted(stack.norm_uses, key=lambda use: use.at):
        above, _, name = use.module.rpartition(".")
        stem = name.rstrip("0123456789")
        if above and stem and stem != name:
            uses[above, stem].append(int(name.removeprefix(stem)))
    swapped = [
        (key, order) for key, order in uses.items() if order == sorted(set(order), reverse=True)
    ]
    found = [
        f"{above}.{stem}{number}"
        for (above, stem), order in swapped
        if len(order) > 1
        for number in order
    ]
    if not all(is_librarys(patient.model, (f"{name}.weight",)) for name in found):
        yield Fault(
            where=found,
            message=f"{listed(found, 2)} are used in this order, {len(found)} of the "
            f"{len(stack.norm_uses)} norms of {stack.blocks} blocks: the first of a block "
            "where the second would be",
        )
