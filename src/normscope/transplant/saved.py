"""A transplanted model in a folder: its weights, and what puts a new model of its class under its
placement.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn

from ..doctor.trace.forward import Inputs
from ..errors import UserError, in_one_line, user_errors
from ..files import disk_errors, whole_folder, write_atomically
from ..limits.reading import read_json
from ..placement import named
from .surgery import RECIPE, transplant

RECIPE_FILE = "transplant.json"
WEIGHTS = "model.safetensors"


def save(model: nn.Module, folder: Path, **told: Any) -> None:
    """Write a transplanted model's weights and its recipe into a new folder, whole or not at all.

    told: what else the recipe's file is to say. Raises UserError for a folder that cannot be
    written.
    """
    transplanted: Any = model.transplanted
    recipe = {**transplanted.recipe, **told}
    with disk_errors(f"writing {folder}"), whole_folder(folder) as inside:
        save_model(model, str(inside / WEIGHTS))
        write_atomically(
            inside / RECIPE_FILE, json.dumps(recipe, ensure_ascii=False, indent=1) + "\n"
        )


def is_saved(folder: Path) -> bool:
    """Whether a folder holds a transplanted model: one written here, or by transformers'
    `save_pretrained`.
    """
    return (folder / RECIPE_FILE).is_file() or (
        (folder / "config.json").is_file() and RECIPE in _table(folder / "config.json")
    )


def restore(model: nn.Module, folder: Path, inputs: Inputs) -> None:
    """Put a model under the placement of a folder, and give it the weights that lie there.

    Raises UserError for a folder or a model that do not belong together.
    """
    own = folder / RECIPE_FILE
    recipe = _table(own) if own.is_file() else _table(folder / "config.json")[RECIPE]
    try:
        placement, initialise, stack = (
            named(recipe["placement"]),
            recipe["initialise"],
            recipe["stack"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: its recipe cannot be read: {in_one_line(error)}") from error
    # Where weights were drawn, norms may have taken other parts than where they were kept.
    with torch.random.fork_rng():
        transplant(model, placement, inputs, initialise=initialise, stack=stack)
    try:
        load_model(model, str(folder / WEIGHTS))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS} cannot be loaded: {in_one_line(error)}") from error


def _table(file: Path) -> dict[str, Any]:
    with user_errors(
        OSError, ValueError, said=lambda error: f"cannot read {file}: {in_one_line(error)}"
    ):
        found = read_json(file)
    return found if isinstance(found, dict) else {}
