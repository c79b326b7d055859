"""A block unlike the others: in what its weights, factors, branches or gradients measure, and in
how it is treated, frozen, in another dtype, or by the optimiser."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any, Literal

import torch

from ....placement import named
from ...trace.forward import norm_parameters
from .. import likes
from ..patient import Patient, an_optimizer, gradients, initial_weights
from ..peers.starts import SIZE_APART
from ..rule import Fault, rule
from ..structure import explained, in_blocks

_FACTOR = 1.2
"""The same of what multiplies a stream or a branch, which is not drawn."""
_BRANCH = 5.0
"""The same of a branch's size: what attention adds depends on how alike tokens are, which changes
with depth.
"""
_GRADIENT = 5.0
"""The same of a gradient over theory's, which is 1.6 times off at most where logits of attention
vary much.
"""


@rule("uneven-blocks", initial_weights)
def uneven_blocks(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights, factors, branches or gradients are unlike their likes', each told by
    its first cause.
    """
    # What is 0 has rules of its own, for branches and gates; a gain of 0 shuts the stream itself
    # where sums are normed.
    gains = {gain.name for gain in patient.observed.norm_gains}
    weights = [
        one
        for one in likes.odd_weights(patient, apart=SIZE_APART)
        if one.value or one.name in gains
    ]
    yield from _uneven(weights, "weights")
    # What a block's weights or factors make larger or smaller is no second fault.
    told = {one.block for one in weights}
    for stack in patient.stacks:
        # A placement that explains the stack has its factors by a rule of its own.
        inside = in_blocks(stack)
        own = {
            one.name
            for one in inside
            if one.placement and named(one.placement).variant_of == stack.placement
        }
        factors = [] if explained(inside) else likes.odd_factors(stack, apart=_FACTOR)
        factors = [
            (what, one) for what, one in factors if one.name not in own or not stack.placement
        ]
        for what, factor in factors:
            yield Fault(
                where=factor.name,
                message=f"block {factor.block}: {what} of {factor.name} is multiplied by "
                f"{factor.value:.4g}, in most of the {factor.likes} blocks by "
                f"{factor.usual:.4g}, and no law of depth explains it",
                fix=f"multiply {what} by the same number in every block, or by one that follows "
                "depth",
            )
        known = told | {one.block for _, one in factors}
        outputs = [
            one for one in likes.odd_branches(stack, apart=_BRANCH) if one.block not in known
        ]
        yield from _uneven(outputs, "outputs")
        known |= {one.block for one in outputs}
        pulls = [
            one for one in likes.odd_gradients(stack, apart=_GRADIENT) if one.block not in known
        ]
        yield from _uneven(pulls, "gradients")


_Kind = Literal["weights", "outputs", "gradients"]
_SAID: dict[_Kind, tuple[str, str, str]] = {
    "weights": (
        "{} starts",
        "the same weights of most other blocks",
        "draw this block as the others are drawn; where a scheme of its own is meant, silence the "
        "rule",
    ),
    "outputs": (
        "what {} adds to the stream is",
        "what its counterparts add in most other blocks",
        "look in this block for a factor, an activation or a mask that the other blocks do not "
        "have",
    ),
    "gradients": (
        "the gradient of {}, over what theory predicts, is",
        "its counterparts' in most other blocks",
        "look in this block for what lets less of the gradient through than in the others, or "
        "more: a detached part, a softmax that is saturated, a factor",
    ),
}
"""The words for an odd block and for its counterparts, and what to do, by kind."""


def _uneven(found: Iterable[likes.OddOne[float]], what: _Kind) -> Iterator[Fault]:
    """One fault for all that is odd in a block by about one factor."""
    subject, others, fix = _SAID[what]
    for some in _by_block(found, lambda one: one.value > one.usual):
        worst = max(some, key=_times)
        said = f"{subject.format(worst.name)} another size than {others}"
        if worst.usual:
            larger = "large" if worst.value > worst.usual else "small"
            said = f"{subject.format(worst.name)} {_times(worst):.3g} times as {larger} as {others}"
        said += f" (root mean square {worst.value:.3g} beside {worst.usual:.3g})"
        if not worst.value:
            said = (
                f"the gain {worst.name} starts at 0 and those of its counterparts do not: of what "
                "it norms nothing goes on"
            )
        more = f"; so {'do' if what == 'weights' else 'are'} {len(some) - 1} more of this block" * (
            len(some) > 1
        )
        yield Fault(
            where=some, message=f"block {worst.block} of {worst.likes}: {said}{more}", fix=fix
        )


def _times(one: likes.OddOne[float]) -> float:
    """Returns how many times larger or smaller than usual a value is; inf where one of the two is
    0.
    """
    low, high = sorted((one.value, one.usual))
    return high / low if low else math.inf


def _by_block(
    found: Iterable[likes.OddOne[Any]], key: Callable[[Any], Any]
) -> list[list[likes.OddOne[Any]]]:
    """Groups what is odd by block and key, in order."""
    groups: defaultdict[tuple[int, Any], list[likes.OddOne[Any]]] = defaultdict(list)
    for one in found:
        groups[one.block, key(one)].append(one)
    return [some for _, some in sorted(groups.items())]


_FROZEN, _TRAINED = "frozen (requires_grad is False)", "trained (requires_grad is True)"


