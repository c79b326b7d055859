"""A short training of a model on a task, and what it has learned: the loss on sequences that no
update has seen.
"""

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..doctor.laws.calm import calm_training
from ..doctor.learned import LearningCurve
from ..doctor.trace.forward import call_with
from ..optim import OptimizerConfig, make_optimizer
from .asking import ROWS, LearningBatch, LearningTask, loss_of_ours, nats_by_target, scores_of

JUDGED_ROWS = 128
"""Fresh sequences, by which a model is judged."""
_LEARNED_SHARE = 0.02
"""The share of chance below which a training ends."""
_MEANED = 5
"""Updates that a point of the curve is the mean of."""
_LAST_SHARE = 0.1
"""The share of the peak rate at the last update."""
_DRAWS = 20_000
"""Added to a seed for sequences that a model is judged by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningAttempt:
    """One training: up to a peak rate over a fifth of the updates, and down in a line."""

    rate: float
    updates: int

    def factor(self, update: int) -> float:
        """Returns the share of the peak rate in an update, counted from 1."""
        warmup = max(1, self.updates // 15) if self.updates <= 150 else self.updates // 5
        if update <= warmup:
            return update / warmup
        gone = (update - warmup) / max(1, self.updates - warmup)
        return 1 - (1 - _LAST_SHARE) * gone


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRun:
    """The result of a training."""

    attempt: LearningAttempt
    updates: int
    """The updates that were made."""
    nats: float
    """The loss at what can be known, in evaluation mode; infinite where it is not finite."""
    training_nats: float
    unknowable_nats: float | None
    curve: LearningCurve


MakeOptimizer = Callable[[nn.Module, float], torch.optim.Optimizer]
"""A function of a model and a peak rate that makes an optimiser over it."""


def named_optimizer(name: str) -> MakeOptimizer:
    """Makes an optimiser of our list."""

    def make(model: nn.Module, rate: float) -> torch.optim.Optimizer:
        return make_optimizer(model, OptimizerConfig(name=name, peak_lr=rate))

    return make


def copied_optimizer(given: torch.optim.Optimizer, copies: dict[int, Any]) -> MakeOptimizer:
    """Makes the user's optimiser over a copy of its model, its largest rate at the peak."""

    def make(model: nn.Module, rate: float) -> torch.optim.Optimizer:
        made = copy.deepcopy(given, copies)
        made.state.clear()
        rates = [_peak(group) for group in made.param_groups]
        largest = max(rates, default=0.0)
        for group, own in zip(made.param_groups, rates, strict=True):
            group["lr"] = rate * own / largest if largest else rate
        return made

    return make


def same_optimizer(given: torch.optim.Optimizer) -> MakeOptimizer:
    """Makes one of the same class, with the settings of the user's first group, over all
    parameters of a model of ours; AdamW where that class cannot.
    """

    def make(model: nn.Module, rate: float) -> torch.optim.Optimizer:
        settings = {**given.defaults, "lr": rate}
        try:
            return type(given)(model.parameters(), **settings)
        except (TypeError, ValueError):
            return torch.optim.AdamW(model.parameters(), lr=rate)

    return make


def _peak(group: dict[str, Any]) -> float:
    return float(group.get("initial_lr", group.get("lr") or 0.0))


Forward = Callable[[nn.Module, LearningBatch], Any]
"""A function that runs a model on a batch."""


def of_user(model: nn.Module, batch: LearningBatch) -> Any:
    """Runs the user's model."""
    torch.clear_autocast_cache()
    return call_with(model, batch.inputs)


def of_reference(model: nn.Module, batch: LearningBatch) -> Any:
    """Runs a model of ours."""
    return model(*batch.reference_inputs)


