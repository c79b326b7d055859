"""Can it learn at all? A copy is trained on a small task beside a model of ours of the same size.

The bounds stand here before anything is trained, and what lies between them is undecided.
"""

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ..doctor.laws.trial import TrialLimits, Untried, refuse_without_room, said, step_by_step
from ..doctor.learned import LEARNED, NOT_LEARNED, Learned, Learner, LearningCurve
from ..measure.unchanged import random_state_kept, uncompiled
from .asking import LearningTask
from .choosing_tasks import names_next, task_for
from .redrawing import redraw
from .references import ReferenceSize, reference_size, usual
from .training import (
    Forward,
    LearningAttempt,
    LearningRun,
    MakeOptimizer,
    copied_optimizer,
    named_optimizer,
    of_reference,
    of_user,
    same_optimizer,
    seconds_of_an_update,
    trained,
)

TENFOLD = 10.0
"""How many times the loss of two references a model's is to be that has not learned."""
IN_TIME = 0.8
"""The share of its updates in which a reference must have learned to be held against a model."""
MOST_SECONDS_OF_UPDATE = 0.2
_ALL_SECONDS = 60.0
"""The time of all attempts of a model that does not learn at the first."""
_UPDATES = 150
_LONGER = 2 * _UPDATES
_USUAL_ATTEMPTS = (
    LearningAttempt(rate=3e-3, updates=_UPDATES),
    LearningAttempt(rate=1e-3, updates=_LONGER),
    LearningAttempt(rate=1e-2, updates=_UPDATES),
)
"""Small models copy at the first of them; sums that are normalised need the second."""
_LION = 0.1
"""The rate of Lion beside that of Adam."""
_STAGE = "a trial by training"


@dataclass(slots=True)
class _Trial:
    """Copies, references, and how many updates are made of how many."""

    of: Learner
    task: LearningTask
    size: ReferenceSize | None
    done: int = 0
    planned: int = 0
    seconds: float = 0.0
    left_out: int = 0
    """Attempts that there is no time for."""
    references: dict[tuple[LearningAttempt, int, str], LearningRun] = field(default_factory=dict)

    def own(
        self, attempt: LearningAttempt, *, calm: bool = False, redrawn: bool = False
    ) -> LearningRun:
        """Trains a copy of the user's model. redrawn: with matrices of usual sizes."""
        model, copies = _copy(self.of.model)
        if redrawn:
            redraw(model, seed=0)
        make = _optimizer_for(self.of, copies)
        return self._trained(model, attempt, make, of_user, seed=0, calm=calm)

    def reference(self, attempt: LearningAttempt, seed: int, size: ReferenceSize) -> LearningRun:
        """Trains a model of ours; each once."""
        key = attempt, seed, size.placement
        if key not in self.references:
            torch.manual_seed(seed)
            model = self.task.reference(size).to(_device(self.of.model))
            given = self.of.optimizer
            make = named_optimizer(given) if isinstance(given, str) else same_optimizer(given)
            run = self._trained(model, attempt, make, of_reference, seed=seed, calm=False)
            self.references[key] = run
        return self.references[key]

    def _trained(
        self,
        model: nn.Module,
        attempt: LearningAttempt,
        make: MakeOptimizer,
        run: Forward,
        *,
        seed: int,
        calm: bool,
    ) -> LearningRun:
        self.planned = max(self.planned, self.done + attempt.updates)
        before = self.done

        def watch(update: int) -> None:
            self.of.watch(self.stage, before + update - 1, self.planned)

        found = trained(model, self.task, attempt, make, run, seed=seed, calm=calm, watch=watch)
        self.done += found.updates
        return found

    @property
    def stage(self) -> str:
        return f"{_STAGE}, {self.task.words} (about {max(1, round(self.seconds))} s)"

    def has_learned(self, run: LearningRun) -> bool:
        return run.nats <= LEARNED * self.task.chance_nats


