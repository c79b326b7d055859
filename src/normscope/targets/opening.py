"""From what the user typed to a target: first decide what it is, then open it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import hugging_face
from ..doctor.lint.patient import Loading
from ..errors import UserError
from ..measure.unchanged import random_state_kept
from ..optim import make_optimizer
from ..runs.config import load, trust_run
from ..runs.trained import load_run
from ..settings.files import run_named
from ..settings.tables import read_overrides, read_toml
from ..tasks.protocol import TaskFromScratch, TrainingBatch
from ..tasks.registry import task_from_scratch
from ..tasks.run_config import RunConfig, refuse_unrun
from ..train import RunFolder
from .factory import brings_batches, made_by
from .target import SampleSettings, Target, own_loss, sampled, wanted_placement

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


KINDS = (
    "give package.module:function or file.py:function that returns a model, a Hugging Face configuration (config.json, "
    "or a class such as GPT2Config), a folder with a checkpoint or a run, or a TOML configuration"
)


def opened(text: str, settings: Sequence[str], *, tokens: int, sequences: int, seed: int) -> Target:
    """Build or load what `text` names. Nothing is ever downloaded.

    settings: `key=value`; keyword arguments of a factory, or changes of a configuration. tokens, sequences: of sample
    inputs, for targets that bring none of their own. seed: of initial weights and sample inputs, but for our own
    configurations, which have one. Random state is left as it was. Raises UserError, one line, for whatever cannot be
    opened.
    """
    try:
        drawing = SampleSettings(tokens=tokens, sequences=sequences, seed=seed)
    except ValueError as error:
        raise UserError(str(error)) from error
    with random_state_kept():
        drawing.seed_everything()
        return _opened(text, settings, drawing)


def trust_target(text: str) -> None:
    """Run the Python files that a run or a configuration names, on the user's word. Raises UserError for others."""
    path = Path(text).expanduser()
    if path.is_dir() and RunFolder(path).is_run:
        trust_run(path)
    elif path.suffix == ".toml":
        run_named(read_toml(path), source=text)
    else:
        raise UserError(f"--trust runs the files of a run or a configuration, and {text} is neither: leave it out")


def opened_on_meta(text: str, settings: Sequence[str], *, tokens: int, sequences: int) -> Target:
    """The same on torch's meta device, where tensors have shapes and no values: a model of any size needs no memory.

    A checkpoint is opened by its config.json alone. Raises UserError for targets of our own, which are small.
    """
    path = Path(text).expanduser()
    if path.suffix == ".toml" or (path.is_dir() and RunFolder(path).is_run):
        raise UserError(
            f"{text} is a target of ours, whose structure its configuration names already; leave --structure-only out"
        )
    if (path / "config.json").is_file():
        text = str(path / "config.json")
    with torch.device("meta"):
        return opened(text, settings, tokens=tokens, sequences=sequences, seed=0)


def _opened(text: str, settings: Sequence[str], drawing: SampleSettings) -> Target:
    path = Path(text).expanduser()
    if path.is_dir():
        return _of_folder(path, settings, drawing)
    if path.is_file():
        return _of_file(path, settings, drawing)
    if ":" in text:
        return _of_factory(text, settings, drawing)
    if path.suffix in (".py", ".toml", ".json") or text.startswith((".", "/", "~")):
        raise UserError(f"no such file or folder: {text}")
    if "/" in text:
        raise UserError(
            f"{text} is no file or folder here; if it is a name on the Hugging Face hub: NormScope downloads nothing, "
            "so fetch it first (hf download NAME --local-dir FOLDER) and give the folder"
        )
    if not re.fullmatch(r"[\w-]+", text):
        raise UserError(f"{text!r} is no target: {KINDS}")
    return _of_hugging_face(text, hugging_face.from_name(text, read_overrides(settings)), drawing)


def _of_folder(path: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    if RunFolder(path).is_run:
        return of_run(path, settings)
    if not (path / "config.json").is_file():
        raise UserError(f"{path} has neither a config.json (Hugging Face) nor a config.toml (a run)")
    return _of_hugging_face(path.resolve().name, hugging_face.from_folder(path, read_overrides(settings)), drawing)


def _of_file(path: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    if path.suffix == ".toml":
        return of_config(path, settings)
    if path.suffix == ".json":
        return _of_hugging_face(str(path), hugging_face.from_config_file(path, read_overrides(settings)), drawing)
    raise UserError(f"{path} is no target: {KINDS}")


def _of_hugging_face(name: str, built: hugging_face.Built, drawing: SampleSettings) -> Target:
    inputs, loss = sampled(built.model, drawing)
    return Target(
        title=_title(built.model, name),
        model=built.model,
        inputs=inputs,
        loss=loss,
        loading=built.loading,
        wanted_placement=wanted_placement(built.model),
    )


def _of_factory(text: str, settings: Sequence[str], drawing: SampleSettings) -> Target:
    made = made_by(text, read_overrides(settings), drawing)
    bare = made.inputs is None and made.batches is None
    if bare and brings_batches(text) and not any(weight.is_meta for weight in made.model.parameters()):
        return _on_own_batches(text, made.model)
    inputs, loss = sampled(made.model, drawing) if made.inputs is None else (made.inputs, None)
    return Target(
        title=_title(made.model, text),
        model=made.model,
        inputs=inputs,
        loss=made.loss or loss or own_loss(made.model, inputs),
        optimizer=made.optimizer,
        clip_norm=made.clip_norm,
        warmup_updates=made.warmup_updates,
        batches=made.batches,
        wanted_placement=wanted_placement(made.model),
    )


def _on_own_batches(text: str, model: nn.Module) -> Target:
    """A model whose file has the functions that experiments ask for, on its batches and by its loss."""
    config = load(Path(text))
    task = task_from_scratch(config, text)
    found = _target(text, task, config, model, task.open(config), None)
    # Rate, warm-up and clip are the configuration's defaults, and nobody's word.
    return replace(found, optimizer=None, warmup_updates=None, clip_norm=None, wanted_placement=wanted_placement(model))


def _title(model: nn.Module, text: str) -> str:
    name = type(model).__name__
    return name if name == text else f"{name} ({text})"
