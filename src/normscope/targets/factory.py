"""A function of the user's that makes a model: `package.module:function` or `file.py:function`."""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from ..doctor.trace.code_places import PlacesOfBuilding
from ..errors import UserError, error_line
from ..limits.home import from_home
from ..optim import OPTIMIZERS
from ..settings.files import OwnFile, factory_in, import_file
from ..settings.tables import nearest
from .target import SampleSettings

_KEYS = ("model", "inputs", "loss", "optimizer", "clip_norm", "warmup_updates", "scheduler")
_ALLOWED = (
    "a model, (model, inputs), (model, inputs, loss), or a mapping with the keys "
    f"{', '.join(_KEYS)}"
)


def made_by(text: str, arguments: Mapping[str, Any], drawing: SampleSettings) -> dict[str, Any]:
    """Import the function, call it, and check what it returns: its `model`, others of the fields
    of `Target`, and as `built` where its modules were.

    The current folder is put on sys.path, and that of a file too, as Python does for a script.
    arguments: by keyword. Raises UserError.
    """
    with PlacesOfBuilding() as places:
        made = _made(text, arguments, drawing)
    return {**made, "built": places.of(made["model"])}


def _made(text: str, arguments: Mapping[str, Any], drawing: SampleSettings) -> dict[str, Any]:
    place, _, name = text.rpartition(":")
    function = _found(_imported(place, name), name, place)
    if isinstance(function, nn.Module):
        if arguments:
            raise UserError(
                f"--set {next(iter(arguments))}: {text} is a model already, and no function to "
                "call with it"
            )
        return {"model": function}
    if not callable(function):
        raise UserError(
            f"{text} is of type {type(function).__name__}; it must be a function that returns "
            f"{_ALLOWED}"
        )
    _check_arguments(text, function, arguments)
    # Once more: the import may have drawn numbers, but only where it was the first one.
    drawing.seed_everything()
    try:
        returned = function(**arguments)
    except (Exception, SystemExit) as error:
        raise UserError(f"{text} raised {error_line(error)}") from error
    return _validated(text, returned)


def brings_batches(text: str) -> bool:
    """Tells whether the file of `file.py:function`, which has run, has the function batches() that
    experiments ask for.
    """
    named = factory_in(text)
    own = None if named is None else getattr(OwnFile.of(str(named[0])).module, "batches", None)
    return inspect.isfunction(own) and len(inspect.signature(own).parameters) <= 1


def _imported(place: str, name: str) -> ModuleType:
    _put_on_path(Path.cwd())
    if not place.endswith(".py"):
        return _module(place)
    file = from_home(place).resolve()
    if not file.is_file():
        raise UserError(f"no such file: {place}")
    if not name:
        raise UserError(f"name the function too, as in {place}:function")
    _put_on_path(file.parent)
    import_file(file)
    return OwnFile.of(str(file)).module


def _module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"{name!r} is no module: give package.module:function or file.py:function")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise UserError(
                f"no module {name!r}: neither installed nor below the folder {Path.cwd()}"
            ) from error
        raise UserError(f"cannot import {name}: {error_line(error)}") from error


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _found(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [
                known
                for known, value in vars(module).items()
                if callable(value) and not known.startswith("_")
            ]
            close = difflib.get_close_matches(name, own, n=1)
            raise UserError(
                f"{place} has no function {name!r}"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )
        found = getattr(found, part)
    return found


def _check_arguments(text: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some that are written in C do not say
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for unknown in [key for key in arguments if key not in named]:
            hint = nearest(unknown, named) if named else "it takes none"
            raise UserError(f"--set {unknown}: {text}{signature} has no such argument; {hint}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise UserError(
            f"{text}{signature} is called with what --set gives, by keyword, and with nothing "
            f"else: {error}"
        ) from error


def _validated(text: str, returned: Any) -> dict[str, Any]:
    if isinstance(returned, nn.Module):
        values = {"model": returned}
    elif isinstance(returned, Mapping):
        unknown = [key for key in returned if key not in _KEYS]
        if unknown or "model" not in returned:
            what = f"the unknown key {unknown[0]!r}" if unknown else "no key 'model'"
            raise UserError(
                f"{text} returned a mapping with {what}; its keys are {', '.join(_KEYS)}"
            )
        values = dict(returned)
    elif isinstance(returned, tuple) and 1 <= len(returned) <= 3:
        values = dict(zip(_KEYS, returned, strict=False))
    else:
        what = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else _a(returned)
        raise UserError(f"{text} returned {what}; it must return {_ALLOWED}")
    for wanted in _WANTED:
        value = values.get(wanted.key)
        if value is None and wanted.key != "model":
            continue
        if not wanted.fits(value):
            raise UserError(
                f"{text} returned {_a(value)} as {wanted.key}; it must be {wanted.words}"
            )
    return values


def _are_inputs(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return isinstance(value, Tensor | Mapping) or callable(value) or is_sequence


class _Wanted(NamedTuple):
    """A value that a function that builds a model may return under a key."""

    key: str
    words: str
    """The requirement on the value, for a user."""
    fits: Callable[[Any], bool]


_WANTED = (
    _Wanted("model", "a torch.nn.Module", lambda value: isinstance(value, nn.Module)),
    _Wanted(
        "inputs",
        "a tensor, a sequence (by position), a mapping (by keyword), or a function that runs the "
        "model",
        _are_inputs,
    ),
    _Wanted("loss", "a function of the model's output", callable),
    _Wanted(
        "optimizer",
        f"a torch.optim.Optimizer, or one of the names {', '.join(OPTIMIZERS)}",
        lambda value: isinstance(value, torch.optim.Optimizer) or value in tuple(OPTIMIZERS),
    ),
    _Wanted(
        "clip_norm",
        "a positive number",
        lambda value: type(value) in (int, float) and value > 0,
    ),
    _Wanted(
        "warmup_updates",
        "a number of updates",
        lambda value: type(value) is int and value >= 0,
    ),
    _Wanted(
        "scheduler",
        "a scheduler of torch.optim.lr_scheduler, over the optimizer",
        lambda value: isinstance(value, LRScheduler),
    ),
)


def _a(value: Any) -> str:
    return "None" if value is None else f"an object of class {type(value).__name__}"
