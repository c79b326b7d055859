"""The way from what the user typed to a target: first decide what it is, then open it.

What knows tasks, corpora and runs is imported where one is named: whoever has a model alone waits
for none of it, and needs none of the libraries that only training takes.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ..adapters import hugging_face
from ..doctor.trace.code_places import CodePlaces
from ..doctor.trace.forward import batch_tokens_in
from ..errors import UserError, user_errors
from ..limits.home import from_home
from ..measure.unchanged import random_state_kept
from ..settings.files import factory_in, is_run
from ..settings.tables import read_overrides
from ..tasks.own_batches import OwnBatch
from ..tasks.own_functions import ModelFile
from ..transplant.saved import is_saved
from . import transplanted
from .factory import brings_batches, made_by
from .frequencies import counted_in
from .target import SampleSettings, Target, own_loss, sampled, wanted_placement

KINDS = (
    "give package.module:function or file.py:function that returns a model, a Hugging Face "
    "configuration (config.json, or a class such as GPT2Config), a folder with a checkpoint or a "
    "run, or a TOML configuration"
)


def opened(text: str, settings: Sequence[str], *, tokens: int, sequences: int, seed: int) -> Target:
    """Build or load what `text` names. Nothing is ever downloaded.

    settings: `key=value`; keyword arguments of a factory, or changes of a configuration. tokens,
    sequences: of sample inputs, for targets that bring none of their own. seed: of initial weights
    and sample inputs, but for our own configurations, which have one. Random state is left as it
    was. Raises UserError, one line, for whatever cannot be opened.
    """
    with user_errors(ValueError):
        drawing = SampleSettings(tokens=tokens, sequences=sequences, seed=seed)
    with random_state_kept():
        drawing.seed_everything()
        return _opened(text, settings, drawing)


def opened_on_meta(text: str, settings: Sequence[str], *, tokens: int, sequences: int) -> Target:
    """The same on torch's meta device, where tensors have shapes and no values: a model of any size
    needs no memory.

    A checkpoint is opened by its config.json alone. Raises UserError for targets of our own, which
    are small.
    """
    path = from_home(text)
    if path.suffix == ".toml" or (path.is_dir() and is_run(path)):
        raise UserError(
            f"{text} is a target of ours, whose structure its configuration names already; leave "
            "--structure-only out"
        )
    if is_saved(path) or (path.name == "config.json" and is_saved(path.parent)):
        raise UserError(
            f"{text} is a transplanted model, which a placement is put on by running it; leave "
            "--structure-only out"
        )
    if (path / "config.json").is_file():
        text = str(path / "config.json")
    with torch.device("meta"):
        return opened(text, settings, tokens=tokens, sequences=sequences, seed=0)


def _opened(text: str, settings: Sequence[str], drawing: SampleSettings) -> Target:
    path = from_home(text)
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
            f"{text} is no file or folder here; if it is a name on the Hugging Face hub: NormScope "
            "downloads nothing, so fetch it first (hf download NAME --local-dir FOLDER) and give "
            "the folder"
        )
    if not re.fullmatch(r"[\w-]+", text):
        raise UserError(f"{text!r} is no target: {KINDS}")
    return _of_hugging_face(text, hugging_face.from_name(text, read_overrides(settings)), drawing)


def _of_folder(path: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    if is_run(path):
        from .runs import of_run

        return of_run(path, settings)
    if is_saved(path):
        return transplanted.of_folder(path, settings, drawing)
    if not (path / "config.json").is_file():
        raise UserError(
            f"{path} has neither a config.json (Hugging Face) nor a config.toml (a run)"
        )
    return _of_hugging_face(
        path.resolve().name, hugging_face.from_folder(path, read_overrides(settings)), drawing
    )


def _of_file(path: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    if path.suffix == ".toml":
        from .runs import of_config

        return of_config(path, settings)
    if path.name == "config.json" and is_saved(path.parent):
        return transplanted.of_configuration(path, settings, drawing)
    if path.suffix == ".json":
        return _of_hugging_face(
            str(path), hugging_face.from_config_file(path, read_overrides(settings)), drawing
        )
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
    model = made["model"]
    inputs = made.get("inputs")
    loss = made.get("loss")
    on_meta = any(weight.is_meta for weight in model.parameters())
    own = None if on_meta or not brings_batches(text) else _model_file(text)
    if inputs is None and own is not None:
        # An experiment calls the function without arguments.
        return _on_own_batches(text, own, model, made["built"], compared="" if settings else text)
    if inputs is None:
        inputs, of_family = sampled(model, drawing)
        loss = loss or of_family
    # A loss that is given may be any, and no cross-entropy of the labels of batches().
    counting = None if own is None or made.get("loss") else partial(counted_in, own)
    # Inputs that come with an optimiser are what it is meant to be trained on.
    if made.get("inputs") is not None and made.get("optimizer") is not None:
        made["batch_tokens"] = batch_tokens_in(inputs)
    made |= {"inputs": inputs, "loss": loss or own_loss(model, inputs)}
    return Target(
        title=_title(model, text),
        wanted_placement=wanted_placement(model),
        counting=counting,
        **made,
    )


def _model_file(text: str) -> ModelFile:
    path, name = factory_in(text) or (Path(), "")
    return ModelFile(path.resolve(), name)


def _on_own_batches(
    text: str, file: ModelFile, model: nn.Module, built: CodePlaces, *, compared: str
) -> Target:
    """Returns a model whose file has the functions that experiments ask for, on its first batch and
    by its loss.
    """
    value = OwnBatch.of(file.sources()[0].batch(0, 1)).value
    return Target(
        title=_title(model, text),
        model=model,
        inputs=lambda model: file.output(model, value),
        loss=lambda output, _: file.loss(output, value),
        batch_tokens=batch_tokens_in(value),
        built=built,
        compared=compared,
        counting=partial(counted_in, file),
        wanted_placement=wanted_placement(model),
    )


def _title(model: nn.Module, text: str) -> str:
    name = type(model).__name__
    return name if name == text else f"{name} ({text})"
