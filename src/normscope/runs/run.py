"""Train a run, or resume it: the one place where corpus, model, objective and loop meet."""

import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import UserError, option
from ..files import disk_errors
from ..measure import gradient_norms
from ..model import profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from ..optim import AdaptiveConfig, adaptive_value, never_peaks
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import Hooks, Objective, RunFolder, StopRule, TrainConfig, Trainer, durations
from ..train.config import Stopping
from ..train.device import describe, refuse_several
from ..train.metrics import Event
from ..train.saving import Progress
from . import config as configured
from .machine import precision_of, prepare_machine


def train_run(
    config: RunConfig,
    path: Path,
    *,
    listeners: Iterable[Callable[[Event], None]] = (),
    from_step: int | None = None,
    stop_when: StopRule | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Train `config` in the run folder `path`, or go on with the run that is there.

    stop_when: ends it early where its outcome is decided; a run that another call has ended so goes
    on without. say: takes notes for the user. Raises UserError, Interrupted or NonFinite as
    `Trainer.run` does.
    """
    refuse_several()
    folder = RunFolder(path)
    with disk_errors(f"training {path}"):
        config = configured.resolve(config, folder)
        configured.refuse_other_configuration(folder, config)
        if from_step is None and configured.is_over(folder, config):
            say(f"{path} is finished; nothing to do")
            return Progress.of_state(folder.checkpoint("last").state())
        if from_step is None and stop_when is not None and stop_when.has_stopped(folder):
            say(
                f"{path} was stopped early, as decided; nothing to do. It goes on without "
                f"{option('stop_when')}"
            )
            return Progress.of_state(folder.checkpoint("last").state())
        # All that the user may have to put right comes before the first thing written.
        corpus, environment, trainer = _start(config, folder, listeners, stop_when, say)
        if config.train.deterministic and torch.device(config.train.device).type == "cpu":
            say(
                "note: train.deterministic is for CUDA; on a CPU the same seed gives the same bits "
                "without it"
            )
        with _held(folder, config, corpus, environment, trainer.updates, from_step, say):
            return trainer.run(from_step=from_step, identity=folder.identity(corpus.fingerprint))


def _start(
    config: RunConfig,
    folder: RunFolder,
    listeners: Iterable[Callable[[Event], None]],
    stop_when: StopRule | None,
    say: Callable[[str], None],
) -> tuple[AnyCorpus, dict[str, Any], Trainer]:
    """What a run begins or goes on with: the corpus, what is written down of the machine, and the
    trainer.
    """
    device = torch.device(config.train.device)
    task = task_of(config)
    corpus = task.open(config)
    objective, groups = task.objective(config, corpus, device), task.groups(config)
    for note in task.notes(corpus):
        say(f"note: {note}")
    fast = prepare_machine(config, device)
    environment = describe(
        device=device, seed=config.seed, data_fingerprint=corpus.fingerprint, fast_matmul=fast
    )
    model = task.build(config, corpus.codec).to(device)
    updates_of = durations(objective, config.train)
    trainer = Trainer(
        model=model,
        objective=objective,
        folder=folder,
        train=config.train,
        optimizer=config.optimizer,
        schedule=config.schedule,
        seed=config.seed,
        device=device,
        precision=precision_of(config),
        hooks=_RunHooks(
            model, config.adaptive.in_updates(updates_of), _monitor(model, objective, config.train)
        ),
        groups=None if groups is None else groups(model),
        probe=lambda model: {"gradient_norms": gradient_norms(model)},
        extra_validation=task.extra_validation(config, corpus),
        stopping=None
        if stop_when is None
        else Stopping(
            stop_when,
            chance_nats=task.chance_nats(corpus),
            peak_update=config.schedule.warmup_updates,
        ),
        listeners=listeners,
        say=say,
    )
    return corpus, environment, trainer


@contextmanager
def _held(
    folder: RunFolder,
    config: RunConfig,
    corpus: AnyCorpus,
    environment: dict[str, Any],
    updates: int,
    from_step: int | None,
    say: Callable[[str], None],
) -> Iterator[None]:
    """The folder, locked and made this run's."""

    def save(vocabularies: Path) -> None:
        task_of(config).save_vocabularies(corpus, vocabularies)

    with folder.lock():
        configured.refuse_shorter(folder, config, updates, from_step)
        configured.claim(folder, config, save)
        configured.keep_environment(folder, environment, config.data.corpus, say)
        configured.mend_vocabularies(folder, save, say)
        if never_peaks(config.schedule, horizon_updates=updates):
            say(
                f"warning: the warm-up ({config.schedule.warmup_updates} updates) is longer than "
                f"the training ({updates} updates): the peak rate is never reached"
            )
        yield


class _RunHooks(Hooks):
    """Initial values taken from the first batch, numbers that follow a schedule, and weights kept
    at length 1; and what is measured over depth."""

    def __init__(self, model: nn.Module, adaptive: AdaptiveConfig, monitor: Any) -> None:
        """adaptive: with `over` in updates. monitor: a `normscope.monitor.Monitor`, or None."""
        self.model, self.adaptive, self.monitor = model, adaptive, monitor
        self.scheduled, self.unit_vectors = scheduled_numbers(model), unit_vectors(model)

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        profile(self.model, forward)

    def before_update(self, update: int) -> dict[str, float]:
        value = adaptive_value(self.adaptive, update)
        set_scheduled(self.scheduled, value)
        return dict.fromkeys(self.scheduled, value)

    def before_step(self, update: int) -> dict[str, float]:
        try:
            return {} if self.monitor is None else _finite(self.monitor(update))
        except ValueError as error:
            raise UserError(
                f"this model cannot be measured, so leave out train.monitor_every: {error}"
            ) from error

    def after_step(self, update: int) -> dict[str, float]:
        measured = {} if self.monitor is None else _finite(self.monitor.stepped(update))
        renormalise(self.unit_vectors)
        return measured


def _monitor(model: nn.Module, objective: Objective, train: TrainConfig) -> Any:
    """Measures the model on the first batch of the training, at every update that
    `train.monitor_every` names.

    One batch for all measurements, so that curves are free of the noise of batches. None where none
    are asked for.
    """
    if not train.monitor_every:
        return None
    # Late, because the doctor is not needed to train; and by name, because what it measures changes
    # no training, so that its source is no part of what identifies one.
    monitor = importlib.import_module("..monitor", __package__).Monitor
    batch = objective.micro_batch(0)
    return monitor(
        model=model,
        inputs=lambda module: objective.loss_sums(module, batch),
        every_updates=train.monitor_every,
    )


def _finite(measured: dict[str, float]) -> dict[str, float]:
    """Without what is not finite, which JSON does not have."""
    return {name: value for name, value in measured.items() if math.isfinite(value)}
