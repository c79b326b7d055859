"""The first law: every trainable parameter moves in a few updates of the user's optimiser.

A product of two factors that are both 0 never leaves it, a weight that no group holds stays as it
was drawn, and an update below half the step of its dtype rounds back to what was there.
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.passes import euclidean_norm
from ..observe.gradients import loss_of
from .calm import calm_training
from .cut_off import cut_off_weights
from .trial import OutOfTime, Trial, Untried, said

UPDATES = 4
"""Behind a head of zeros a gate of zero opens in the second update, and the matrix of zeros behind
it in the third."""
_USUAL_RATE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The changes of a trainable parameter."""

    rate: float | None
    """The peak rate of the group that holds it; None where no group does."""
    first_gradient: float
    """Root mean square of its entries' gradients in the first update; NaN where the loss does not
    depend on it then.
    """
    got_gradient: bool
    """True where a gradient other than 0 came in any of the updates."""
    asked: float
    """Share of its entries with a gradient other than 0, in the first update with any."""
    share: float
    """The share of its entries that are other numbers after the updates."""
    size: float
    """Root mean square of the entries' moves in the first update, of those that were asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """A few updates of a copy of the model."""

    updates: int
    """The number of updates that were made: as many as it took until all had moved, at most
    `UPDATES`.
    """
    rate_is_users: bool
    """True where the rate is one that the user gave."""
    by_name: Mapping[str, Moved]
    """The changes of every trainable parameter."""
    losses: tuple[float, ...]
    """The losses before each update, and after the last."""
    locked: tuple[str, ...] = ()
    """The parameters whose gradient is 0 in every update because others of them are 0, and is not
    once these are drawn: two factors of one product that are both 0, and what stands behind them.
    """
    keys: tuple[str, ...] = ()
    """The parameters of `locked` that are 0."""
    cut_off: tuple[str, ...] = ()
    """The parameters without any gradient on which the output depends: something detaches them."""

    @property
    def stuck(self) -> tuple[str, ...]:
        """Parameters that the loss is computed with, and whose gradient was exactly 0 each time."""
        return tuple(
            name
            for name, moved in self.by_name.items()
            if moved.first_gradient == 0 and not moved.got_gradient
        )


_SHORTER = 0.9


class _FirstUpdates:
    """An optimiser for one that is given by its name alone; every update is like that optimiser's
    first one: SGD goes by the gradient, all others divide it by its own size.

    torch's own would import its compiler, which takes as long as torch itself.
    """

    def __init__(self, weights: Iterable[nn.Parameter], name: str, rate: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": [*weights], "lr": rate}]
        self._divides, self._step = name != "sgd", rate

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        step = self._step
        # A weight whose gradient turns its sign is not to come back to exactly where it was.
        self._step *= _SHORTER
        for weight in group["params"]:
            if weight.grad is not None:
                gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
                weight.sub_(step * (gradient.sgn() if self._divides else gradient))


_Updater = torch.optim.Optimizer | _FirstUpdates


def movement(
    trial: Trial,
    optimizer: torch.optim.Optimizer | str,
    rate: float | None,
    peaks: Sequence[float] = (),
) -> Movement:
    """Updates the trial's model, which is another one afterwards.

    optimizer: an instance over the original's parameters, or a name. rate: the user's peak rate;
    None for an instance's own, or a usual one. peaks: of an instance's groups, where its scheduler
    told them. Raises Untried.
    """
    weights = {name: w for name, w in trial.model.named_parameters() if w.requires_grad}
    if not weights:
        raise Untried("no parameter of the model asks for a gradient")
    mine = _optimizer_of(trial, optimizer, rate, peaks)
    known = rate is not None or isinstance(optimizer, torch.optim.Optimizer)
    with calm_training(trial.model):
        try:
            return _as_movement(trial, weights, mine, _updated(trial, weights, mine), known)
        except _Unusable as error:
            why = str(error)
    # What asks for more in training than the batch has is updated as it is evaluated.
    try:
        return _as_movement(trial, weights, mine, _updated(trial, weights, mine), known)
    except _Unusable as error:
        raise Untried(why) from error


class _Unusable(ValueError):
    pass


@dataclass(slots=True)
class _Updates:
    first: dict[str, float]
    sizes: dict[str, float]
    heard: dict[str, float]
    """The share of entries with a gradient other than 0, for each parameter that got one."""
    losses: list[float]


def _updated(trial: Trial, weights: Mapping[str, nn.Parameter], optimizer: _Updater) -> _Updates:
    """Updates until every weight that is held has got a gradient and moved; at most `UPDATES`."""
    start = dict(trial.original.named_parameters())
    found = _Updates({}, {}, {}, [])
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if group["lr"]}
    for update in range(UPDATES):
        loss, gradients = _gradients(trial, weights)
        found.losses.append(loss)
        heard_before = len(found.heard)
        for name, gradient in gradients.items():
            entries = gradient.coalesce().values() if gradient.is_sparse else gradient
            if update == 0:
                found.first[name] = _root_mean_square(entries, weights[name].numel())
            if name not in found.heard and (count := int(entries.count_nonzero())):
                found.heard[name] = count / weights[name].numel()
        if not math.isfinite(loss):
            break
        _step(optimizer, weights, gradients)
        if update == 0:
            found.sizes = {name: _distance(w, start[name]) for name, w in weights.items()}
        # What the loss does not depend on at first, as experts without tokens, is not waited for.
        still = [
            name
            for name in found.first
            if name not in found.heard
            or (id(weights[name]) in held and torch.equal(weights[name], start[name]))
        ]
        # What opens, opens behind what was heard of anew.
        if not still or (update and len(found.heard) == heard_before):
            break
    found.losses.append(_loss(trial))
    return found


def _step(
    optimizer: _Updater,
    weights: Mapping[str, nn.Parameter],
    gradients: Mapping[str, Tensor],
) -> None:
    for name, weight in weights.items():
        weight.grad = gradients.get(name)
    try:
        optimizer.step()
    except Exception as error:
        kind = type(optimizer).__name__
        raise _Unusable(f"{kind} makes no update by itself ({said(error)})") from error
    for weight in weights.values():
        weight.grad = None


def _gradients(
    trial: Trial, weights: Mapping[str, nn.Parameter]
) -> tuple[float, dict[str, Tensor]]:
    """Returns the loss and its gradients. Raises Untried where the copy computes with the
    original's weights, and _Unusable where the pass cannot be made.
    """
    shared = {id(weight) for weight in weights.values()}
    others = [w for w in trial.original.parameters() if w.requires_grad and id(w) not in shared]
    asked = [*weights.values(), *others]
    try:
        with torch.enable_grad():
            value = loss_of(trial.run(), trial.loss)[0]
            found = torch.autograd.grad(value, asked, allow_unused=True)
    except OutOfTime:
        raise
    except Exception as error:
        raise _Unusable(f"a copy of the model cannot be updated ({said(error)})") from error
    if any(gradient is not None for gradient in found[len(weights) :]):
        raise Untried("a copy of the model computes with the weights of the model itself")
    pairs = zip(weights, found[: len(weights)], strict=True)
    gradients = {name: gradient for name, gradient in pairs if gradient is not None}
    return float(value.detach()), gradients


@torch.no_grad()
def _loss(trial: Trial) -> float:
    return float(loss_of(trial.run(), trial.loss)[0])


def _distance(weight: Tensor, start: Tensor) -> float:
    """Returns the root mean square of an entry's move."""
    step = weight.detach().float() - start.detach().float()
    return _root_mean_square(step, step.numel())


