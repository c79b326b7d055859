"""Sums that are not there: a sub-layer whose output replaces the stream, or joins none."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ....report.words import kind_name
from ...find.branches import BranchKind
from ...record import Stack
from ...result import Severity
from ..patient import Patient, listed
from ..rule import Fault, rule
from ..structure import carries_norm, in_blocks, number_of

ENCODER, DECODER = ("attention", "feed_forward"), ("attention", "cross_attention", "feed_forward")


@rule("lost-residual")
def lost_residual(patient: Patient) -> Iterator[Fault]:
    """Sub-layers whose output is not added to the stream that they read."""
    yield from _cut(patient)
    for stack in patient.stacks:
        if carries_norm(patient, stack):
            yield Fault(
                where=stack.name,
                message=(
                    f"every skip of {stack.blocks} blocks carries the normalised stream: the norm "
                    "in front of a sub-layer is written onto x before x + F(x), and no norm "
                    "follows the last sum"
                ),
                fix="keep x as it is for the sum: x + F(norm(x))",
            )
        number = number_of(patient.stacks, stack)
        if stack.continues is None and not any(
            other.continues == number for other in patient.stacks
        ):
            yield from _one_short(patient, stack)


def _cut(patient: Patient) -> Iterator[Fault]:
    places = []
    for stack in patient.stacks:
        if stack.continues is None or stack.cut_by is None:
            continue
        before, after = in_blocks(patient.stacks[stack.continues]), in_blocks(stack)
        # A network between two stacks that ends neither of their blocks early may be meant: a
        # projection, an adapter.
        if before and after and _ends_early(before[-1].kind, stack.cut_by, after[0].kind):
            places.append((kind_name(stack.cut_by), before[-1].name, after[0].name))
    if places:
        kinds = " and ".join(dict.fromkeys(kind for kind, _, _ in places))
        pairs = [
            f"between {before or 'its start'} and {after or 'its end'}"
            for _, before, after in places
        ]
        yield Fault(
            where=[after for _, _, after in places],
            message=(
                f"the output of {kinds} takes the place of the stream instead of being added to "
                f"it, {listed(pairs)}: {len(places)} of the sums that a stack of such blocks has "
                "are missing"
            ),
            fix="add the sub-layer's input to its output",
        )


def _ends_early(before: BranchKind, cut_by: BranchKind, after: BranchKind) -> bool:
    """Tells whether the branch that computes a stack's source stands where a sub-layer of the block
    around it is missing.

    A convolution over places between two sub-layers may take no skip by design, as TinyViT's.
    """
    if cut_by == "convolution":
        return False
    if cut_by == "attention":
        return before != "feed_forward" or after != "attention"
    return before not in ("feed_forward", "convolution")


def _one_short(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Kinds of sub-layers that make whole blocks but for one or few that are missing, whose
    matrices are there.

    Without matrices that join no sum, nothing is missing: the blocks are others than they seem, as
    where shared experts are counted as feed-forwards of their own.
    """
    kinds = [sublayer.kind for sublayer in in_blocks(stack)]
    block = DECODER if "cross_attention" in kinds else ENCODER
    numbers = range(1, stack.blocks + 1)
    blocks = {
        tuple(sublayer.kind for sublayer in stack.sublayers if sublayer.block == n) for n in numbers
    }
    if (
        (stack.blocks > 1 and len(blocks) == 1)
        or len(kinds) <= len(block)
        or not set(kinds) <= set(block)
    ):
        return
    missing, place = [], 0
    for kind in kinds:
        while block[place % len(block)] != kind:
            missing.append(place)
            place += 1
        place += 1
    missing += range(place, place + -place % len(block))
    lacks = [block[at % len(block)] for at in missing]
    if missing and 4 * len(missing) <= len(kinds) + 1 and _are_there(patient, stack, lacks):
        said = [
            f"{kind_name(kind)} of block {at // len(block) + 1}"
            for at, kind in zip(missing, lacks, strict=True)
        ]
        # A decoder whose queries begin at zero, as DETR's, has nothing to add its first outputs to.
        begins_later = missing == list(range(len(missing))) and (
            block is DECODER or stack.starts_from_given
        )
        unless = (
            ", unless its stream begins there, at zero or from learnt rows" if begins_later else ""
        )
        # Where others have no name either, the blocks were not understood, and nothing is certain
        # of what is missing.
        understood = all(sublayer.placement for sublayer in in_blocks(stack))
        yield Fault(
            severity=Severity.ERROR if understood and not begins_later else Severity.INFO,
            where=stack.name,
            message=f"{listed(said)} joins no sum, though its counterparts in the other blocks "
            f"do{unless}",
            fix="add the sub-layer's output to its input",
        )


def _are_there(patient: Patient, stack: Stack, missing: Sequence[str]) -> bool:
    """Tells whether the pass reads matrices that no sub-layer has, of the shapes that counterparts
    of the missing sub-layers have.
    """
    weights = patient.weights
    joined = {name for sublayer in patient.sublayers() for name in sublayer.measured.parameters}
    idle = joined | set(patient.observed.unused_parameters)
    spare = Counter(
        tuple(w.shape) for name, w in weights.items() if w.ndim > 1 and name not in idle
    )
    for kind, count in Counter(missing).items():
        likes = [s.measured.matrices for s in stack.sublayers if s.kind == kind]
        shapes = [
            Counter(tuple(weights[name].shape) for name in like if name in weights)
            for like in likes
        ]
        if not any(
            one and all(spare[shape] >= count * n for shape, n in one.items()) for one in shapes
        ):
            return False
    return True
