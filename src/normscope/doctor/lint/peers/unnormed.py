"""Sub-layers without any norm, in several blocks of a stack whose others have one."""

from collections.abc import Iterator

from ....report.words import kind_name
from ...record import Stack, Sublayer
from ..patient import Patient, numbered
from ..rule import Fault, stack_rule
from ..structure import by_kind, explained, in_blocks


@stack_rule("unnormed-unlike-others")
def unnormed_unlike_others(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Blocks, more than one, whose sub-layers of a kind have lost the norm that the others have."""
    inside = in_blocks(stack)
    if explained(inside):
        return
    for kind in by_kind(stack):
        bare = [one for one in kind if not _has_norm(one)]
        blocks = sorted({one.block for one in bare})
        # Of one block alone another rule tells. A kind that stands several times in a block, with
        # a norm and without, is built so, and no block has lost anything.
        if len(blocks) > 1 and len(bare) <= len(kind) / 2 and 2 * len(blocks) <= stack.blocks:
            yield Fault(
                where=bare,
                message=(
                    f"{kind_name(kind[0].kind)} has no norm in {numbered(blocks)} of "
                    f"{stack.blocks}, and has one in all others"
                ),
            )


def _has_norm(one: Sublayer) -> bool:
    segment = one.formula.segment
    return any(term.kind == "norm" for term in segment.terms) or any(
        branch.inside for branch in segment.branches
    )
