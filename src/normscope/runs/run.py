"""Train a run, or resume it: the one place where corpus, model, objective and loop meet."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import torch

from ..files import disk_errors
from ..measure import gradient_norms
from ..optim import never_peaks
from ..tasks.protocol import Assembly
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder, Trainer, durations
from ..train.environment import describe
from ..train.metrics import Event
from ..train.progress import Progress
from .changing import is_over, refuse_shorter
from .claiming import claim, keep_environment, mend_vocabularies, refuse_other_configuration
from .hooks import PlacementHooks
from .machine import prepare_machine
from .monitoring import run_monitor
from .resolving import resolve

Listener = Callable[[Event], None]


def train_run(
    config: RunConfig,
    path: Path,
    *,
    listeners: Iterable[Listener] = (),
    from_step: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Train `config` in the run folder `path`, or go on with the run that is there.

    say: takes notes for the user. Raises UserError, Interrupted or NonFinite as `Trainer.run` does.
    """
    folder = RunFolder(path)
    with disk_errors(f"training {path}"):
        config = resolve(config, folder)
        refuse_other_configuration(folder, config)
        if from_step is None and is_over(folder, config):
            say(f"{path} is finished; nothing to do")
            return Progress.of_state(folder.checkpoint("last").state())
        # All that the user may have to put right comes before the first thing written.
        device = torch.device(config.train.device)
        assembly = task_of(config).assemble(config, device)
        fast = prepare_machine(config, device)
        fingerprint = assembly.corpus.fingerprint
        environment = describe(device=device, seed=config.seed, data_fingerprint=fingerprint, fast_matmul=fast)
        trainer = _trainer(config, assembly, folder, device, listeners, say)
        with folder.lock():
            refuse_shorter(folder, config, trainer.updates, from_step)
            claim(folder, config, assembly.corpus.save_vocabularies)
            keep_environment(folder, environment, config.data.corpus, say)
            mend_vocabularies(folder, assembly.corpus.save_vocabularies, say)
            if never_peaks(config.schedule, horizon_updates=trainer.updates):
                say(
                    f"warning: the warm-up ({config.schedule.warmup_updates} updates) is longer than the training "
                    f"({trainer.updates} updates): the peak rate is never reached"
                )
            return trainer.run(from_step=from_step, identity=folder.identity(fingerprint))


def _trainer(
    config: RunConfig,
    assembly: Assembly,
    folder: RunFolder,
    device: torch.device,
    listeners: Iterable[Listener],
    say: Callable[[str], None],
) -> Trainer:
    precision: Literal["fp32", "bf16"] = "bf16" if config.train.precision == "bf16" else "fp32"
    model = assembly.build().to(device)
    adaptive = config.adaptive.in_updates(durations(assembly.objective, config.train))
    return Trainer(
        model=model,
        objective=assembly.objective,
        folder=folder,
        train=config.train,
        optimizer=config.optimizer,
        schedule=config.schedule,
        seed=config.seed,
        device=device,
        precision=precision,
        hooks=PlacementHooks(model, adaptive, drawn=assembly.drawn),
        monitor=run_monitor(model, assembly.objective, config.train),
        probe=lambda model: {"gradient_norms": gradient_norms(model)},
        extra_validation=assembly.extra_validation,
        listeners=listeners,
        say=say,
    )