@rule("frozen-unlike-others")
def frozen_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block that are frozen beside trained likes, or the other way round; and all
    norms' alone.
    """
    odd = likes.odd_parameters(
        patient.model,
        lambda weight: _TRAINED if weight.requires_grad else _FROZEN,
        # Of a trained model the lowest may be frozen, and no others.
        usual=lambda states: patient.trained and list(states) == sorted(states),
    )
    yield from _in_states(odd)
    if patient.trained or odd:
        return
    norms = norm_parameters(patient.model)
    # A vector that stands alone may be the bias of a router, which is frozen by design.
    read = {name for stack in patient.stacks for use in stack.norm_uses for name in use.parameters}
    frozen = [name for name, weight in norms.items() if not weight.requires_grad and name in read]
    others = [weight for name, weight in patient.model.named_parameters() if name not in norms]
    if len(frozen) > 2 and all(weight.requires_grad for weight in others):
        yield Fault(
            where=frozen,
            message=f"{len(frozen)} of {len(norms)} gains and shifts of norms are frozen at their "
            f"initial values, while all {len(others)} other parameters are trained",
            fix="let norms be trained, by requires_grad_(True), or build them without parameters "
            "(elementwise_affine=False)",
        )


@rule("precision-unlike-others")
def precision_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights have another dtype than their likes, or that compute in another one."""
    weights = likes.odd_parameters(
        patient.model, lambda weight: str(weight.dtype).removeprefix("torch.")
    )
    yield from _in_states(weights, "kept in {}")
    told = {one.block for one in weights}
    for stack in patient.stacks:
        yield from _in_states(
            [one for one in likes.odd_precisions(stack) if one.block not in told], "computed in {}"
        )


@rule("optimizer-unlike-others", an_optimizer)
def optimizer_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block in no group, or decayed otherwise, at another rate or with other means,
    beside likes that are held and treated alike.
    """
    # A rate of 0 is none at all; others may fall from the last block to the first.
    decays = {
        id(p): f"decayed by {float(group.get('weight_decay') or 0):g}"
        if group.get("lr", 1) != 0
        else "at a rate of 0"
        for group in patient.groups
        for p in group["params"]
    }

    def state(weight: torch.nn.Parameter) -> str:
        # What is frozen has no need of an optimiser.
        return decays.get(id(weight), "in no parameter group" if weight.requires_grad else _FROZEN)

    odd = likes.odd_parameters(patient.model, state)
    odd = [one for one in odd if _FROZEN not in (one.value, one.usual)]
    yield from _in_states(odd)
    told = {one.name for one in odd}
    for treated in (_at_rates(patient), _with_means(patient)):

        def treatment(weight: torch.nn.Parameter, known: dict[int, str] = treated) -> str:
            return known.get(id(weight), "")

        unlike = likes.odd_parameters(patient.model, treatment)
        known = [one for one in unlike if one.value and one.usual and one.name not in told]
        yield from _in_states(known)


def _at_rates(patient: Patient) -> dict[int, str]:
    """Returns the rate of every weight that is held, in words; that which a scheduler
    multiplies.
    """
    return {
        id(weight): f"updated at the rate {rate:.4g}"
        for group, rate in zip(patient.groups, patient.peaks, strict=True)
        if rate
        for weight in group["params"]
    }


def _with_means(patient: Patient) -> dict[int, str]:
    """Returns, by the `id` of a weight, how an optimiser updates it, in words."""
    names = ("betas", "momentum", "eps", "alpha")
    return {
        id(weight): "updated with "
        + ", ".join(f"{name} {group[name]}" for name in names if name in group)
        for group in patient.groups
        for weight in group["params"]
    }


def _in_states(odd: Iterable[likes.OddOne[str]], said: str = "{}") -> Iterator[Fault]:
    """One fault for all weights of a block that are in one state, which is put into what is
    said.
    """
    for some in _by_block(odd, lambda one: (one.value, one.usual)):
        one = some[0]
        rest = (
            f", and so {'is' if len(some) == 2 else 'are'} {len(some) - 1} more of this block"
            * (len(some) > 1)
        )
        yield Fault(
            where=some,
            message=(
                f"block {one.block} of {one.likes}: {one.name} is {said.format(one.value)}{rest}, "
                f"while most of its counterparts in other blocks are {said.format(one.usual)}"
            ),
        )


_ROUNDED = 1e-6
"""The share, of the usual size of a matrix's gradient entries, below which one is rounding; Mamba's
steps have 1e-4, and float32 keeps 1e-7.
"""


@rule("rounded-gradient", initial_weights, gradients)
def rounded_gradient(patient: Patient) -> Iterator[Fault]:
    """Matrices of feed-forwards with gradients a million times smaller than the others', and not 0.

    Attention's own are left out: queries and keys have none where tokens start alike, as a DETR's
    decoder does. So are those of scans and convolutions, whose step reaches the loss as a product
    of four small numbers.
    """
    norms, weights = patient.observed.gradient_norms, patient.weights
    asked = [one for one in patient.sublayers() if one.kind == "feed_forward"]
    names = dict.fromkeys(
        name for one in asked for name in one.measured.matrices if norms.get(name)
    )
    kept = [name for name in names if name in weights and weights[name].dtype == torch.float32]
    sizes = {name: norms[name] / weights[name].numel() ** 0.5 for name in kept}
    usual = median(sizes.values()) if sizes else 0.0
    found = [name for name, size in sizes.items() if size < _ROUNDED * usual]
    if found:
        yield Fault(
            where=found,
            message=f"{len(found)} of {len(sizes)} matrices get a gradient of "
            f"{max(map(sizes.__getitem__, found)):.1g} an entry, where others have "
            f"{usual:.1g}: what they compute cancels before the loss, and rounding is left",
        )
