"""Train a run, or resume it: the one place where corpus, model, objective and loop meet."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import option
from ..files import disk_errors
from ..model import profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from ..optim import AdaptiveConfig, adaptive_value, never_peaks
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import Hooks, Objective, RunFolder, StopRule, TrainConfig, Trainer, durations
from ..train.config import Stopping
from ..train.device import describe, own_device
from ..train.metrics import Event
from ..train.saving import Progress
from ..train.together.group import Group
from ..train.together.joining import joined, refuse_unshared
from ..train.together.sharing import Sharing
from . import config as configured
from .machine import precision_of, prepare_machine
from .measuring import measured
from .sharing import (
    device_type,
    profiled_before,
    refuse_unlike,
    refuse_unshardable,
    shared,
)


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
    `Trainer.run` does. One of several processes that torchrun has started shares the run with
    the others, of which the first alone writes, listens and says; PeerLost where one has gone.
    """
    refuse_unshared(config.train)
    folder = RunFolder(path)
    joining = joined(device_type(config.train), config.train.silent_seconds)
    with disk_errors(f"training {path}"), joining as group:
        speak = say if group.first else _silent
        config = group.together(lambda: _resolved(config, folder))
        over = group.together(lambda: _over(config, folder, from_step, stop_when))
        if over is not None:
            speak(over)
            return Progress.of_state(folder.checkpoint("last").state())
        # All that the user may have to put right comes before the first thing written.
        opened = group.together(lambda: _open(config, group, speak))
        refuse_unlike(group, config, opened.corpus.fingerprint)
        heard = list(listeners) if group.first else []
        trainer = _trainer(config, folder, opened, group, heard, stop_when, speak)
        if config.train.deterministic and torch.device(config.train.device).type == "cpu":
            speak(
                "note: train.deterministic is for CUDA; on a CPU the same seed gives the same bits "
                "without it"
            )
        with ExitStack() as held:
            hold = _held(folder, config, opened, trainer.updates, from_step, speak)
            group.of_first(lambda: held.enter_context(hold))
            identity = group.of_first(lambda: folder.identity(opened.corpus.fingerprint))
            return trainer.run(from_step=from_step, identity=identity)


def _silent(line: str) -> None:
    """Ignores a line, in a process for which another one speaks."""


def _resolved(config: RunConfig, folder: RunFolder) -> RunConfig:
    config = configured.resolve(config, folder)
    configured.refuse_other_configuration(folder, config)
    return config


def _over(
    config: RunConfig, folder: RunFolder, from_step: int | None, stop_when: StopRule | None
) -> str | None:
    """Returns the reason, in words, why there is nothing to do; None where there is something."""
    if from_step is None and configured.is_over(folder, config):
        return f"{folder.path} is finished; nothing to do"
    if from_step is None and stop_when is not None and stop_when.has_stopped(folder):
        return (
            f"{folder.path} was stopped early, as decided; nothing to do. It goes on without "
            f"{option('stop_when')}"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The parts with which a run begins or goes on."""

    corpus: AnyCorpus
    environment: dict[str, Any]
    """The record of the machine."""
    objective: Objective
    model: nn.Module
    device: torch.device
    """The device of this process."""


def _open(config: RunConfig, group: Group, say: Callable[[str], None]) -> _Opened:
    """Does what each process does by itself."""
    device = own_device(torch.device(config.train.device))
    task = task_of(config)
    corpus = task.open(config)
    objective = task.objective(config, corpus, device)
    for note in task.notes(corpus):
        say(f"note: {note}")
    in_parts = group.size > 1 and config.train.parallel == "shards"
    fast = prepare_machine(config, device, in_parts=in_parts)
    environment = describe(
        device=torch.device(config.train.device),
        seed=config.seed,
        data_fingerprint=corpus.fingerprint,
        fast_matmul=fast,
    )
    model = task.build(config, corpus.codec).to(device)
    if group.size > 1:
        environment["processes"] = group.size
        refuse_unshardable(model, config)
    return _Opened(
        corpus=corpus, environment=environment, objective=objective, model=model, device=device
    )


def _trainer(
    config: RunConfig,
    folder: RunFolder,
    opened: _Opened,
    group: Group,
    listeners: Iterable[Callable[[Event], None]],
    stop_when: StopRule | None,
    say: Callable[[str], None],
) -> Trainer:
    """Returns the trainer, whose model the processes of the group share."""
    task, corpus = task_of(config), opened.corpus
    model, objective = opened.model, opened.objective
    extra, groups = task.extra_validation(config, corpus), task.groups(config)
    if group.size > 1 and config.train.parallel == "shards":
        profiled_before(model, objective, precision_of(config))
    whole = extra is not None or config.train.monitor_every > 0
    sharing = shared(model, config, group, precision_of(config), keeps_whole=whole)
    updates_of = durations(objective, config.train)
    return Trainer(
        model=model,
        objective=objective,
        folder=folder,
        train=config.train,
        optimizer=config.optimizer,
        schedule=config.schedule,
        seed=config.seed,
        device=opened.device,
        precision=precision_of(config),
        hooks=_RunHooks(sharing, config.adaptive.in_updates(updates_of), objective, config.train),
        groups=None if groups is None else groups(model),
        probe=lambda model: {"gradient_norms": sharing.gradient_norms()},
        extra_validation=extra,
        stopping=None
        if stop_when is None
        else Stopping(
            stop_when,
            chance_nats=task.chance_nats(corpus),
            peak_update=config.schedule.warmup_updates,
        ),
        sharing=sharing,
        listeners=listeners,
        say=say,
    )


@contextmanager
def _held(
    folder: RunFolder,
    config: RunConfig,
    opened: _Opened,
    updates: int,
    from_step: int | None,
    say: Callable[[str], None],
) -> Iterator[None]:
    """The folder, locked and made this run's."""

    def save(vocabularies: Path) -> None:
        task_of(config).save_vocabularies(opened.corpus, vocabularies)

    with folder.lock():
        configured.refuse_shorter(folder, config, updates, from_step)
        configured.claim(folder, config, save)
        configured.keep_environment(folder, opened.environment, config.data.corpus, say)
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

    def __init__(
        self, sharing: Sharing, adaptive: AdaptiveConfig, objective: Objective, train: TrainConfig
    ) -> None:
        """adaptive: with `over` in updates."""
        self.sharing = sharing
        self.adaptive = adaptive
        self.model = sharing.model
        self.scheduled, self.unit_vectors = scheduled_numbers(self.model), unit_vectors(self.model)
        self.measured = measured(sharing, objective, train)

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        # What is in parts was profiled while it was whole.
        if not self.sharing.in_step:
            profile(self.model, forward)

    def before_update(self, update: int) -> dict[str, float]:
        value = adaptive_value(self.adaptive, update)
        set_scheduled(self.scheduled, value)
        return dict.fromkeys(self.scheduled, value)

    def before_step(self, update: int) -> dict[str, float]:
        return {} if self.measured is None else self.measured.before_step(update)

    def after_step(self, update: int) -> dict[str, float]:
        found = {} if self.measured is None else self.measured.after_step(update)
        renormalise(self.unit_vectors)
        return found