def can_learn(of: Learner) -> Learned:
    """Trains a copy of a model on a task that models like it learn, beside references.

    The model, its modes and random generators stay bit for bit. Raises Untried, with the reason.
    """
    refuse_without_room(of.model, TrialLimits())
    _refuse_frozen(of.model)
    with random_state_kept(), uncompiled(), step_by_step(), torch.enable_grad():
        task = task_for(of)
        size = reference_size(of.stacks, causal=names_next(of))
        trial = _Trial(of=of, task=task, size=size)
        attempts = _attempts(of, _seconds(of, task), trial)
        try:
            return _learned(trial, attempts)
        except Untried:
            raise
        except Exception as error:  # of the copy's own code
            raise Untried(f"a copy cannot be trained on the task ({said(error)})") from error


def _refuse_frozen(model: nn.Module) -> None:
    weights = [*model.parameters()]
    held = sum(weight.numel() for weight in weights if weight.requires_grad)
    if 2 * held < sum(weight.numel() for weight in weights):
        raise Untried("most of its weights are frozen, and it is not meant to learn anew")


def _seconds(of: Learner, task: LearningTask) -> float:
    """Returns what an update takes. Raises Untried where it is too much, and where a copy does not
    run.
    """
    model, copies = _copy(of.model)
    try:
        seconds = seconds_of_an_update(model, task, _optimizer_for(of, copies), of_user)
    except Untried:
        raise
    except Exception as error:
        raise Untried(f"a copy cannot be trained on the task ({said(error)})") from error
    if seconds > MOST_SECONDS_OF_UPDATE:
        raise Untried(
            f"an update takes {seconds:.2g} s, and {_UPDATES} of them more than 30 s: too large "
            "for a trial by training; ask a smaller version of it"
        )
    return seconds


def _attempts(of: Learner, seconds: float, trial: _Trial) -> tuple[LearningAttempt, ...]:
    """Returns the attempts in their order; as many as there is time for, the first in any case."""
    rate = _wanted_rate(of)
    times = _LION if of.optimizer == "lion" else 1.0
    found = [replace(one, rate=times * one.rate) for one in _USUAL_ATTEMPTS]
    if rate is not None:
        found.insert(0, LearningAttempt(rate=rate, updates=_LONGER))
    most = max(_UPDATES, int(_ALL_SECONDS / seconds))
    if found[0].updates > most:
        found[0] = replace(found[0], updates=_UPDATES)
    kept: list[LearningAttempt] = []
    total = 0
    for one in found:
        total += one.updates
        if not kept or total <= most:
            kept.append(one)
    trial.seconds = seconds * 2 * kept[0].updates
    trial.planned = 2 * kept[0].updates
    trial.left_out = len(found) - len(kept)
    return tuple(kept)


def _wanted_rate(of: Learner) -> float | None:
    if of.rate is not None:
        return of.rate
    if isinstance(of.optimizer, str):
        return None
    rates = [float(g.get("initial_lr", g.get("lr") or 0.0)) for g in of.optimizer.param_groups]
    return max(rates, default=0.0) or None


def _learned(trial: _Trial, attempts: tuple[LearningAttempt, ...]) -> Learned:
    """Returns the verdict, from as few trainings as tell it."""
    size, beside = trial.size, None
    failed: list[LearningRun] = []
    for attempt in attempts:
        if size is not None and beside is None:
            tried = trial.reference(attempt, 0, size)
            beside = tried if trial.has_learned(tried) else None
            if beside is None and attempt is not attempts[-1] and not _is_users(trial, attempt):
                continue
        own = trial.own(attempt)
        if trial.has_learned(own):
            return _as_learned(trial, own, failed, "learns", beside)
        failed.append(own)
    return _failed(trial, failed, beside)


def _is_users(trial: _Trial, attempt: LearningAttempt) -> bool:
    return attempt.rate == _wanted_rate(trial.of)


