"""The questions of rules about wiring: the sub-layers of blocks, and the registry's entries for a
stack that was found.
"""

from collections.abc import Sequence

from ...placement import StackShape, SublayerKind, named, registered
from ..find.segments import Segment
from ..find.terms import Term, normed
from ..identify.candidates import SPOKEN_OF, Candidate, candidate
from ..identify.matching import matches
from ..record import Stack, Sublayer
from ..trace.operations import walked
from .patient import Patient


def in_blocks(stack: Stack) -> list[Sublayer]:
    """Returns the sub-layers of blocks, without what comes before the first."""
    return [sublayer for sublayer in stack.sublayers if sublayer.block > 0]


def factor_of_sum(sublayer: Sublayer) -> float:
    """Returns the number that the sum of skip and branch is multiplied with before anything else; 1
    without one.
    """
    segment, factor = sublayer.formula.segment, 1.0
    term = segment.end
    while (
        term is not segment.start
        and term.kind == "scale"
        and term.factor is not None
        and term.factor.is_constant
    ):
        factor *= term.factor.value
        (term,) = term.arguments
    return factor if term.kind == "sum" else 1.0


def by_kind(stack: Stack) -> list[list[Sublayer]]:
    """The same, those of one kind together, in the order of depth."""
    kinds = dict.fromkeys(one.kind for one in in_blocks(stack))
    return [[one for one in in_blocks(stack) if one.kind == kind] for kind in kinds]


def kinds_of(stack: Stack) -> list[SublayerKind]:
    """Returns the sub-layers of a block, in order, in the registry's words."""
    of_first = [sublayer.kind for sublayer in stack.sublayers if sublayer.block == 1]
    return [SPOKEN_OF[kind] for kind in of_first]


def explained(sublayers: Sequence[Sublayer]) -> bool:
    """Tells whether one registered placement has all of these sub-layers."""
    common = [{sublayer.placement, *sublayer.also} - {""} for sublayer in sublayers]
    return bool(common) and bool(set.intersection(*common))


def wanted(patient: Patient, stack: Stack, name: str | None = None) -> Candidate | None:
    """Returns the formula of the placement that a stack was found to have, or of another; None
    where there is none.
    """
    name = stack.placement if name is None else name
    if name not in registered():
        return None
    shape, placement = shape_of(patient.stacks, stack), named(name)
    return candidate(placement, shape, kinds_of(stack)) if shape.model in placement.models else None


def is_normed(term: Term) -> bool:
    """Tells whether a value is made of norms' outputs by sums and scales alone."""
    made_of = walked(term, lambda at: at.arguments if at.kind in ("sum", "scale") else ())
    return all(at.kind in ("norm", "sum", "scale") for at in made_of)


def ends_in_norm(patient: Patient, stack: Stack) -> str | None:
    """Returns the title of a placement that explains all of a stack's sub-layers and ends in a
    norm.

    "" where no placement explains them; None where every placement that does ends without a norm.
    All are asked: in a shallow stack formulas coincide, and the one that fits best may be one that
    lacks the norm by chance.
    """
    common = [{sublayer.placement, *sublayer.also} for sublayer in in_blocks(stack)]
    likely = {stack.placement, *(set.intersection(*common) if common else ())} - {""}
    # A placement known longer is the likelier to be meant.
    order = sorted(
        likely,
        key=lambda name: (name != stack.placement, named(name).year, named(name).variant_of, name),
    )
    formulas = [wanted(patient, stack, name) for name in order]
    ending = [
        formula for formula in formulas if formula is not None and is_normed(formula.whole[-1].end)
    ]
    if not likely:
        return ""
    return ending[0].placement.title if ending else None


def blocks_end_normed(found: Candidate) -> bool:
    """Tells whether each block of a placement leaves the stream normed."""
    return bool(found.blocks) and is_normed(found.blocks[-1].end)


def carries_norm(patient: Patient, stack: Stack) -> bool:
    """Tells whether the norm in front of each sub-layer is in the skip too: norm(x) +
    F(norm(x)).
    """
    if stack.end_read_by == "norm":
        return False
    formula = wanted(patient, stack)
    # With one norm for both it is Post-LN, a norm earlier, and without the last.
    post = formula is not None and stack.embedding_norm and blocks_end_normed(formula)
    return post or all(
        matches(sublayer.formula.segment, _NORMED_SKIP, qk_norms=False)
        for sublayer in in_blocks(stack)
    )


_X = Term("source", text="x")
_F = Term("branch", (normed(_X),), branch=0, text="F")
_NORMED_SKIP = Segment(_X, normed(_X) + _F, (_F,))
"""norm(x) + F(norm(x))"""


def number_of(stacks: Sequence[Stack], stack: Stack) -> int:
    """Returns the number of a stack among several, from 0."""
    return next(number for number, one in enumerate(stacks) if one is stack)


def shape_of(stacks: Sequence[Stack], stack: Stack) -> StackShape:
    """Returns the shape under which a placement is read for a stack: a decoder's memory is the
    stack before it that has none.

    As when stacks are identified: what attends to no other stack is an encoder, and a decoder alone
    stands beside an encoder as deep as itself.
    """
    number = number_of(stacks, stack)
    crosses = [any(s.kind == "cross_attention" for s in one.sublayers) for one in stacks]
    encoder_blocks, decoder_blocks = stack.blocks, 0
    if crosses[number]:
        memories = [
            one.blocks
            for one, other in zip(stacks[:number], crosses[:number], strict=True)
            if not other
        ]
        encoder_blocks, decoder_blocks = memories[-1] if memories else stack.blocks, stack.blocks
    else:
        readers = [
            one.blocks
            for one, other in zip(stacks[number:], crosses[number:], strict=True)
            if other
        ]
        decoder_blocks = readers[0] if readers else 0
    return StackShape(
        kind="decoder" if crosses[number] else "encoder",
        width=stack.width,
        heads=2,
        encoder_blocks=encoder_blocks,
        decoder_blocks=decoder_blocks,
    )
