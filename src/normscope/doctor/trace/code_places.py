"""The places in the user's code where modules are built, parameters set, and modules called.

A place is the line of the innermost frame whose file is the user's own: of no installed package, of
no standard library, and not ours.
"""

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ...errors import is_users_code


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlace:
    """A line of a file."""

    file: str
    """The path from the current folder, where the file lies below that; else the whole path."""
    line: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlaces:
    """The code places of a model's modules and parameters, by their paths; "" is the model
    itself.
    """

    built: Mapping[str, CodePlace] = field(default_factory=dict)
    called: Mapping[str, CodePlace] = field(default_factory=dict)

    def built_at(self, path: str) -> CodePlace | None:
        """Returns where the module or parameter at a path was built, or the innermost known module
        around it.
        """
        return _innermost(self.built, path)

    def called_at(self, path: str) -> CodePlace | None:
        """Returns where the module at a path, or the innermost known one around it, was called
        first; None for the model itself, which the doctor calls.
        """
        return _innermost(self.called, path)


NO_PLACES = CodePlaces()


def _innermost(known: Mapping[str, CodePlace], path: str) -> CodePlace | None:
    while path and path not in known:
        path = path.rpartition(".")[0]
    return known.get(path)


class PlacesOfBuilding:
    """Notes where modules are built and parameters set, from `with` to its end."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref[nn.Module], CodePlace]] = {}
        self._weights: dict[int, dict[str, CodePlace]] = {}

    def __enter__(self) -> "PlacesOfBuilding":
        self._init, self._register = nn.Module.__init__, nn.Module.register_parameter
        outermost = sys._getframe(1)
        init, register = self._init, self._register

        def noted_init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            init(module, *args, **kwargs)
            place = _place(sys._getframe(1), outermost, not_within=module)
            if place is not None:
                # An id is given anew to what comes after a module that went.
                self._modules[id(module)] = weakref.ref(module), place
                self._weights.pop(id(module), None)

        def noted_register(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
            register(module, name, param)
            place = None if param is None else _place(sys._getframe(1), outermost)
            if place is not None:
                self._weights.setdefault(id(module), {})[name] = place

        self._put(noted_init, noted_register)
        return self

    def __exit__(self, *_: object) -> None:
        self._put(self._init, self._register)

    def _put(self, init: Callable[..., None], register: Callable[..., None]) -> None:
        """Puts two methods in the place of torch's."""
        for name, method in (("__init__", init), ("register_parameter", register)):
            setattr(nn.Module, name, method)

    def of(self, model: nn.Module) -> CodePlaces:
        """Returns the noted places of a model's modules and parameters."""
        built: dict[str, CodePlace] = {}
        for path, module in model.named_modules():
            known, place = self._modules.get(id(module), (None, None))
            if place is None or known is None or known() is not module:
                continue
            built[path] = place
            for name, where in self._weights.get(id(module), {}).items():
                built[f"{path}.{name}" if path else name] = where
        return CodePlaces(built=built)


@contextmanager
def calls_noted(model: nn.Module) -> Iterator[dict[str, CodePlace]]:
    """Notes where each module of a model is called first, by its path, once it has been."""
    found: dict[str, CodePlace] = {}
    paths = {id(module): path for path, module in model.named_modules()}
    paths.pop(id(model), None)
    outermost = sys._getframe(2)

    def note(module: nn.Module, _: Any) -> None:
        path = paths.pop(id(module), "")
        if path:
            place = _place(sys._getframe(1), outermost, not_within=module, up_to=model)
            if place is not None:
                found[path] = place

    handle = register_module_forward_pre_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def _place(
    frame: FrameType | None,
    outermost: FrameType,
    *,
    not_within: nn.Module | None = None,
    up_to: nn.Module | None = None,
) -> CodePlace | None:
    """Returns the innermost line of the user's, up to a frame that is not asked itself.

    not_within: a module whose own methods are passed over, as `super().__init__()` in its own.
    up_to: a module whose methods, where they are no code of the user's, end the search: who calls
    it says nothing of what is called in it.
    """
    while frame is not None and frame is not outermost:
        file = frame.f_code.co_filename
        owner = _owner(frame)
        if is_users_code(file):
            if not_within is None or owner is not not_within:
                return CodePlace(file=seen_from_here(file), line=frame.f_lineno)
        elif up_to is not None and owner is up_to:
            return None
        frame = frame.f_back
    return None


def _owner(frame: FrameType) -> Any:
    """Returns the first argument of the function that a frame is of, which is `self` in a
    method.
    """
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


@cache
def seen_from_here(file: str) -> str:
    """Returns a file's path from the current folder, where it lies below that; else as it is."""
    try:
        return Path(file).resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return Path(file).as_posix()