def _root_mean_square(x: Tensor, entries: int) -> float:
    return euclidean_norm(x) / math.sqrt(max(1, entries))


def _as_movement(
    trial: Trial,
    weights: Mapping[str, nn.Parameter],
    optimizer: _Updater,
    updates: _Updates,
    rate_is_users: bool,
) -> Movement:
    start = dict(trial.original.named_parameters())
    rates = {id(p): float(g["lr"]) for g in optimizer.param_groups for p in g["params"]}
    by_name = {}
    for name, weight in weights.items():
        differs = (weight.detach() != start[name].detach()).double().mean()
        by_name[name] = Moved(
            rate=rates.get(id(weight)),
            first_gradient=updates.first.get(name, math.nan),
            got_gradient=name in updates.heard,
            share=float(differs) if weight.numel() else 0.0,
            size=updates.sizes.get(name, 0.0) / math.sqrt(updates.heard.get(name, 1.0)),
            asked=updates.heard.get(name, 0.0),
        )
    silent = [name for name in weights if name not in updates.first and name not in updates.heard]
    stuck = [name for name in updates.first if name not in updates.heard]
    cut_off = cut_off_weights(trial, {name: weights[name] for name in silent})
    keys, locked = _locked(trial, {name: weights[name] for name in stuck})
    return Movement(
        updates=len(updates.losses) - 1,
        rate_is_users=rate_is_users,
        by_name=by_name,
        losses=tuple(updates.losses),
        locked=locked,
        keys=keys,
        cut_off=cut_off,
    )


_DRAWN = 0.02


def _locked(
    trial: Trial, stuck: Mapping[str, nn.Parameter]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns, of weights whose gradient is always 0, those that are 0 and, once these are drawn,
    all that get a gradient.
    """
    keys = [name for name, weight in stuck.items() if not bool(weight.detach().any())]
    if not keys:
        return (), ()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name in keys:
            drawn = torch.randn(stuck[name].shape, generator=generator)
            stuck[name].copy_(_DRAWN * drawn.to(stuck[name]))
    _, gradients = _gradients(trial, stuck)
    opened = tuple(name for name, gradient in gradients.items() if bool(gradient.any()))
    return tuple(name for name in keys if name in opened), opened


def _optimizer_of(
    trial: Trial,
    optimizer: torch.optim.Optimizer | str,
    rate: float | None,
    peaks: Sequence[float],
) -> _Updater:
    """Returns the user's optimiser over the copy, at its peak rates. Raises Untried."""
    if isinstance(optimizer, str):
        trained = [weight for weight in trial.model.parameters() if weight.requires_grad]
        return _FirstUpdates(trained, optimizer, rate or _USUAL_RATE)
    try:
        made = copy.deepcopy(optimizer, trial.copies)
    except Exception as error:
        raise Untried(f"the optimiser cannot be copied ({said(error)})") from error
    for number, group in enumerate(made.param_groups):
        _at_its_peak(group)
        if len(peaks) == len(made.param_groups):
            group["lr"] = peaks[number]
    if not any(group.get("lr") for group in made.param_groups):
        raise Untried("the rate of every group is 0 at present")
    return made


def _at_its_peak(group: dict[str, Any]) -> None:
    """A scheduler keeps the rate that it multiplies beside the present one; what works on all
    weights at once takes as much memory as they do.
    """
    group["lr"] = float(group.get("initial_lr", group.get("lr") or 0.0))
    for name in ("foreach", "fused"):
        if group.get(name):
            group[name] = False
