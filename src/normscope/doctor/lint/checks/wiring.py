"""Formulas that no registered placement has: what they are nearest to, and steps that are known
mistakes.
"""

import re
from collections import Counter
from collections.abc import Iterator

from ....placement import StackShape, registered
from ....report.words import kind_name
from ...find.segments import scales, sum_of
from ...identify.candidates import candidate
from ...identify.matching import TOLERANCE
from ...record import Stack, Sublayer
from ...result import UNKNOWN_WIRING
from ...trace.operations import walked
from ..nearest import compared, nearest
from ..patient import Patient, listed
from ..rule import Fault, rule, stack_rule
from ..skips import skip_from_the_block
from ..structure import carries_norm, explained, in_blocks, kinds_of, shape_of

_LEAST = 4
"""Sub-layers from which a pattern is one."""


@rule(UNKNOWN_WIRING, of_structure=True, bears_nonfinite=True)
def unknown_wiring(patient: Patient) -> Iterator[Fault]:
    """Stacks with sub-layers that are joined to the stream as in no registered placement, and the
    nearest one.
    """
    deep = any(stack.blocks > 1 for stack in patient.stacks)
    for stack in patient.stacks:
        inside = in_blocks(stack)
        unknown = [sublayer for sublayer in inside if not sublayer.placement]
        # A single sum beside whole blocks is part of a head, of an embedding or of a convolution.
        if not unknown or (len(inside) == 1 and deep):
            continue
        formulas = list(dict.fromkeys(str(sublayer.formula) for sublayer in unknown))
        near = nearest(stack, shape_of(patient.stacks, stack))
        told = f". {compared(near)}" if near and near.differences else ""
        ours = "compare the two formulas; register one" if told else "register a formula"
        yield Fault(
            where=unknown,
            message=f"{len(unknown)} of {len(inside)} sub-layers are joined to the stream as no "
            f"registered placement has it: {listed(formulas)}{told}",
            fix=f"{ours} of your own as docs/own-placements.md says",
        )
    yield from _without_a_sum(patient)


_OVERLOOKED = 0.2
"""The share of the entries of the blocks' matrices that may go unread: as many may belong to a
router, a gate or positions of queries and keys.
"""


def _without_a_sum(patient: Patient) -> Iterator[Fault]:
    """Matrices of the blocks that the pass uses, and that belong to no sub-layer whose sum was
    found.
    """
    known = {name for sublayer in patient.sublayers() for name in sublayer.measured.parameters}
    if not known:  # Where the structure alone is read, nothing was measured.
        return
    known.update(patient.observed.unused_parameters)
    # Where the stream is lost in every block, each is a stack of its own.
    for path in dict.fromkeys(
        re.sub(r"\.\d+$", "", stack.name) for stack in patient.stacks if stack.name
    ):
        blocks = re.compile(rf"{re.escape(path)}\.\d+\.")
        matrices = {
            name: weight.numel()
            for name, weight in patient.model.named_parameters()
            if weight.ndim > 1 and blocks.match(name)
        }
        overlooked = [name for name in matrices if name not in known]
        entries = sum(matrices[name] for name in overlooked)
        if entries > _OVERLOOKED * sum(matrices.values()):
            yield Fault(
                where=overlooked,
                message=(
                    f"{100 * entries / sum(matrices.values()):.0f} % of the entries of the blocks' "
                    "matrices belong to no sub-layer whose sum with the stream was found: how "
                    "these are joined to it is not known"
                ),
                fix="look at these sums by eye; where the stream is cut or reshaped before them, "
                "add to it as it is",
            )


