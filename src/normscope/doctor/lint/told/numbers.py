"""Numbers of the optimiser that cannot be meant, beside what the model's gradients are."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from ....report.words import learning_rate
from ..patient import Patient, an_optimizer, gradients, listed
from ..rule import Fault, rule

_LONGEST = 1 - 1e-5
"""A decay of squared gradients that remembers a hundred thousand updates."""
_LONGEST_MOMENTUM = 0.995
"""The same of plain momentum, 200 updates; 0.9 and 0.99 are in use."""
_TAKES = 5e-3
"""Share of every weight that decay takes away an update; recipes have 1e-5 to 2e-3."""


@rule("optimizer-numbers", an_optimizer)
def optimizer_numbers(patient: Patient) -> Iterator[Fault]:
    """Means, decays and directions that no training is made with."""
    kind = type(patient.optimizer).__name__
    told: set[str] = set()
    for group in patient.groups:
        for message, fix in _of_group(group, kind):
            if message not in told:
                told.add(message)
                yield Fault(where="", in_code=False, message=message, fix=fix)


def _of_group(group: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    rate, decay = float(group.get("lr") or 0.0), float(group.get("weight_decay") or 0.0)
    betas = group.get("betas")
    if isinstance(betas, tuple | list) and len(betas) == 2:
        yield from _of_betas(float(betas[0]), float(betas[1]), kind)
    momentum = group.get("momentum")
    if isinstance(momentum, int | float) and momentum > _LONGEST_MOMENTUM:
        yield (
            f"{kind}'s momentum is {momentum:g}: each update is a sum of about "
            f"{1 / (1 - momentum):,.0f} gradients, and the rate counts as often",
            "take 0.9, or lower the rate by as much as momentum adds",
        )
    if group.get("maximize"):
        yield (
            f"{kind} is set to maximize: every update raises the loss",
            "leave maximize out",
        )
    if rate * decay > _TAKES:
        yield (
            f"the rate {learning_rate(rate, 2)} times the weight decay {decay:g} takes "
            f"{100 * rate * decay:.2g} % of every weight away in each update: half of it is gone "
            f"after {math.log(2) / (rate * decay):,.0f}",
            "take a decay of 0.01 to 0.1 with Adam's rates",
        )


def _of_betas(first: float, second: float, kind: str) -> Iterator[tuple[str, str]]:
    if first >= math.sqrt(second):
        yield (
            f"{kind}'s betas are ({first:g}, {second:g}): the first is to be below the root of the "
            f"second, {math.sqrt(second):.3g}, or the mean of gradients outlasts that of their "
            "squares, and steps grow without bound",
            "take (0.9, 0.999) or (0.9, 0.95): the mean of gradients first, that of squares second",
        )
    elif second > _LONGEST:
        yield (
            f"{kind}'s second beta is {second:.9g}: the squares of {1 / (1 - second):,.0f} updates "
            "are remembered, those of the first among them, which are the largest",
            "take 0.999 or 0.95",
        )


_SMALLER = 3.0
"""Times that updates of most weights are smaller than the rate says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A weight beside what its optimiser adds to its gradient."""

    weight: Tensor
    gradient: float
    """Root mean square of its entries, after the clip."""
    epsilon: float | None
    decay: float


@rule("swamped-gradient", an_optimizer, gradients)
def swamped_gradient(patient: Patient) -> Iterator[Fault]:
    """An ε, or a decay that is added to the gradient, beside which the gradient is nothing."""
    held = [one for one in _held(patient) if one.gradient > 0]
    kind = type(patient.optimizer).__name__
    if not held:
        return
    lost = [one for one in held if _is_lost(one)]
    if lost:
        yield Fault(
            where="",
            in_code=False,
            message=(
                f"{kind}'s ε of {lost[0].epsilon:g} is 0 in the {lost[0].weight.dtype} of "
                f"{len(lost)} of {len(held)} weights: where a gradient is 0 the step is 0 / 0"
            ),
            fix="take an ε of 1e-6 or more, or keep weights in float32",
        )
    times = [1 + one.epsilon / one.gradient for one in held if one.epsilon is not None]
    if times and median(times) > _SMALLER:
        own = median([one.gradient for one in held])
        yield Fault(
            where="",
            in_code=False,
            message=(
                f"{kind}'s ε of {held[0].epsilon:g} stands beside gradients of {own:.2g} an entry: "
                f"it divides by {median(times):.3g} times their size, and the first updates are as "
                "much smaller than the rate says"
            ),
            fix="take an ε of 1e-8, or one far below the gradient's size",
        )
    if kind not in ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad"):
        return
    if any(group.get("decoupled_weight_decay") for group in patient.groups):
        return
    decays = [one.decay * _size(one.weight) / one.gradient for one in held if one.decay]
    if decays and median(decays) > _SMALLER:
        yield Fault(
            where="",
            in_code=False,
            message=(
                f"{kind} adds the weight decay to the gradient and divides both by their size: "
                f"here the decay of most weights is {median(decays):.3g} times their gradient, and "
                "what an update follows is the decay"
            ),
            fix="take AdamW, which decays beside the step, or a decay as much smaller",
        )


def _held(patient: Patient) -> Iterator[_Held]:
    names = {id(weight): name for name, weight in patient.weights.items()}
    norms = patient.observed.gradient_norms
    whole = math.hypot(*norms.values())
    clip = patient.clip_norm
    factor = 1.0 if clip is None or not whole else min(1.0, clip / whole)
    for group in patient.groups:
        epsilon = group.get("eps")
        for weight in group["params"]:
            name = names.get(id(weight), "")
            if name in norms and weight.ndim > 1:
                yield _Held(
                    weight=weight,
                    gradient=factor * norms[name] / math.sqrt(weight.numel()),
                    epsilon=epsilon if isinstance(epsilon, float) else None,
                    decay=float(group.get("weight_decay") or 0.0),
                )


def _is_lost(one: _Held) -> bool:
    """Tells whether an ε that is not 0 becomes 0 in the weight's dtype, in which torch's Adam adds
    it.
    """
    if not one.epsilon or one.weight.dtype not in (torch.float16, torch.bfloat16):
        return False
    return float(torch.tensor(one.epsilon, dtype=one.weight.dtype)) == 0


def _size(weight: Tensor) -> float:
    return float(weight.detach().float().square().mean().sqrt())


_APART = 50.0


@rule("group-rates-apart", an_optimizer)
def group_rates_apart(patient: Patient) -> Iterator[Fault]:
    """A group whose rate is far from that at which most weights are updated."""
    peaks = [rate for rate in patient.peaks if rate > 0]
    if len(peaks) < 2:
        return
    sizes: dict[float, int] = {}
    for group, rate in zip(patient.groups, patient.peaks, strict=True):
        if rate > 0:
            held = sum(weight.numel() for weight in group["params"])
            sizes[rate] = sizes.get(rate, 0) + held
    usual = max(sizes, key=lambda rate: sizes[rate])
    names = {id(weight): name for name, weight in patient.weights.items()}
    for group, rate in zip(patient.groups, patient.peaks, strict=True):
        if rate <= 0 or 1 / _APART <= rate / usual <= _APART:
            continue
        own = [names[id(weight)] for weight in group["params"] if id(weight) in names]
        times = rate / usual if rate > usual else usual / rate
        side = "above" if rate > usual else "below"
        yield Fault(
            where=own,
            in_code=False,
            message=(
                f"{listed(own)} are updated at the rate {learning_rate(rate, 2)}, {times:.3g} "
                f"times {side} the {learning_rate(usual, 2)} of most weights"
            ),
            fix=f"give the group a rate nearer to {learning_rate(usual, 2)}",
        )


_FALLS = 1.5
"""Times that a rate is larger in the first block than in the last."""
_LEAST_BLOCKS = 3


@rule("rates-fall-with-depth", an_optimizer)
def rates_fall_with_depth(patient: Patient) -> Iterator[Fault]:
    """Rates that are lower in each block than in the one below it."""
    rates = {
        id(weight): rate
        for group, rate in zip(patient.groups, patient.peaks, strict=True)
        for weight in group["params"]
    }
    for stack in patient.stacks:
        blocks: dict[int, set[float]] = {}
        for one in stack.sublayers:
            own = blocks.setdefault(one.block, set())
            own.update(
                rate
                for name in one.measured.matrices
                if (rate := rates.get(id(patient.weights.get(name)))) is not None
            )
        means = [
            fmean(blocks[number]) for number in sorted(blocks) if number > 0 and blocks[number]
        ]
        falls = all(after < before for before, after in pairwise(means))
        if len(means) >= _LEAST_BLOCKS and falls and means[0] > _FALLS * means[-1]:
            yield Fault(
                where=stack.name,
                in_code=False,
                message=(
                    f"the rate falls from block to block, from {learning_rate(means[0], 2)} in the "
                    f"first to {learning_rate(means[-1], 2)} in the last of {len(means)}: what was "
                    "learnt before is overwritten first, and the blocks next to the task move least"
                ),
            )


@rule("muon-over-tables", an_optimizer)
def muon_over_tables(patient: Patient) -> Iterator[Fault]:
    """An optimiser that makes updates orthogonal, over embeddings and output matrices."""
    kind = type(patient.optimizer).__name__
    if "muon" not in kind.lower():
        return
    tables = {one.name for one in patient.observed.tables}
    tables |= {one.name for one in patient.observed.output_matrices}
    # One that goes over to Adam for some groups says so in them.
    groups = [group for group in patient.groups if group.get("use_muon", True)]
    held = {id(weight) for group in groups for weight in group["params"]}
    found = [name for name in sorted(tables) if id(patient.weights.get(name)) in held]
    if found and not any("adam" in key.lower() for group in groups for key in group):
        yield Fault(
            where=found,
            in_code=False,
            message=(
                f"{kind} holds {listed(found)}: its updates are of one size in all directions, "
                "where only the rows of tokens in the batch have a gradient"
            ),
        )
