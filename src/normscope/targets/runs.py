"""What the doctor is given of runs: their models and batches, and what their logs and those of other libraries tell."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..adapters.wandb_datastore import of_datastore
from ..doctor.lint.patient import Loading
from ..errors import UserError
from ..history.explain import Explanation, explain
from ..history.readers import (
    EVENT_FILES,
    TRAINER_STATE,
    WANDB_LINES,
    of_event_files,
    of_events,
    of_trainer_state,
    of_wandb_lines,
)
from ..history.record import History
from ..optim import make_optimizer
from ..runs.config import load, trust_run
from ..runs.trained import load_run
from ..settings.files import is_run, run_named
from ..settings.tables import read_toml
from ..tasks.protocol import TaskFromScratch, TrainingBatch
from ..tasks.registry import task_from_scratch
from ..tasks.run_config import RunConfig, refuse_unrun
from ..train import RunFolder
from .target import Target, wanted_placement

EXAMINED_TOKENS = 4096
"""Of the batch that a diagnosis looks at; what trains (`--probe`) has the configuration's own batches."""


def of_config(file: Path, settings: Sequence[str]) -> Target:
    """Initial weights of the configuration's seed, a batch of its training, its loss and its optimiser."""
    config = load(file, settings)
    refuse_unrun(config, source=str(file))
    task = task_from_scratch(
        config, f"{file} has task {config.task}: a fine-tuning is diagnosed by the run that it starts from"
    )
    corpus = task.open(config)
    return _target(str(file), task, config, task.build(config, task.codec_of(corpus)), corpus, None)


def of_run(folder: Path, settings: Sequence[str]) -> Target:
    """The best checkpoint of a run, on a batch that it was trained on."""
    if settings:
        raise UserError(f"--set {settings[0]}: {folder} is a run, whose configuration is fixed; give its config.toml")
    run = load_run(folder, device="cpu")
    title = f"{folder.resolve().name}, update {run.update}"
    task = task_from_scratch(run.config, f"{folder} cannot be diagnosed")
    # A checkpoint of ours that lacks something is refused when it is loaded.
    whole = Loading(missing=(), unexpected=())
    return _target(title, task, run.config, run.model, task.open(run.config), whole)


def _target(
    title: str,
    task: TaskFromScratch[Any, Any, Any, Any],
    config: RunConfig,
    model: nn.Module,
    corpus: Any,
    loading: Loading | None,
) -> Target:
    batch_of = task.batches(config, corpus)
    # Every tensor of a pass is kept and computed again from others: a large batch would fill the memory.
    groups = task.groups(config)
    examined = task.batches(task.in_smaller_batches(config, EXAMINED_TOKENS), corpus)(0)
    return Target(
        title=f"{type(model).__name__} ({title})",
        model=model,
        inputs=_BatchInputs(examined),
        loss=_loss,
        batches=lambda number: _BatchInputs(batch_of(number)),
        optimizer=make_optimizer(model, config.optimizer, None if groups is None else groups(model)),
        warmup_updates=config.schedule.warmup_updates,
        loading=loading,
        wanted_placement=config.model.placement,
        clip_norm=config.train.clip_norm,
    )


class _BatchInputs:
    """A batch of ours as inputs: it runs the model, and knows the loss that belongs to it."""

    def __init__(self, batch: TrainingBatch) -> None:
        self.batch = batch

    def __call__(self, model: nn.Module) -> Any:
        return self.batch.run(model)


def _loss(output: Any, run: _BatchInputs) -> Tensor:
    return run.batch.loss(output)


def of_own_batches(text: str, model: nn.Module) -> Target:
    """A model whose file has the functions that experiments ask for, on its batches and by its loss."""
    config = load(Path(text))
    task = task_from_scratch(config, text)
    found = _target(text, task, config, model, task.open(config), None)
    # Rate, warm-up and clip are the configuration's defaults, and nobody's word.
    return replace(found, optimizer=None, warmup_updates=None, clip_norm=None, wanted_placement=wanted_placement(model))


def trust_target(text: str) -> None:
    """Run the Python files that a run or a configuration names, on the user's word. Raises UserError for others."""
    path = Path(text).expanduser()
    if path.is_dir() and is_run(path):
        trust_run(path)
    elif path.suffix == ".toml":
        run_named(read_toml(path), source=text)
    else:
        raise UserError(f"--trust runs the files of a run or a configuration, and {text} is neither: leave it out")


KINDS = (
    f"a run folder of NormScope or its metrics.jsonl, a {TRAINER_STATE} of Hugging Face's Trainer or the folder around "
    f"it, TensorBoard's event files or their folder, or W&B's {WANDB_LINES} or run-ID.wandb"
)


def explained_log(log: Path) -> Explanation:
    """A log, explained. Raises UserError."""
    return explain(history_at(log.expanduser()))


def explained_run(target: str) -> Explanation | None:
    """The history of a target that is a run folder with updates; None for any other target."""
    path = Path(target).expanduser()
    if not path.is_dir() or not RunFolder(path).is_run:
        return None
    try:
        return explain(run_history(path))
    except UserError:
        # Without an update there is no history; what is damaged is told where the checkpoint is opened.
        return None


def history_at(path: Path) -> History:
    """The history in a log. Raises UserError, one line, for what is no log or has no loss."""
    try:
        if path.is_dir():
            return _of_folder(path)
        if path.is_file():
            return _of_file(path)
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(said if str(path) in said else f"{path}: {said}") from error
    raise UserError(f"no such file or folder: {path}")


def run_history(path: Path) -> History:
    """The history of a run of ours. Raises UserError where a file of it is damaged."""
    folder = RunFolder(path)
    try:
        config = folder.config_table() if folder.is_run else {}  # a metrics.jsonl may be all that is left of a run
        return of_events(str(path), folder.events(), config)
    except ValueError as error:
        raise UserError(f"{folder.metrics_file}: {error}") from error


def _of_folder(path: Path) -> History:
    if RunFolder(path).is_run:
        return run_history(path)
    states = [*path.glob(TRAINER_STATE), *sorted(path.glob(f"checkpoint-*/{TRAINER_STATE}"), key=_number, reverse=True)]
    if states:
        return of_trainer_state(states[0])
    if any(path.glob(f"{EVENT_FILES}*")):
        return of_event_files(path)
    for inside in (path / "files" / WANDB_LINES, path / WANDB_LINES):
        if inside.is_file():
            return of_wandb_lines(inside)
    if stores := sorted(path.glob("run-*.wandb")):
        return of_datastore(stores[0])
    raise UserError(f"{path} holds no log that can be read: give {KINDS}")


def _of_file(path: Path) -> History:
    if path.name == "metrics.jsonl":
        return run_history(path.parent)
    if path.name == TRAINER_STATE:
        return of_trainer_state(path)
    if path.name.startswith(EVENT_FILES):
        return of_event_files(path)
    if path.suffix == ".wandb":
        return of_datastore(path)
    if path.name in ("wandb-summary.json", "output.log"):
        raise UserError(f"{path} holds the last values of a run or its output, not its history: give {KINDS}")
    if path.suffix == ".jsonl":
        return of_wandb_lines(path)
    if path.suffix == ".json":
        return of_trainer_state(path)
    raise UserError(f"{path} is no log that can be read: give {KINDS}")


def _number(state: Path) -> int:
    found = re.search(r"(\d+)$", state.parent.name)
    return int(found[1]) if found else -1
