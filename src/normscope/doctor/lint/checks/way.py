"""On the stream's way: gradients that are stopped, positions that are added again, numbers that are drawn anew."""

from collections.abc import Iterator

from ...record import Sublayer
from ...result import Severity
from ..patient import BranchSite, Patient, branch_names, listed
from ..rule import Fault, rule


@rule(
    "detached-skip",
    Severity.ERROR,
    title="a skip that lets no gradient through",
    why="The skip is the way on which the gradient reaches the first blocks whole; where it is detached, all of it has "
    "to go through the branches, one after another, and shrinks with each.",
    reference="He et al. 2016, arXiv:1603.05027, section 2: the gradient of an identity skip is passed on as it is",
)
def detached_skips(patient: Patient) -> Iterator[Fault]:
    """Sub-layers whose skip is detached: an error where all of a stack's are, for nothing is to be gained by that."""
    for stack in patient.stacks:
        places: list[BranchSite] = [(stack, one) for one in stack.sublayers if one.measured.skip_stopped]
        # The first sub-layer's comes from no other, and is not known to be.
        possible = max(len(stack.sublayers) - 1, 1)
        if places:
            blocks = dict.fromkeys(str(one.block) for _, one in places)
            yield Fault(
                severity=Severity.ERROR if len(places) >= possible else Severity.WARNING,
                where=branch_names(places),
                message=f"the skip of {len(places)} of {len(stack.sublayers)} sub-layers goes through a detach, in "
                f"block{'s' if len(blocks) > 1 else ''} {', '.join(blocks)}: no gradient passes the sum there but "
                "through the branch",
                fix="take x for x.detach() (or x.data) where it is added to F(x)",
            )


@rule(
    "positions-added-again",
    Severity.WARNING,
    title="positions that are added to the stream again",
    why="A stream keeps what is added to it: what is added in every block grows with depth, and drowns the tokens; "
    "positions are added once, at the start, or to queries and keys alone.",
    reference="Vaswani et al. 2017, arXiv:1706.03762, section 3.5: positions are added at the bottoms of the stacks; "
    "Dehghani et al. 2019, arXiv:1807.03819, for a model that adds them in every step",
)
def positions_again(patient: Patient) -> Iterator[Fault]:
    """What is the same for every input and differs from token to token, added at several places of a stream."""
    for name, places in patient.observed.added_again:
        blocks = dict.fromkeys(str(_at(patient, number)[1]) for number in places)
        yield Fault(
            # One table may be looked up twice before the first block, as that of a box's left and right edge.
            severity=Severity.WARNING if len(blocks) > 1 else Severity.INFO,
            where=name,
            message=f"{name or 'what is the same for every input'} is added to the stream {len(places)} "
            f"times: before or in block {', '.join(blocks)}",
            fix="add it once, to the embedding; in attention, to queries and keys rather than to the stream",
        )


@rule(
    "random-in-evaluation",
    Severity.WARNING,
    title="dropout that evaluation does not turn off",
    why="Two passes over one batch differ then: what is validated or decoded is a noisier model than was trained, and "
    "nn.functional.dropout is on unless it is told of self.training.",
    reference="torch.nn.functional.dropout: training=True is its default",
)
def random_in_evaluation(patient: Patient) -> Iterator[Fault]:
    """Data that is multiplied with numbers which a pass in evaluation mode draws anew."""
    draws = patient.observed.random_factors
    if draws:
        after, block = _at(patient, draws[0][1])
        yield Fault(
            where=listed(module for module, _ in draws),
            message=f"in evaluation mode, too, data is multiplied with numbers that every pass draws anew, at "
            f"{len(draws)} place{'s' if len(draws) > 1 else ''}, first in block {block}"
            + (f", after {after.name}" if after is not None and after.name else ""),
            fix="use an nn.Dropout module, or functional.dropout(x, p, self.training)",
        )


def _at(patient: Patient, number: int) -> tuple[Sublayer | None, int]:
    """The last sub-layer that was added before a value was made, and the block in which that was."""
    sites = [(one.measured.place.addend, one) for _, one in patient.sublayers() if one.measured.place is not None]
    before = [one for addend, one in sites if addend < number]
    later = [one for addend, one in sites if addend >= number]
    last = before[-1] if before else None
    block = later[0].block if later and (last is None or later[0].kind != "attention") else last.block if last else 0
    return last, block