@stack_rule("misplaced-step")
def misplaced_step(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Wirings that are one step from a known one, where the step is a mistake that has been made in
    public.
    """
    yield from _shifted(stack)
    yield from _one_norm_moved(stack)
    yield from skip_from_the_block(stack)
    yield from _factor_on_the_branch(stack, shape_of(patient.stacks, stack))
    yield from _subtracted(stack)
    if not carries_norm(patient, stack):  # which is an error of its own
        yield from _norm_in_the_skip(stack)
    yield from _factor_under_the_norm(stack)
    yield from _one_kind_bare(stack)


def _shifted(stack: Stack) -> Iterator[Fault]:
    """Post-LN by its formula, whose first norm is a block's own, and whose last is not: x =
    norm(x); x + F(x).
    """
    inside = in_blocks(stack)
    if not stack.embedding_norm or len(inside) < _LEAST:
        return
    # Where one kind is rarer, the stack begins within a block: the first norm is one of a sum with
    # nothing, as DETR's.
    if len(set(Counter(sublayer.kind for sublayer in inside).values())) > 1:
        return
    if not all(
        sublayer.formula.sum_is_normed and not sublayer.formula.reads_norm
        for sublayer in inside[:-1]
    ):
        return
    if _begins_within_a_block(stack):
        yield Fault(
            where=stack.name,
            message=(
                f"the first norm of the first block, {stack.norm_uses[0].module}, is written onto "
                f"the stream before its sub-layer, and so are all norms of {stack.blocks} blocks: "
                "every skip carries the normalised stream. It computes Post-LN with its norms one "
                "sub-layer early"
            ),
            fix="keep x as it is for the sum: x + F(norm(x)); or, where Post-LN is meant, norm(x + "
            "F(x))",
        )


def _begins_within_a_block(stack: Stack) -> bool:
    """Tells whether the first norm is one that every block has, and the last is not: it is no
    embedding's, but a block's.
    """
    paths = [re.sub(r"\d+", "#", use.module) for use in stack.norm_uses]
    return (
        bool(paths) and bool(paths[0]) and paths[0] in paths[1:-1] and paths[-1] not in paths[1:-1]
    )


def _one_norm_moved(stack: Stack) -> Iterator[Fault]:
    """norm(x + F(norm(x))) and x + F(x) in turn: one of two norms is on the other path than its
    sibling.
    """
    inside = in_blocks(stack)
    twice = [
        s for s in inside if s.formula.sum_is_normed and s.formula.reads_norm and not s.parallel
    ]
    bare = [
        s
        for s in inside
        if not s.formula.norms_a_sum and s.formula.branch.arguments[0] is s.formula.segment.start
    ]
    bare = [s for s in bare if not s.formula.branch_is_normed]
    known = all(sublayer.placement for sublayer in inside)
    # Of one alone nothing comes in turn: a layer that hands on to the next stage ends in a norm.
    once = min(len(twice), len(bare)) < 2
    if (
        known
        or once
        or not twice
        or not bare
        or len(twice) + len(bare) < len(inside) - 1
        or len(inside) < _LEAST
    ):
        return
    pre = stack.final_norm or stack.end_read_by == "weights" or _begins_within_a_block(stack)
    where, reads, others = (
        (
            bare,
            "the norm in front of it is in the skip too, norm(x) + F(norm(x))",
            "keep x as it is",
        )
        if pre
        else (
            twice,
            "its norm is not in the skip",
            f"have theirs there: {twice[0].formula} and {bare[0].formula}",
        )
    )
    yield Fault(
        where=where,
        message=(
            f"{kind_name(where[0].kind)}: {reads}, in {len(where)} of {len(inside)} sub-layers, "
            f"while the skips of the others {others}"
        ),
        fix="x + F(norm(x)) in every sub-layer, the skip taken before the norm"
        if pre
        else "norm(x + F(x)) in every sub-layer, the next one's skip taken after the norm",
    )


def _factor_on_the_branch(stack: Stack, shape: StackShape) -> Iterator[Fault]:
    """A constant that a placement has on the skip of such a stack, found on the branch."""
    inside = in_blocks(stack)
    found = {
        sublayer.branch_scale
        for sublayer in inside
        if not sublayer.placement and sublayer.skip_scale == 1
    }
    if len(found) != 1 or not all(sublayer.skip_scale == 1 for sublayer in inside):
        return
    (factor,) = found
    for placement in registered().values():
        if factor is None or shape.model not in placement.models or len(placement.streams) > 1:
            continue
        blocks = candidate(placement, shape, kinds_of(stack)).blocks
        skips = {scales(segment, branch)[0] for segment in blocks for branch in segment.branches}
        if (
            len(skips) == 1
            and (skip := skips.pop())
            and skip > 1
            and abs(factor - skip) <= TOLERANCE * skip
        ):
            yield Fault(
                where=stack.name,
                message=(
                    f"the branches of {stack.blocks} blocks are multiplied by {factor:.4g}, which "
                    f"{placement.title} has on the skip: {inside[0].formula}"
                ),
                fix=f"multiply the skip by it, and norm the sum where {placement.title} does",
            )
            return


def _subtracted(stack: Stack) -> Iterator[Fault]:
    inside = in_blocks(stack)
    factors = [(s, s.formula.gate) for s in inside]
    less = [s for s, gate in factors if gate is not None and gate.is_constant and gate.value < 0]
    if less and 2 * len(less) < len(inside):
        yield Fault(
            where=less,
            message=(
                f"{len(less)} of {len(inside)} branches are subtracted from the stream, and the "
                "others added"
            ),
            fix="add the branch",
        )


def _factor_under_the_norm(stack: Stack) -> Iterator[Fault]:
    """norm(α (x + F(x))): the norm takes the factor away."""
    inside = in_blocks(stack)
    found = []
    for sublayer in inside:
        total = sum_of(sublayer.formula.segment, sublayer.formula.branch)
        for term in sublayer.formula.segment.terms:
            scale = term.arguments[0] if term.kind == "norm" else term
            alone = (
                scale.kind == "scale" and scale.arguments[0] is total and scale.factor is not None
            )
            if (
                term.kind == "norm"
                and alone
                and scale.factor is not None
                and scale.factor.is_constant
            ):
                found.append((sublayer, scale.factor.value))
    if len(found) == len(inside) and len(inside) >= _LEAST:
        yield Fault(
            where=stack.name,
            message=(
                f"the whole sum is multiplied by {found[0][1]:.4g} in {stack.blocks} blocks, and a "
                f"norm behind it takes it away again: {inside[0].formula}"
            ),
            fix="multiply the skip alone, norm(α x + F(x)), as DeepNorm does; or leave the factor "
            "out",
        )


def _norm_in_the_skip(stack: Stack) -> Iterator[Fault]:
    """norm(x) among the addends of a sum that a branch goes into, as norm(x) + F(x) and x + norm(x)
    + F(norm(x)).
    """
    inside = in_blocks(stack)
    found = [one for one in inside if not one.placement and _adds_a_norm(one)]
    if found and not any(_adds_a_norm(one) for one in inside if one.placement):
        yield Fault(
            where=found,
            message=f"norm(x) is added where x is meant, or beside it, in {len(found)} of "
            f"{len(inside)} sub-layers: "
            + listed(dict.fromkeys(str(one.formula) for one in found)),
            fix="add the branch to x as it is, x + F(norm(x)); a norm that is called again is no "
            "name for x",
        )


def _adds_a_norm(sublayer: Sublayer) -> bool:
    segment = sublayer.formula.segment
    total = sum_of(segment, sublayer.formula.branch)
    if total is None:
        return False
    made_of = walked(
        total,
        lambda at: at.arguments if at.kind in ("sum", "scale") and at is not segment.start else (),
    )
    return any(term.kind == "norm" and term.arguments[0] is segment.start for term in made_of)


def _one_kind_bare(stack: Stack) -> Iterator[Fault]:
    """x + F(x) of all sub-layers of one kind, between others that all read norm(x), or whose sums
    are all normed.

    A placement may have either formula somewhere, as HybridNorm does; one that has both is meant.
    """
    inside = in_blocks(stack)
    bare = [one for one in inside if _is_bare(one)]
    kinds = {one.kind for one in bare}
    alike = [one for one in inside if one.kind in kinds]
    # The sum of the stack's last sub-layer may be normed at its end.
    at_end = alike[-1:] == inside[-1:] and len(bare) == len(alike) - 1
    if (
        len(kinds) != 1
        or len(bare) < 2
        or not (len(bare) == len(alike) or at_end)
        or len(alike) != stack.blocks
    ):
        return
    others = [one for one in inside if one not in alike]
    if not others or explained(inside[:-1] if at_end else inside):
        return
    kind, own = kind_name(bare[0].kind), bare[0].formula
    if all(one.formula.reads_norm and not one.formula.norms_a_sum for one in others):
        yield Fault(
            where=bare,
            message=f"{kind} reads the stream as it is in all of {len(bare)} blocks, and all other "
            f"sub-layers a norm of it: {own}",
            fix="give it a norm of the stream too, x + F(norm(x)); a norm of what else it reads is "
            "no norm of x",
        )
    # A sum that no placement has is told as an unknown wiring; one norm at each block's end may be
    # meant.
    elif all(one.placement for one in bare) and all(
        one.formula.sum_is_normed and not one.formula.reads_norm for one in others
    ):
        yield Fault(
            where=bare,
            message=(
                f"the sum of {kind} is not normalised in {len(bare)} of {len(alike)} blocks, and "
                f"those of all other sub-layers are: {own}"
            ),
            fix="norm its sum too, norm(x + F(x))",
        )


def _is_bare(sublayer: Sublayer) -> bool:
    formula = sublayer.formula
    reads = formula.branch.arguments[0] is formula.segment.start and not formula.branch.inside
    if sublayer.kind in ("convolution", "mixer") or formula.segment.end.kind != "sum":
        return False
    return reads and not formula.norms_a_sum and not formula.branch_is_normed
