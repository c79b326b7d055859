"""Targets that were transplanted: a folder of their weights, or a configuration that says so.

The placement is the folder's; no code that it names is run.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from ..adapters import hugging_face
from ..doctor.lint.patient import Loading
from ..doctor.trace.forward import Inputs
from ..errors import UserError
from ..limits.reading import shown
from ..settings.tables import read_overrides
from ..transplant.recipe import Recipe
from ..transplant.saved import has_weights, recipe_in, restore, told_in
from ..transplant.surgery import transplant
from .target import SampleSettings, Target, read_placement, sampled


def of_folder(path: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    """Returns the model of a folder that `normscope transplant`, or `save_pretrained` of a
    transplanted model, has written, under its placement.

    Raises UserError where it cannot be built without running code, or where the weights do not
    belong to it.
    """
    recipe = recipe_in(path)
    if not has_weights(path):
        return of_configuration(path / "config.json", settings, drawing)
    if settings:
        raise UserError(
            f"--set {settings[0]}: {path} holds a transplanted model, whose configuration is "
            "fixed; leave it out"
        )
    built = _built(path, recipe)
    inputs, loss = sampled(built.model, drawing)
    restore(built.model, path, inputs)
    return Target(
        title=f"{type(built.model).__name__} ({path.resolve().name})",
        model=built.model,
        inputs=inputs,
        loss=loss,
        loading=Loading(missing=(), unexpected=()),
        wanted_placement=read_placement(recipe.placement.name),
    )


def of_configuration(file: Path, settings: Sequence[str], drawing: SampleSettings) -> Target:
    """Returns a model with initial weights under the placement that its config.json names. Raises
    UserError.
    """
    recipe = recipe_in(file.parent)
    built = hugging_face.from_config_file(file, read_overrides(settings))
    inputs, loss = sampled(built.model, drawing)
    _place(built.model, recipe, inputs)
    return Target(
        title=f"{type(built.model).__name__} ({file})",
        model=built.model,
        inputs=inputs,
        loss=loss,
        wanted_placement=read_placement(recipe.placement.name),
    )


def _place(model: nn.Module, recipe: Recipe, inputs: Inputs) -> None:
    transplant(model, recipe.placement, inputs, initialise=recipe.initialise, stack=recipe.stack)


def _built(path: Path, recipe: Recipe) -> hugging_face.Built:
    if (path / "config.json").is_file():
        return hugging_face.from_config_file(path / "config.json", {})
    told = told_in(path)
    target, settings = told.get("target"), told.get("settings", [])
    if not isinstance(target, str) or not re.fullmatch(r"\w+", target):
        what = (
            f"of {shown(target)}" if isinstance(target, str) else "of a model that it does not name"
        )
        raise UserError(
            f"{path} holds weights {what} under {recipe.placement.name}, and no code is run "
            f"because a folder names it: call normscope.transplant(model, {str(path)!r}) in a "
            "function that returns the model, and give file.py:function"
        )
    if not isinstance(settings, list) or not all(isinstance(one, str) for one in settings):
        raise UserError(f"{path}: its recipe's settings must be a list of key=value")
    return hugging_face.from_name(target, read_overrides(settings))
