"""Experts that no token can be sent to, and experts that start as copies of one."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from ...trace.forward import joined
from ..patient import Patient, initial_weights, listed
from ..rule import Fault, rule


@rule("experts-without-tokens", initial_weights)
def experts_without_tokens(patient: Patient) -> Iterator[Fault]:
    """Choices of experts that are one for all tokens, whatever these are."""
    every = patient.observed.partly.sendings
    found = [one for one in every if one.chosen]
    # A batch may leave out an expert here and there; half of all choices are no chance.
    if not found or 2 * len(found) < len(every):
        return
    one = found[0]
    numbers = ", ".join(map(str, one.chosen))
    yield Fault(
        where=list(dict.fromkeys(each.name for each in found)),
        message=(
            f"in {len(found)} of {len(every)} choices all {one.tokens} tokens are sent to the same "
            f"experts, {numbers} of {one.among} (from 0), and the scores of the others lie below "
            "by more than tokens differ: the others get no token, and no gradient"
        ),
    )


@rule("identical-experts", initial_weights)
def identical_experts(patient: Patient) -> Iterator[Fault]:
    """Modules of one list inside a feed-forward, or the parts of one tensor, that are copies."""
    inside = {
        name
        for one in patient.sublayers()
        if one.kind == "feed_forward"
        for name in one.measured.parameters
    }
    lists = [path for path, count in _copied_lists(patient.model, inside) if count]
    tensors = [
        name
        for name in sorted(inside)
        if name in patient.weights and _is_one_again(patient.weights[name])
    ]
    found = lists or tensors
    if found:
        yield Fault(
            where=found,
            message=(
                f"the experts of {listed(found)} start as copies of one: which of them a token is "
                "sent to changes nothing, and their router's gradient cancels"
            ),
        )


def _copied_lists(model: nn.Module, inside: set[str]) -> Iterator[tuple[str, int]]:
    """Paths of lists of modules that lie inside of a sub-layer, and of how many copies each is; 0
    where they are not.
    """
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            continue
        # A list may hold None where a block goes without.
        held = {place: one for place, one in module.named_children() if one is not None}
        if len(held) < 2:
            continue
        parts = {place: dict(one.named_parameters()) for place, one in held.items()}
        first = next(iter(parts))
        own = [joined(path, joined(first, name)) for name in parts[first]]
        if own and set(own) <= inside:
            copies = [*parts.values()]
            yield path, len(copies) if _are_copies(copies) else 0


def _are_copies(parts: Sequence[Mapping[str, Tensor]]) -> bool:
    """Tells whether all hold the same numbers under the same names, some of them drawn, in tensors
    of their own.
    """
    first, drawn = parts[0], False
    for other in parts[1:]:
        if other.keys() != first.keys():
            return False
        for name, weight in first.items():
            copy = other[name]
            if copy is weight or copy.shape != weight.shape or not torch.equal(copy, weight):
                return False
            drawn = drawn or _is_drawn(weight)
    return drawn


def _is_one_again(weight: Tensor) -> bool:
    """Tells whether a tensor of (experts, …) matrices holds one drawn matrix several times."""
    if weight.ndim != 3 or len(weight) < 2 or weight.shape[1] < 2 or weight.shape[2] < 2:
        return False
    same = bool((weight.detach() == weight[:1].detach()).all())
    return same and _is_drawn(weight[0])


def _is_drawn(weight: Tensor) -> bool:
    return weight.ndim > 1 and bool((weight.detach() != weight.detach().flatten()[0]).any())
