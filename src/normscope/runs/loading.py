"""A trained model out of its run folder, with what is needed to use it."""

from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from ..errors import UserError
from ..tasks.protocol import LoadedRun, TaskFromScratch
from ..tasks.registry import TASKS, task_from_scratch
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.checkpoint import Checkpoint
from ..train.device import choose_device
from .config import load_run_config
from .machine import prepare_machine

Config = TypeVar("Config", bound=RunConfig)
Model = TypeVar("Model", bound=nn.Module)
Codec = TypeVar("Codec")
AnyRun = LoadedRun[Any, Any, Any]


def load_run(path: Path, *, which: str = "best", device: str = "auto") -> AnyRun:
    """The model of a run at a checkpoint: `best`, `last` or an update's number. Raises UserError.

    A fine-tuning cannot be loaded.
    """
    folder = RunFolder(path)
    found = folder.checkpoint(which)
    config = load_run_config(folder)
    loadable = [name for name, task in TASKS.items() if isinstance(task, TaskFromScratch)]
    task = task_from_scratch(
        config,
        f"{path} is a run of task {config.task}; this needs one of task {', '.join(loadable[:-1])} or {loadable[-1]}",
    )
    return _loaded(task, config, folder, found, device)


def load_run_of(
    task: TaskFromScratch[Config, Any, Model, Codec], path: Path, *, which: str = "best", device: str = "auto"
) -> LoadedRun[Config, Model, Codec]:
    """As `load_run`, for a run of one task. Raises UserError, also for a run of another."""
    folder = RunFolder(path)
    found = folder.checkpoint(which)
    config = load_run_config(folder)
    if not isinstance(config, task.config):
        raise UserError(f"{path} is a run of task {config.task}; this needs one of task {task.name}")
    return _loaded(task, config, folder, found, device)


def _loaded(
    task: TaskFromScratch[Config, Any, Model, Codec],
    config: Config,
    folder: RunFolder,
    checkpoint: Checkpoint,
    device: str,
) -> LoadedRun[Config, Model, Codec]:
    folder.refuse_other_vocabularies()
    codec = task.load_codec(folder.vocabularies)
    chosen = choose_device(device)
    prepare_machine(config, chosen)
    model = task.build(config, codec)
    checkpoint.load_model(model)
    return LoadedRun(config, model.to(chosen).eval(), codec, checkpoint.update, folder.environment())
