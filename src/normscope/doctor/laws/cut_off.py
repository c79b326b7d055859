"""Part of the first law: weights that the output changes with, and that no loss reaches."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.passes import euclidean_norm
from ..observe.gradients import loss_of
from ..trace.forward import tensors_in
from .trial import Trial

_MOST_ASKED = 12
"""Weights without a gradient that are asked one by one."""


@torch.no_grad()
def cut_off_weights(trial: Trial, silent: Mapping[str, nn.Parameter]) -> tuple[str, ...]:
    """Returns, of weights without a gradient, those on which the output depends."""
    if silent and trial.loss is None:
        silent = _out_of_reach(trial, silent)
    before = trial.scores() if silent else None
    again = trial.scores() if silent else None
    if before is None or again is None or not torch.equal(before, again):
        return ()
    if not _changes(trial, [*silent.values()], before):
        return ()
    names = [name for name in [*silent][:_MOST_ASKED] if _changes(trial, [silent[name]], before)]
    reached = _reached_now(trial, {name: silent[name] for name in names})
    names = [name for name in names if name not in reached]
    if trial.loss is None and _makes_whole_numbers(trial, [silent[name] for name in names]):
        return ()
    return tuple(names)


@torch.enable_grad()
def _reached_now(trial: Trial, weights: Mapping[str, nn.Parameter]) -> set[str]:
    """Of weights, those that the loss depends on after the last update, which may have sent tokens
    to another expert.
    """
    if not weights:
        return set()
    try:
        value = loss_of(trial.run(), trial.loss)[0]
        gradients = torch.autograd.grad(value, [*weights.values()], allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return set()
    pairs = zip(weights, gradients, strict=True)
    return {name for name, gradient in pairs if gradient is not None and bool(gradient.any())}


def _makes_whole_numbers(trial: Trial, weights: list[nn.Parameter]) -> bool:
    """Whether these weights change whole numbers that the model returns, as the durations of sounds
    are: rounded, they pass no gradient on, and a loss of their own trains what makes them.
    """
    if not weights or not loss_of(trial.output, None)[1]:
        return False
    before = _whole_numbers(trial.run())
    with _moved(weights):
        after = _whole_numbers(trial.run())
    return any(
        one.shape == other.shape and not torch.equal(one, other)
        for one, other in zip(before, after, strict=False)
    )


def _whole_numbers(output: Any) -> list[Tensor]:
    found = tensors_in(output, inside_objects=False)
    return [one for one in found if not one.is_floating_point() and not one.is_complex()]


@torch.enable_grad()
def _out_of_reach(trial: Trial, silent: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Returns, of weights without a gradient, those to which no loss of the output could give one;
    all of them where the model takes its loss itself.

    Random targets are for one tensor of the output alone. Of a detector's proposals the decoder
    reads a detached copy, and a loss of their own trains them.
    """
    output = trial.run()
    # Caches are no results that a loss is taken of.
    results = [one for one in tensors_in(output, inside_objects=False) if one.requires_grad]
    is_stand_in = loss_of(output, None)[1]
    if not results or not is_stand_in:
        return dict(silent)
    try:
        gradients = torch.autograd.grad(
            results,
            [*silent.values()],
            [torch.ones_like(one) for one in results],
            allow_unused=True,
        )
    except (RuntimeError, NotImplementedError):
        # Something in the output has no derivative: which weights a loss reaches is not known.
        return {}
    pairs = zip(silent.items(), gradients, strict=True)
    return {name: weight for (name, weight), gradient in pairs if gradient is None}


def _changes(trial: Trial, weights: list[nn.Parameter], before: Tensor) -> bool:
    """Tells whether the output changes when these weights are moved by a tenth of their size."""
    with _moved(weights):
        after = trial.scores()
    return after is not None and (after.shape != before.shape or not torch.equal(after, before))


@contextlib.contextmanager
def _moved(weights: list[nn.Parameter]) -> Iterator[None]:
    """Weights moved at random by a tenth of their size, or by 0.1 where they are 0."""
    kept = [weight.detach().clone() for weight in weights]
    generator = torch.Generator().manual_seed(0)
    for weight in weights:
        size = euclidean_norm(weight) / math.sqrt(max(1, weight.numel()))
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        weight.add_(drawn, alpha=0.1 * size or 0.1)
    try:
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.copy_(value)
