"""Part of the third law: no output knows the token that the loss asks it for.

Of every output over the tokens' places, heads for later tokens among them, the gradient tells which
token it is asked for; another token in that one's place must not change it.
"""

# B = sequences, T = tokens, V = classes

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ..observe.gradients import loss_of
from .trial import Trial

_FARTHEST = 4
"""Places that a head looks ahead."""
_AGREE = 0.95
"""Share of the targets that are the tokens so many places later; padding may be left out."""
_SHOWS = 1e-4
"""The smallest change that counts, as a share of an output's size."""


def known_answers(trial: Trial, name: str, ids_BT: Tensor, run: Any) -> dict[int, int]:
    """Finds outputs that know the token that they are asked for: returns, by the output's number
    among all of the model's tensors, how many places later that token stands.

    name: of the input that holds the tokens. run: gives the model's output with other inputs by
    name.
    """
    # Most models have one output, which no pass has to show.
    if len(_over_places(trial.output, ids_BT)) < 2 or not (asked := _asked_for(trial, ids_BT)):
        return {}
    at = ids_BT.shape[1] // 2
    other_BT = ids_BT.clone()
    other_BT[:, at] = ids_BT[:, at].roll(1, 0)
    same_B = other_BT[:, at] == ids_BT[:, at]
    other_BT[same_B, at] = ids_BT[same_B, at - 1]
    before, after = tree_flatten(trial.run())[0], tree_flatten(run({name: other_BT}))[0]
    found = {}
    for number, later in asked.items():
        one, other = before[number][:, at - later], after[number][:, at - later]
        if float((other - one).norm()) > _SHOWS * float(one.norm()):
            found[number] = later
    return found


def _asked_for(trial: Trial, ids_BT: Tensor) -> Mapping[int, int]:
    """Returns how many places later the targets of each output (B, T, V) stand among the tokens, by
    the output's number.
    """
    with torch.enable_grad():
        output = trial.run()
        value = loss_of(output, trial.loss)[0]
        over_places = _over_places(output, ids_BT)
        shaped = {number: leaf for number, leaf in over_places.items() if leaf.requires_grad}
        if len(shaped) < 2 or not value.requires_grad:
            return {}
        gradients = torch.autograd.grad(value, [*shaped.values()], allow_unused=True)
    found = {}
    for number, gradient in zip(shaped, gradients, strict=True):
        later = 0 if gradient is None else _places_later(gradient, ids_BT)
        if later:
            found[number] = later
    return found


def _over_places(output: Any, ids_BT: Tensor) -> dict[int, Tensor]:
    """Returns the tensors (B, T, V) of an output, by their number among all of its tensors."""
    return {
        number: leaf
        for number, leaf in enumerate(tree_flatten(output)[0])
        if isinstance(leaf, Tensor) and leaf.ndim == 3 and leaf.shape[:2] == ids_BT.shape
    }


def _places_later(gradient_BTV: Tensor, ids_BT: Tensor) -> int:
    """1 to 4; 0 where targets are no such tokens, or not read off a cross-entropy's gradient."""
    least_BT, wanted_BT = gradient_BTV.min(-1)
    # A cross-entropy pulls one class up, and pushes all others down.
    if not bool(((gradient_BTV < 0).sum(-1) <= 1).all()):
        return 0
    for later in range(1, _FARTHEST + 1):
        counted_BT = least_BT[:, :-later] < 0
        agrees_BT = wanted_BT[:, :-later] == ids_BT[:, later:]
        counted = int(counted_BT.sum())
        if counted > _FARTHEST and int((agrees_BT & counted_BT).sum()) >= _AGREE * counted:
            return later
    return 0
