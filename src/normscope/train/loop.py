"""The training loop: updates, validation, checkpoints, and an exact way back in after a kill."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from fractions import Fraction
from typing import Any, NoReturn

import torch
from torch import nn

from .. import files
from ..optim import OptimizerConfig, ScheduleConfig, factor, make_optimizer
from ..optim.optimizers import clipped_step
from ..signals import GivenUp, Interrupted, StopRequest
from .config import DECIDED, Stopping, TrainConfig
from .device import Precision, autocast
from .gradients import NonFinite, UpdateGradients, first_bad_weight, unfit_to_keep, what_went_first
from .metrics import Event, LogMark, MetricsLog, Unlogged
from .protocol import Feed, Hooks, Objective, durations
from .run_folder import RunFolder
from .saving import Progress, Saving
from .together.gradients import SharedGradients
from .together.sharing import Sharing

_PASSED_ON_SECONDS = 3.0
"""The seconds within which torchrun passes on a signal that the terminal has sent to its processes
already.
"""


class Trainer:
    """Trains one model in one run folder. Build it with the model on its device, then `run`.

    groups: parameter groups of the optimiser, where the model has its own. probe: called once, with
    the first update's gradients in place and before the optimiser moves; what it returns is logged
    as update 0. extra_validation: further numbers for each validation (such as BLEU). stopping:
    ends the run where its outcome is decided. sharing: what several processes do with the model; of
    them the first alone writes, listens and says. listeners: see every event, with timings added.
    say: takes notes for the user.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        objective: Objective,
        folder: RunFolder,
        train: TrainConfig,
        optimizer: OptimizerConfig,
        schedule: ScheduleConfig,
        seed: int,
        device: torch.device,
        precision: Precision,
        hooks: Hooks | None = None,
        groups: Iterable[Mapping[str, Any]] | None = None,
        probe: Callable[[nn.Module], dict[str, Any]] | None = None,
        extra_validation: Callable[[nn.Module], dict[str, float]] | None = None,
        stopping: Stopping | None = None,
        sharing: Sharing | None = None,
        listeners: Iterable[Callable[[Event], None]] = (),
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model = model
        self.objective = objective
        self.folder = folder
        self.train = train
        self.seed = seed
        self.device = device
        self.precision = precision
        self.peak_lr = optimizer.peak_lr
        self.sharing = sharing or Sharing(model)
        self.group = self.sharing.group
        objective.group = self.sharing.validating
        updates_of = durations(objective, train)
        self.updates = updates_of(train.duration)
        self.feed = Feed(
            objective,
            workers=train.input_workers if isinstance(train.input_workers, int) else 0,
            end=self.updates * train.accumulation,
            device=device,
            every=self.group.size,
        )
        self.gradients = self._summed(seed)
        self.optimizer = make_optimizer(model, optimizer, groups)
        self.schedule = schedule.in_updates(updates_of)
        self.hooks = hooks or Hooks()
        self.validate_every = updates_of.exact(train.validate_every)
        self.checkpoint_every = updates_of.exact(train.checkpoint_every)
        self.updates_per_epoch = updates_of.updates_per_epoch
        self.probe, self.extra_validation = probe, extra_validation
        self.stopping = stopping
        self.say = say
        self.listeners = list(listeners)
        self.saving = Saving(
            folder,
            model,
            self.optimizer,
            keep_last=train.keep_checkpoints,
            say=say,
            group=self.group,
        )

    def _summed(self, seed: int) -> UpdateGradients | SharedGradients:
        """Returns the object that computes the gradients of an update."""
        given: dict[str, Any] = {"feed": self.feed, "seed": seed, "device": self.device}
        given["precision"] = self.precision
        if self.group.size > 1:
            return SharedGradients(self.sharing, self.objective, **given)
        compiled = torch.compile(self.model, dynamic=True) if self.train.compile else self.model
        return UpdateGradients(self.model, self.objective, forward_model=compiled, **given)  # type: ignore[arg-type]

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self.saving.progress

    def run(self, *, from_step: int | None = None, identity: str = "") -> Progress:
        """Train to the end, from the newest checkpoint (or `from_step`) where there is one.

        identity: of the run, which every checkpoint keeps; one that has another is refused. A run
        whose outcome is decided ends before that, saved, and goes on from there where it is asked
        to without `stopping`.

        The caller holds `folder.lock()`. Raises Interrupted after SIGINT, SIGTERM or SIGHUP, having
        saved; NonFinite where the run must stop; UserError where the checkpoint is damaged or the
        disk full.
        """
        mark = self.saving.restore(from_step=from_step, identity=identity, updates=self.updates)
        if mark is None:
            self._begin()
        opened = self.group.together(lambda: self._opened(mark or LogMark()))
        with closing(self.feed), closing(opened) as self.log:
            if self.stopping is not None:
                events = self.group.of_first(self.folder.events)
                self.stopping.restore(events, self.progress.update)
            self.started, self.tokens_since_start = time.perf_counter(), 0
            passed_on = _PASSED_ON_SECONDS if self.group.size > 1 else 0.0
            with StopRequest(passed_on_seconds=passed_on) as stop:
                owed = self.saving.unfinished
                while owed or self.progress.update < self.updates:
                    if not owed:
                        self._one_update()
                    owed = False
                    self._validate_and_save(self.progress.update, stop)
                    if (
                        self.progress.update < self.updates
                        and self.stopping is not None
                        and self.stopping.is_decided
                    ):
                        self._stop_early(self.stopping)
                        return self.progress
                    signal_number = self.group.highest(stop.signal_number)
                    if signal_number is not None and self.progress.update < self.updates:
                        self._stop_if_unfit()
                        self.saving.save(self.log.mark)
                        raise Interrupted(
                            signal_number, f"after update {self.progress.update}; saved"
                        )
                self.group.of_first(self._end)
        return self.progress

    def _opened(self, mark: LogMark) -> MetricsLog | Unlogged:
        return MetricsLog(self.folder.metrics_file, mark) if self.group.first else Unlogged()

    def _begin(self) -> None:
        """Runs what the model asks for before the first update, on the first batch."""
        with autocast(self.device, self.precision):
            objective = self.objective
            self.hooks.before_first_batch(
                lambda: objective.loss_sums(self.model, objective.micro_batch(0))
            )

    def _end(self) -> None:
        # Nobody clears up in a finished run, so what was removed is gone from the disk before it
        # says so; and after the last checkpoint, so that a run that says so is finished whatever
        # kills it.
        self.saving.prune()
        files.sync(self.folder.checkpoints)
        self._emit({"event": "finished", "update": self.progress.update, **self._totals()})
        self.log.mark()

    def _stop_early(self, stopping: Stopping) -> None:
        """Behind the checkpoint, which a run that goes on after all is continued from: it never had
        this event.
        """
        self.saving.save(self.log.mark)
        reason = {"reason": stopping.reason, "validations": stopping.in_a_row}
        self._emit({"event": DECIDED, "update": self.progress.update, **reason, **self._totals()})
        self.log.mark()
        self.say(f"stopped early after update {self.progress.update}: {stopping.reason}")

    def _one_update(self) -> None:
        update = self.progress.update + 1
        learning_rate = self.peak_lr * factor(self.schedule, update, horizon_updates=self.updates)
        scheduled = self.hooks.before_update(update)
        first = (update - 1) * self.train.accumulation
        numbers = range(first, first + self.train.accumulation)
        losses = self.gradients(numbers)
        norm = self.sharing.gradient_norm()
        finite = math.isfinite(losses.loss) and math.isfinite(float(norm))
        # Processes that took different ways would wait for each other for ever.
        finite = self.group.highest(None if finite else 1) is None
        if finite:
            if update == 1 and self.probe is not None:
                self._emit({"event": "initialisation", "update": 0} | self.probe(self.model))
            measured = self.hooks.before_step(update)
            if float(norm) > self.train.clip_norm:
                self.sharing.clip(norm, self.train.clip_norm)
            for group in self.optimizer.param_groups:
                # An optimiser that the caller made has groups of its own, without factors.
                group["lr"] = learning_rate * group.get("lr_factor", 1.0)
            clipped = self._step()
            measured |= self.hooks.after_step(update)
            self.progress.summed_lr += learning_rate
        else:
            self._not_finite(update, numbers, losses.loss)
        self.progress.update = update
        self.progress.target_tokens += losses.tokens
        self.tokens_since_start += losses.tokens
        if finite:
            line = {
                "event": "update",
                "update": update,
                "epoch": self._epoch(update),
                "lr": learning_rate,
            }
            line |= {"loss_nats": losses.loss, "nll_nats": losses.nll, "gradient_norm": float(norm)}
            self._emit(line | {"target_tokens": losses.tokens} | scheduled | clipped)
            if measured:
                self._emit({"event": "monitor", "update": update} | measured)

    def _step(self) -> dict[str, int]:
        """One step of the optimiser; where its size is clipped, how many parameters were."""
        if self.train.clip_update_rms < math.inf:
            return {"clipped_parameters": clipped_step(self.optimizer, self.train.clip_update_rms)}
        self.optimizer.step()
        return {}

    def _not_finite(self, update: int, numbers: range, loss: float) -> None:
        weight = self.group.message(first_bad_weight(self.model))
        if weight is not None:
            self._stop(
                update, f"the weights of {weight} are not finite, nor then is the loss ({loss})"
            )
        reason = what_went_first(loss, self.gradients.first_bad(numbers))
        if self.train.on_nonfinite == "stop":
            self._stop(update, reason)
        self.progress.skipped_updates += 1
        self._emit({"event": "skipped", "update": update, "reason": reason})

    def _stop(self, update: int, reason: str) -> NoReturn:
        self._emit({"event": "non-finite", "update": update, "reason": reason, **self._totals()})
        raise NonFinite(f"update {update}: {reason}")

    def _validate_and_save(self, update: int, stop: StopRequest) -> None:
        """Validates and saves after an update. Raises Interrupted where a signal comes before its
        validation is done: the one process that trains alone saves, and whoever goes on begins with
        it.
        """
        if self.group.size > 1:
            # Processes that took different ways would wait for each other for ever.
            self._finish_update(update)
            return
        try:
            with stop.giving_up():
                self._finish_update(update)
        except GivenUp:
            assert stop.signal_number is not None
            self.saving.save_unfinished(self.log.mark)
            raise Interrupted(stop.signal_number, f"after update {update}; saved") from None

    def _finish_update(self, update: int) -> None:
        last, validate = update == self.updates, _due(update, self.validate_every)
        if last and not validate:
            # A longer run does not validate here; this is what lets it go on as if it had been
            # longer from the start.
            self.saving.note_before_end(self.log.mark())
        validate, save = validate or last, last or _due(update, self.checkpoint_every)
        if validate or save:
            self._stop_if_unfit()
        if validate:
            with autocast(self.device, self.precision):
                numbers = self._validated()
            if not math.isfinite(numbers["nll_nats"]):
                self._stop(
                    update,
                    f"the validation loss ({numbers['nll_nats']}) is not finite, though every "
                    "weight is",
                )
            if numbers["nll_nats"] < self.progress.best_nll_nats:
                self.progress.best_nll_nats, self.progress.best_update = numbers["nll_nats"], update
            self._emit(
                {"event": "validation", "update": update, "epoch": self._epoch(update)} | numbers
            )
            if self.stopping is not None:
                self.stopping.take(update, numbers["nll_nats"])
        self.saving.finish()
        if save or self.progress.best_update == update:
            self.saving.save(self.log.mark)

    def _validated(self) -> dict[str, float]:
        """Returns the first process's numbers, by which all decide alike."""
        numbers = self.sharing.validated(self.objective.validate)
        extra = self.extra_validation
        if extra is not None:
            with self.sharing.whole() as model:
                numbers |= self.group.of_first(lambda: extra(model))
        return self.group.of_first(lambda: numbers)

    def _totals(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "target_tokens": progress.target_tokens,
            "summed_lr": progress.summed_lr,
            "skipped_updates": progress.skipped_updates,
            "best_update": progress.best_update,
        }

    def _stop_if_unfit(self) -> None:
        """Raise NonFinite where what would be validated or kept is not finite. Comes before
        `_finish_update`, once an update.
        """
        reason = self.group.message(unfit_to_keep(self.model, self.optimizer))
        if reason is not None:
            self._stop(self.progress.update, reason)

    def _emit(self, event: Event) -> None:
        self.log.append(event)
        elapsed = time.perf_counter() - self.started
        rate = self.tokens_since_start / elapsed if elapsed else 0.0
        timed = event | {
            "elapsed_seconds": elapsed,
            "target_tokens_per_second": rate,
            "updates": self.updates,
        }
        timed["input_wait_share"] = self.feed.waited_seconds / elapsed if elapsed else 0.0
        for listener in self.listeners:
            listener(timed)

    def _epoch(self, update: int) -> float:
        return round(float(update / self.updates_per_epoch), 4)


def _due(update: int, every: Fraction) -> bool:
    """True at the update in which another multiple of `every` is completed."""
    return update // every > (update - 1) // every
