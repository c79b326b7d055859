"""A folder that transformers saved: its configuration, and the tensors in its file of weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ...errors import UserError
from ...limits.reading import read_json, shown, tensor_shapes

WEIGHTS = "model.safetensors"
Types = Mapping[str, tuple[type, ...]]
"""The types that a key of a configuration may have."""


def configuration(folder: Path) -> dict[str, Any]:
    """What `config.json` says. Raises UserError where it cannot be read or is no table."""
    path = folder / "config.json"
    try:
        found = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a folder that transformers saved") from error
    except ValueError as error:
        raise UserError(f"{path}: no JSON ({error})") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: no table of settings, but {shown(found)}")
    return found


def refuse_other_types(path: Path, theirs: Mapping[str, Any], types: Types) -> None:
    """Raise UserError where a value that is read is of another type; True is no number."""
    for key, kinds in types.items():
        if key in theirs and type(theirs[key]) not in kinds:
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise UserError(f"{path}: {key} is {shown(theirs[key])}; it must be of type {allowed}")


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of every tensor, from the header of the file, before anything is read or built. Raises UserError."""
    path = _weights_file(folder)
    try:
        return tensor_shapes(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path} is not a file of tensors: {error}") from error


def refuse_other_sizes(
    folder: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int | None, int]]
) -> None:
    """Raise UserError where a matrix that `config.json` asks for is missing or of another size; None is any."""
    path = folder / WEIGHTS
    for name, sizes in wanted.items():
        there = found.get(name)
        if there is None:
            raise UserError(f"{path} lacks {name}, which {folder / 'config.json'} asks for")
        if len(there) != 2 or any(size not in (None, rows) for size, rows in zip(sizes, there, strict=True)):
            asked = tuple("any" if size is None else size for size in sizes)
            raise UserError(f"{path}: {name} is {there}, and config.json asks for {asked}")


def tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor in float32. Raises UserError without `model.safetensors`, or where it is damaged."""
    path = _weights_file(folder)
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise UserError(f"{path} is not a file of tensors: {error}") from error


def _weights_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(
            f"{path} is missing; weights in another format or in several files become one with "
            "transformers.AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
            'max_shard_size="1000GB")'
        )
    return path
