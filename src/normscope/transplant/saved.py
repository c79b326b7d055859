"""A transplanted model in a folder: its weights, and what puts a new model of its class under its
placement.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_model
from torch import Tensor, nn

from ..doctor.trace.forward import Inputs
from ..errors import UserError, in_one_line, user_errors
from ..files import disk_errors, whole_folder, write_atomically
from ..limits.reading import read_json, shown
from .recipe import RECIPE, Recipe
from .surgery import transplant

RECIPE_FILE = "transplant.json"
WEIGHTS = "model.safetensors"
_SHARDS = "model.safetensors.index.json"


def save(model: nn.Module, folder: Path, **told: Any) -> None:
    """Write a transplanted model's weights and its recipe into a new folder, whole or not at all.

    A model of transformers gets its configuration beside them, from which it can be built. told:
    what else the recipe's file is to say. Raises UserError for a folder that cannot be written.
    """
    transplanted: Any = model.transplanted
    recipe = {**transplanted.recipe, **told}
    with disk_errors(f"writing {folder}"), whole_folder(folder) as inside:
        save_model(model, str(inside / WEIGHTS))
        write_atomically(
            inside / RECIPE_FILE, json.dumps(recipe, ensure_ascii=False, indent=1) + "\n"
        )
        config: Any = getattr(model, "config", None)
        if hasattr(config, "to_json_string"):
            table = {**json.loads(config.to_json_string()), "architectures": [type(model).__name__]}
            write_atomically(inside / "config.json", json.dumps(table, indent=1) + "\n")


def is_saved(folder: Path) -> bool:
    """Tells whether a folder holds a transplanted model, written here or by transformers'
    `save_pretrained`. A configuration that cannot be read counts as none; its own reader refuses
    it.
    """
    if (folder / RECIPE_FILE).is_file():
        return True
    with suppress(UserError):
        return (folder / "config.json").is_file() and RECIPE in _table(folder / "config.json")
    return False


def has_weights(folder: Path) -> bool:
    """Tells whether weights that `restore` reads lie in the folder."""
    return (folder / WEIGHTS).is_file() or (folder / _SHARDS).is_file()


def recipe_in(folder: Path) -> Recipe:
    """Returns the recipe in such a folder. Raises UserError where it cannot be read."""
    own = folder / RECIPE_FILE
    if own.is_file():
        return Recipe.of(_table(own), folder)
    return Recipe.of(_table(folder / "config.json").get(RECIPE), folder)


def told_in(folder: Path) -> Mapping[str, Any]:
    """Returns what the caller of `save` stored beside the recipe; an empty table for a folder
    written by transformers.
    """
    own = folder / RECIPE_FILE
    return _table(own) if own.is_file() else {}


def restore(model: nn.Module, folder: Path, inputs: Inputs) -> None:
    """Puts a model under the placement of a folder, and gives it the weights that lie there.

    Raises UserError for a folder or a model that do not belong together; then the model is as it
    was.
    """
    recipe = recipe_in(folder)
    weights = _weights_in(folder)

    def fill(placed: nn.Module) -> str:
        _fill(placed, weights, folder)
        return str(folder)

    transplant(
        model,
        recipe.placement,
        inputs,
        initialise=recipe.initialise,
        stack=recipe.stack,
        fill=fill,
    )


def _weights_in(folder: Path) -> dict[str, Tensor]:
    """Returns all tensors of a folder, by name. Raises UserError where they cannot be read."""
    if (folder / _SHARDS).is_file() and not (folder / WEIGHTS).is_file():
        table = _table(folder / _SHARDS).get("weight_map")
        if not isinstance(table, dict):
            raise UserError(f"{folder / _SHARDS} has no weight_map")
        files = [_beside(folder, name) for name in dict.fromkeys(table.values())]
    else:
        files = [folder / WEIGHTS]
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            found |= load_file(str(file))
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            raise UserError(f"{file} cannot be loaded: {in_one_line(error)}") from error
    return found


def _beside(folder: Path, name: Any) -> Path:
    if not isinstance(name, str) or name in ("", ".", "..") or not set(name).isdisjoint("/\\\0"):
        raise UserError(
            f"{folder / _SHARDS} names {shown(name)}; a file in the folder is named alone"
        )
    return folder / name


def _fill(model: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write weights into a model, all of them or, with a UserError, none."""
    named = model.state_dict(keep_vars=True)
    own = {name: one for name, one in named.items() if isinstance(one, Tensor)}
    extra = sorted(weights.keys() - own.keys())
    there = {_place(own[name]) for name in weights if name in own}
    # Of tied weights a file holds one.
    lacking = sorted(name for name, one in own.items() if _place(one) not in there)
    other = [
        f"{name}, which is {_kind(weights[name])} there and {_kind(own[name])} in the model"
        for name in sorted(weights.keys() & own.keys())
        if _kind(weights[name]) != _kind(own[name])
    ]
    for found, said in (
        (other, "has another {}"),
        (lacking, "lacks {}"),
        (extra, "holds {}, which the model does not have"),
    ):
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise UserError(
                f"{folder}: its weights cannot be loaded, for the file {said.format(found[0])}"
                f"{more}; give a model of the class and the configuration that was saved"
            )
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)


def _kind(x: Tensor) -> str:
    return f"{tuple(x.shape)}{'' if x.is_floating_point() else ' of ' + str(x.dtype)[6:]}"


def _place(x: Tensor) -> tuple[int, int, torch.Size] | int:
    """Returns a key of a tensor that tied weights share and no others."""
    return (x.data_ptr(), int(x.storage_offset()), x.shape) if x.numel() else id(x)


def _table(file: Path) -> dict[str, Any]:
    with user_errors(
        OSError, ValueError, said=lambda error: f"cannot read {file}: {in_one_line(error)}"
    ):
        found = read_json(file, infinite=True)
    return found if isinstance(found, dict) else {}
