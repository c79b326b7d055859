"""A block unlike the others in what its weights, factors, branches or gradients measure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ...result import Severity
from ..likes import OddOne, odd_branches, odd_factors, odd_gradients, odd_weights
from ..patient import Patient, at_initialisation, initial_weights, listed
from ..rule import Fault, rule
from ..structure import explained, in_blocks

_WEIGHT = 1.5
"""Factor beyond which a weight's size is no draw of the others' scheme."""
_FACTOR = 1.2
"""The same of what multiplies a stream or a branch, which is not drawn."""
_BRANCH = 5.0
"""The same of a branch's size: what attention adds depends on how alike tokens are, which changes with depth."""
_GRADIENT = 5.0
"""The same of a gradient over theory's, which is 1.6 times off at most where logits of attention vary much."""


@rule(
    "uneven-blocks",
    Severity.WARNING,
    title="a block that starts unlike the others",
    why="Blocks of one kind are drawn by one scheme, which may follow a law of depth. One block with weights ten times "
    "larger adds ten times as much to the stream, which drowns what the others add and takes most of the gradient.",
    reference="Radford et al. 2019 (GPT-2), section 2.3, and Zhang et al. 2019, arXiv:1908.11365, for schemes that "
    "are the same in all blocks or follow a law of depth",
    needs=(initial_weights,),
)
def uneven_blocks(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights, factors, branches or gradients are unlike their likes', each told by its first cause."""
    if not at_initialisation(patient):
        return
    # What is 0 has rules of its own, for branches and gates; a gain of 0 shuts the stream itself where sums are normed.
    gains = {gain.name for gain in patient.observed.norm_gains}
    weights = [one for one in odd_weights(patient.model, apart=_WEIGHT) if one.size or one.name in gains]
    yield from _grouped(weights, "weights")
    # What a block's weights or factors make larger or smaller is no second fault.
    told = {one.block for one in weights}
    for stack in patient.stacks:
        # A placement that explains the stack has its factors by a rule of its own.
        factors = [] if explained(in_blocks(stack)) else odd_factors(stack, apart=_FACTOR)
        for what, factor in factors:
            yield Fault(
                where=factor.name,
                message=f"block {factor.block}: {what} of {factor.name} is multiplied by {factor.size:.4g}, in most of "
                f"the {factor.likes} blocks by {factor.usual:.4g}, and no law of depth explains it",
                fix=f"multiply {what} by the same number in every block, or by one that follows depth",
            )
        known = told | {one.block for _, one in factors}
        outputs = [one for one in odd_branches(stack, apart=_BRANCH) if one.block not in known]
        yield from _grouped(outputs, "outputs")
        known |= {one.block for one in outputs}
        yield from _grouped(
            [one for one in odd_gradients(stack, apart=_GRADIENT) if one.block not in known], "gradients"
        )


def _grouped(found: Iterable[OddOne], what: str) -> Iterator[Fault]:
    """One fault for all that is odd in a block by about one factor."""
    groups: defaultdict[tuple[int, bool], list[OddOne]] = defaultdict(list)
    for one in found:
        groups[one.block, one.factor > 1].append(one)
    for (block, larger), some in sorted(groups.items()):
        worst = max(some, key=lambda one: max(one.factor, 1 / max(one.factor, 1e-300)))
        yield Fault(
            where=listed(one.name for one in some),
            message=f"block {block} of {worst.likes}: {_said(worst, what, larger)}"
            + (
                f"; so {'do' if what == 'weights' else 'are'} {len(some) - 1} more of this block"
                if len(some) > 1
                else ""
            ),
            fix=_FIX[what],
        )


_FIX = {
    "weights": "draw this block as the others are drawn; where a scheme of its own is meant, silence the rule",
    "outputs": "look in this block for a factor, an activation or a mask that the other blocks do not have",
    "gradients": "look in this block for what lets less of the gradient through than in the others, or more: a "
    "detached part, a softmax that is saturated, a factor",
}


def _said(one: OddOne, what: str, larger: bool) -> str:
    if not one.size:
        return f"the gain {one.name} starts at 0 and those of its likes do not: of what it norms nothing goes on"
    if one.usual:
        factor = one.factor if larger else 1 / one.factor
        by = f"{factor:.3g} times as {'large' if larger else 'small'} as"
    else:
        by = "another size than"
    subject, likes = {
        "weights": (f"{one.name} starts", "the same weights of most other blocks"),
        "outputs": (f"what {one.name} adds to the stream is", "what its likes add in most other blocks"),
        "gradients": (f"the gradient of {one.name}, over what theory predicts, is", "its likes' in most other blocks"),
    }[what]
    return f"{subject} {by} {likes} (root mean square {one.size:.3g} beside {one.usual:.3g})"
