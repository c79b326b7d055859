"""A skip that begins before another sub-layer's sum, which the stream then loses."""

from collections.abc import Iterator

from ...report.words import kind_name
from ..find.segments import sum_of
from ..find.terms import Term, ordered
from ..record import Stack
from .rule import Fault
from .structure import in_blocks


def skip_from_the_block(stack: Stack) -> Iterator[Fault]:
    """A second sub-layer that reads the first one's sum, and is added to what the first one
    read.
    """
    found = []
    for sublayer in in_blocks(stack):
        segment, branch = sublayer.formula.segment, sublayer.formula.branch
        if len(segment.branches) != 2 or segment.side_by_side or branch is not segment.branches[1]:
            continue
        total = sum_of(segment, branch)
        addends = [] if total is None else [_bare(addend) for addend in total.arguments]
        reads_first = any(
            term is segment.branches[0] for term in ordered(branch.arguments[0], segment.start)
        )
        # A convolution with a skip of its own behind a branch loses nothing: x + (a + F(a)).
        first = segment.branches[0]
        reads_it_alone = _bare(branch.arguments[0]) is first
        extends = reads_it_alone and any(addend is first for addend in _flat(addends))
        if (
            not sublayer.placement
            and reads_first
            and not extends
            and any(addend is segment.start for addend in addends)
        ):
            found.append(sublayer)
    if found:
        yield Fault(
            where=found,
            message=f"{kind_name(found[0].kind)} reads the sum of the sub-layer before it, and is "
            f"added to what stood before that one, in {len(found)} blocks: {found[0].formula}",
            fix="add it to the sum that it reads",
        )


def _flat(addends: list[Term]) -> Iterator[Term]:
    """Yields addends, with sums among them replaced by their own addends."""
    for addend in addends:
        if addend.kind == "sum":
            yield from _flat([_bare(inner) for inner in addend.arguments])
        else:
            yield addend


def _bare(term: Term) -> Term:
    while term.kind == "scale":
        (term,) = term.arguments
    return term
