"""The models and batches that the doctor takes from runs and configurations of ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..doctor.lint.patient import Loading
from ..errors import UserError
from ..limits.home import from_home
from ..optim import make_optimizer
from ..runs.config import load, trust_run
from ..runs.trained import load_run
from ..settings.files import is_run, run_named
from ..settings.tables import read_toml
from ..tasks.protocol import Task
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig, refuse_unrun
from .frequencies import TargetFrequencies
from .target import Target, read_placement

EXAMINED_TOKENS = 4096
"""The number of tokens of the batch that a diagnosis examines."""


def of_config(file: Path, settings: Sequence[str]) -> Target:
    """Initial weights of the configuration's seed, a batch of its training, its loss and its
    optimiser.
    """
    config = load(file, settings)
    refuse_unrun(config, source=str(file))
    task = task_of(config)
    corpus = task.open(config)
    return _target(str(file), task, config, task.build(config, corpus.codec), corpus, None)


def of_run(folder: Path, settings: Sequence[str]) -> Target:
    """Returns the best checkpoint of a run, on a batch that it was trained on."""
    if settings:
        raise UserError(
            f"--set {settings[0]}: {folder} is a run, whose configuration is fixed; give its "
            "config.toml"
        )
    run = load_run(folder, device="cpu")
    title = f"{folder.resolve().name}, update {run.update}"
    task = task_of(run.config)
    # A checkpoint of ours that lacks something is refused when it is loaded.
    whole = Loading(missing=(), unexpected=())
    return _target(title, task, run.config, run.model, task.open(run.config), whole)


def _target(
    title: str,
    task: Task,
    config: RunConfig,
    model: nn.Module,
    corpus: Any,
    loading: Loading | None,
) -> Target:
    # Every tensor of a pass is kept and computed again from others: a large batch would fill the
    # memory.
    groups = task.groups(config)
    examined = task.batches(task.in_smaller_batches(config, EXAMINED_TOKENS), corpus)(0)
    return Target(
        title=f"{type(model).__name__} ({title})",
        model=model,
        inputs=examined.run,
        loss=lambda output, run: examined.loss(output),
        optimizer=make_optimizer(
            model, config.optimizer, None if groups is None else groups(model)
        ),
        warmup_updates=config.schedule.warmup_updates,
        batch_tokens=_batch_tokens(task, config),
        loading=loading,
        wanted_placement=read_placement(config.model.placement),
        clip_norm=config.train.clip_norm,
        counting=lambda: TargetFrequencies(
            nats=task.target_entropy_nats(corpus), over="the targets of the validation"
        ),
    )


def _batch_tokens(task: Task, config: RunConfig) -> int | None:
    """Returns the tokens of an update; None of a task that does not count them."""
    tokens = task.batch_tokens(config)
    return None if tokens is None else tokens * config.train.accumulation


def trust_target(text: str) -> None:
    """Run the Python files that a run or a configuration names, on the user's word. Raises
    UserError for others.
    """
    path = from_home(text)
    if path.is_dir() and is_run(path):
        trust_run(path)
    elif path.suffix == ".toml":
        run_named(read_toml(path), source=text)
    else:
        raise UserError(
            f"--trust runs the files of a run or a configuration, and {text} is neither: leave it "
            "out"
        )