def trained(
    model: nn.Module,
    task: LearningTask,
    attempt: LearningAttempt,
    make: MakeOptimizer,
    run: Forward,
    *,
    seed: int,
    calm: bool = False,
    watch: Callable[[int], None] = lambda update: None,
) -> LearningRun:
    """Trains a model, which is another one afterwards.

    calm: without dropout. watch: told of each update. Raises what the model's own code raises, and
    ValueError for a loss that depends on no parameter.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = make(model, attempt.rate)
    peaks = [float(group["lr"]) for group in optimizer.param_groups]
    losses: list[float] = []
    with _mode(model, calm):
        for update in range(1, attempt.updates + 1):
            watch(update)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * attempt.factor(update)
            loss = updated(model, task, optimizer, run, generator)
            losses.append(loss)
            recent = losses[-_MEANED:]
            if not math.isfinite(loss) or _is_learned(recent, task):
                break
    return _judged(model, task, attempt, run, losses, seed)


@contextlib.contextmanager
def _mode(model: nn.Module, calm: bool) -> Iterator[None]:
    if calm:
        with calm_training(model):
            yield
        return
    model.train()
    yield


def _is_learned(recent: list[float], task: LearningTask) -> bool:
    return len(recent) == _MEANED and max(recent) < _LEARNED_SHARE * task.chance_nats


def updated(
    model: nn.Module,
    task: LearningTask,
    optimizer: torch.optim.Optimizer,
    run: Forward,
    generator: torch.Generator,
) -> float:
    """Makes one update, and returns the loss at what can be known before it."""
    batch = task.draw(generator, ROWS, True)
    output = run(model, batch)
    if run is of_user and task.own_loss is not None:
        loss = task.own_loss(output, batch.inputs)
    else:
        loss = loss_of_ours(output, batch)
    if not loss.requires_grad:
        raise ValueError("the loss depends on no parameter that is trained")
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    with torch.no_grad():
        return _mean(scores_of(output, batch.targets), batch.targets, batch.known)


def _mean(scores: Tensor, targets: Tensor, among: Tensor) -> float:
    return float(nats_by_target(scores.detach(), targets)[among].mean())


@torch.no_grad()
def _judged(
    model: nn.Module,
    task: LearningTask,
    attempt: LearningAttempt,
    run: Forward,
    losses: list[float],
    seed: int,
) -> LearningRun:
    batch = task.draw(torch.Generator().manual_seed(seed + _DRAWS), JUDGED_ROWS, False)
    model.train()
    trained_scores = scores_of(run(model, batch), batch.targets)
    model.eval()
    scores = scores_of(run(model, batch), batch.targets)
    some_unknowable = bool(batch.unknowable.any())
    return LearningRun(
        attempt=attempt,
        updates=len(losses),
        nats=_or_infinite(_mean(scores, batch.targets, batch.known)),
        training_nats=_or_infinite(_mean(trained_scores, batch.targets, batch.known)),
        unknowable_nats=_mean(scores, batch.targets, batch.unknowable) if some_unknowable else None,
        curve=curve_of(losses),
    )


def _or_infinite(nats: float) -> float:
    return nats if math.isfinite(nats) else math.inf


def curve_of(losses: list[float]) -> LearningCurve:
    """Returns means of a few updates each, the last of them fewer."""
    starts = range(0, len(losses), _MEANED)
    parts = [losses[start : start + _MEANED] for start in starts]
    means = [sum(part) / len(part) for part in parts]
    return LearningCurve(
        updates=tuple(min(start + _MEANED, len(losses)) for start in starts),
        nats=tuple(mean if math.isfinite(mean) else None for mean in means),
    )


def seconds_of_an_update(
    model: nn.Module, task: LearningTask, make: MakeOptimizer, run: Forward
) -> float:
    """Returns the seconds of the processor that an update takes, the less of two after the first;
    the model is another one afterwards.
    """
    generator = torch.Generator().manual_seed(0)
    optimizer = make(model, _HARMLESS_RATE)
    taken = []
    model.train()
    for _ in range(3):
        began = time.thread_time()
        updated(model, task, optimizer, run, generator)
        taken.append(time.thread_time() - began)
    return min(taken[1:])


_HARMLESS_RATE = 1e-6
