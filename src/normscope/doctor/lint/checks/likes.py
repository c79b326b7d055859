"""A block unlike the others: in what its weights, factors, branches or gradients measure, and in how it is treated,
frozen, in another dtype, or by the optimiser."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import torch

from ....placement import named
from ...trace.forward import norm_parameters
from ..likes import (
    OddOne,
    OddState,
    odd_branches,
    odd_factors,
    odd_gradients,
    odd_parameters,
    odd_precisions,
    odd_weights,
)
from ..patient import Patient, an_optimizer, gradients, initial_weights
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


@rule("uneven-blocks", initial_weights)
def uneven_blocks(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights, factors, branches or gradients are unlike their likes', each told by its first cause."""
    # What is 0 has rules of its own, for branches and gates; a gain of 0 shuts the stream itself where sums are normed.
    gains = {gain.name for gain in patient.observed.norm_gains}
    weights = [one for one in odd_weights(patient.model, apart=_WEIGHT) if one.size or one.name in gains]
    yield from _grouped(weights, "weights")
    # What a block's weights or factors make larger or smaller is no second fault.
    told = {one.block for one in weights}
    for stack in patient.stacks:
        # A placement that explains the stack has its factors by a rule of its own.
        inside = in_blocks(stack)
        own = {one.name for one in inside if one.placement and named(one.placement).variant_of == stack.placement}
        factors = [] if explained(inside) else odd_factors(stack, apart=_FACTOR)
        factors = [(what, one) for what, one in factors if one.name not in own or not stack.placement]
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
            where=some,
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


_FROZEN, _TRAINED = "frozen", "trained"


@rule("frozen-unlike-others")
def frozen_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block that are frozen beside trained likes, or the other way round; and all norms' alone."""
    fresh = not patient.trained

    def from_below(states: Sequence[str]) -> bool:
        """Whether the lowest of a trained model are frozen, and no others."""
        return not fresh and list(states) == sorted(states)

    def state(_: str, weight: object) -> str:
        return _TRAINED if getattr(weight, "requires_grad", False) else _FROZEN

    odd = odd_parameters(patient.model, state, usual=from_below)
    yield from _by_block(
        odd,
        lambda state: f"{state} (requires_grad is {state == _TRAINED})",
        fix="set requires_grad alike in every block; where this is meant, silence the rule",
    )
    if not fresh or odd:
        return
    norms = norm_parameters(patient.model)
    # A vector that stands alone may be the bias of a router, which is frozen by design.
    read = {name for stack in patient.stacks for use in stack.norm_uses for name in use.parameters}
    frozen = [name for name, weight in norms.items() if not weight.requires_grad and name in read]
    others = [weight for name, weight in patient.model.named_parameters() if name not in norms]
    if len(frozen) > 2 and all(weight.requires_grad for weight in others):
        yield Fault(
            where=frozen,
            message=f"{len(frozen)} of {len(norms)} gains and shifts of norms are frozen at their initial values, "
            f"while all {len(others)} other parameters are trained",
            fix="let norms be trained, by requires_grad_(True), or build them without parameters "
            "(elementwise_affine=False)",
        )


@rule("precision-unlike-others")
def precision_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights have another dtype than their likes, or that compute in another one."""
    weights = odd_parameters(patient.model, lambda _, weight: str(weight.dtype).removeprefix("torch."))
    fix = "let every block have one dtype, and leave mixed precision to torch.autocast"
    yield from _by_block(weights, lambda state: f"kept in {state}", fix=fix)
    told = {one.block for one in weights}
    for stack in patient.stacks:
        odd = [one for one in odd_precisions(stack) if one.block not in told]
        yield from _by_block(odd, lambda state: f"computed in {state}", fix=fix)


@rule("optimizer-unlike-others", an_optimizer)
def optimizer_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block in no group, or decayed otherwise, beside likes that are held and decayed alike."""
    groups = patient.optimizer.param_groups if patient.optimizer is not None else []
    # A rate of 0 is none at all; others may fall from the last block to the first.
    decays = {
        id(p): f"decayed by {float(group.get('weight_decay') or 0):g}" if group.get("lr", 1) != 0 else "at a rate of 0"
        for group in groups
        for p in group["params"]
    }

    def state(_: str, weight: object) -> str:
        # What is frozen has no need of an optimiser.
        needs = getattr(weight, "requires_grad", False)
        return decays.get(id(weight), "in no parameter group" if needs else _FROZEN)

    odd = [one for one in odd_parameters(patient.model, state) if _FROZEN not in (one.state, one.usual)]
    yield from _by_block(odd, lambda state: state, fix="make the groups so that every block is in them alike")


def _by_block(odd: Iterable[OddState], said: Callable[[str], str], *, fix: str) -> Iterator[Fault]:
    """One fault for all weights of a block that are in one state."""
    groups: defaultdict[tuple[int, str, str], list[OddState]] = defaultdict(list)
    for one in odd:
        groups[one.block, one.state, one.usual].append(one)
    for (block, _, usual), some in sorted(groups.items()):
        one = some[0]
        rest = f", and so {'is' if len(some) == 2 else 'are'} {len(some) - 1} more of this block" if some[1:] else ""
        yield Fault(
            where=some,
            message=f"block {block} of {one.likes}: {one.name} is {said(one.state)}{rest}, while most of its likes "
            f"in other blocks are {said(usual)}",
            fix=fix,
        )


_ROUNDED = 1e-6
"""Of the size that gradients of matrices mostly have, an entry; Mamba's steps have 1e-4, and float32 keeps 1e-7."""


@rule("rounded-gradient", initial_weights, gradients)
def rounded_gradient(patient: Patient) -> Iterator[Fault]:
    """Matrices of feed-forwards with gradients a million times smaller than the others', and not 0.

    Attention's own are left out: queries and keys have none where tokens start alike, as a DETR's decoder does.
    """
    norms, weights = patient.observed.gradient_norms, patient.weights
    asked = [one for one in patient.sublayers() if not one.kind.endswith("attention")]
    names = dict.fromkeys(name for one in asked for name in one.measured.matrices if norms.get(name))
    kept = [name for name in names if name in weights and weights[name].dtype == torch.float32]
    sizes = {name: norms[name] / weights[name].numel() ** 0.5 for name in kept}
    usual = median(sizes.values()) if sizes else 0.0
    found = [name for name, size in sizes.items() if size < _ROUNDED * usual]
    if found:
        yield Fault(
            where=found,
            message=f"{len(found)} of {len(sizes)} matrices get a gradient of {max(map(sizes.__getitem__, found)):.1g} "
            f"an entry, where others have {usual:.1g}: what they compute cancels before the loss, and rounding is left",
        )