def _failed(trial: _Trial, failed: list[LearningRun], beside: LearningRun | None) -> Learned:
    """Returns the verdict on a model that has not learned: whether that is the model's doing."""
    best = min(failed, key=lambda run: run.nats)
    size = trial.size
    if size is None:
        why = "models of ours have no sub-layers of its kinds, so that none is beside it"
        return _as_learned(trial, best, failed[:-1], "undecided", None, why)
    if beside is None:
        other = trial.reference(best.attempt, 0, usual(size))
        if usual(size) == size or not trial.has_learned(other):
            why = "the reference has not learned either"
        else:
            why = f"neither has a reference under {size.placement}; one under Pre-LN has"
        return _as_learned(trial, best, failed[:-1], "undecided", None, why)
    if not trial.task.is_usual:
        why = "a reference has learned it, but not all healthy models do in so few updates"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    if trial.left_out:
        why = f"it has not learned at {len(failed)} of {len(failed) + trial.left_out} rates, and "
        why += "for the others there is no time: ask a smaller version of it"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    second = trial.reference(beside.attempt, 1, size)
    apart = best.nats >= TENFOLD * max(beside.nats, second.nats)
    if not trial.has_learned(second):
        why = "of two references one has not learned either"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    if not apart or best.nats < NOT_LEARNED * trial.task.chance_nats:
        why = "it has learned less than the reference, and not so much less that it is certain"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    if max(beside.updates, second.updates) > IN_TIME * beside.attempt.updates:
        why = "a reference has learned it only just in as many updates"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    eased = trial.own(best.attempt, calm=True)
    if trial.has_learned(eased):
        why = "it learns as soon as nothing is dropped or drawn in training"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    # What learns with other weights is wired well: small ones only learn late.
    redrawn = trial.own(beside.attempt, calm=True, redrawn=True)
    if redrawn.nats < NOT_LEARNED * trial.task.chance_nats:
        why = "it learns as soon as its matrices are re-initialised by Glorot and Bengio (2010)"
        return _as_learned(trial, best, failed[:-1], "undecided", beside, why)
    return _as_learned(trial, best, failed[:-1], "does not", beside)


def _as_learned(
    trial: _Trial,
    own: LearningRun,
    failed: list[LearningRun],
    verdict: Any,
    beside: LearningRun | None,
    reason: str = "",
) -> Learned:
    runs = []
    if beside is not None:
        size = beside_placement(trial, beside)
        runs = [run for key, run in trial.references.items() if _is_beside(key, beside, size)]
    return Learned(
        task=trial.task.words,
        verdict=verdict,
        updates=own.updates,
        rate=own.attempt.rate,
        chance_nats=trial.task.chance_nats,
        nats=own.nats if math.isfinite(own.nats) else None,
        training_nats=own.training_nats if math.isfinite(own.training_nats) else None,
        unknowable_nats=own.unknowable_nats,
        references=tuple(run.nats for run in runs),
        reference=trial.size.words if trial.size is not None and runs else "",
        curve=own.curve,
        reference_curve=LearningCurve(updates=(), nats=()) if beside is None else beside.curve,
        loss_is_users=trial.task.own_loss is not None,
        failed_rates=tuple(run.attempt.rate for run in failed),
        wanted_rate=_wanted_rate(trial.of),
        reference_rate=None if beside is None else beside.attempt.rate,
        reason=reason,
    )


def beside_placement(trial: _Trial, beside: LearningRun) -> str:
    """Returns under which placement a reference was trained."""
    return next(key[2] for key, run in trial.references.items() if run is beside)


def _is_beside(key: tuple[LearningAttempt, int, str], beside: LearningRun, placement: str) -> bool:
    attempt, _, of = key
    return attempt == beside.attempt and of == placement


def _copy(model: nn.Module) -> tuple[nn.Module, dict[int, Any]]:
    copies: dict[int, Any] = {}
    try:
        return copy.deepcopy(model, copies), copies
    except Exception as error:
        raise Untried(f"the model cannot be copied ({said(error)})") from error


def _optimizer_for(of: Learner, copies: dict[int, Any]) -> MakeOptimizer:
    given = of.optimizer
    if isinstance(given, str):
        return named_optimizer(given)
    return copied_optimizer(given, copies)


def _device(model: nn.Module) -> torch.device:
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))
