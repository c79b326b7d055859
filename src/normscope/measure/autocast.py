"""A forward pass in the precision of its weights, wherever it asks `torch.autocast` for another.

What a model is wired like does not depend on the precision of its products; what is read off by
computing again does, for bfloat16 keeps three digits. So autocast is entered as the pass asks, and
switched off at once. A pass that cannot do without it, as one that casts its input itself, is given
it back.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

_DEVICES = ("cpu", "cuda", "mps", "xpu")


@dataclass(slots=True)
class _LeftOut:
    """The requests for autocast by a pass while it is left out."""

    around: tuple[tuple[str, torch.dtype], ...] = ()
    """The autocast that was on around all, by device."""
    open: list[tuple[str, torch.dtype | None]] = field(default_factory=list)
    """The autocast that the pass has entered and not left, the outermost first: None where it is
    switched off.
    """
    was_asked: bool = False
    given_back: bool = False
    depth: int = 0
    """The number of calls of `without_autocast` within one another."""


_left_out = _LeftOut()


@contextmanager
def without_autocast() -> Iterator[None]:
    """Autocast is off, and stays off where it is entered, until `give_back`; one within another
    does nothing of its own.

    `torch.autocast` is changed for the whole process until the end, after an error too.
    """
    state = _left_out
    state.depth += 1
    try:
        if state.depth > 1:
            yield
            return
        state.around = tuple(
            (device, torch.get_autocast_dtype(device))
            for device in _DEVICES
            if torch.is_autocast_enabled(device)
        )
        state.open = [*state.around]
        state.was_asked = bool(state.around)
        state.given_back = False
        with ExitStack() as undone:
            for device, dtype in state.around:
                undone.enter_context(torch.autocast(device, dtype, enabled=False))
            undone.enter_context(_entered_in_vain())
            yield
    finally:
        state.depth -= 1


@contextmanager
def _entered_in_vain() -> Iterator[None]:
    """Notes each entry into autocast, and grants it only once autocast is given back."""
    state = _left_out
    enter: Any = torch.autocast.__enter__
    leave: Any = torch.autocast.__exit__

    def entered(self: torch.autocast) -> Any:
        result = enter(self)
        is_on = torch.is_autocast_enabled(self.device)
        state.open.append((self.device, torch.get_autocast_dtype(self.device) if is_on else None))
        state.was_asked = state.was_asked or is_on
        if not state.given_back:
            torch.set_autocast_enabled(self.device, False)
        return result

    def left(self: torch.autocast, *error: Any) -> Any:
        state.open.pop()
        return leave(self, *error)

    try:
        torch.autocast.__enter__, torch.autocast.__exit__ = entered, left  # type: ignore[method-assign]
        yield
    finally:
        torch.autocast.__enter__, torch.autocast.__exit__ = enter, leave  # type: ignore[method-assign]


def give_back() -> bool:
    """Gives passes, from now on, the autocast that they ask for, until the outermost
    `without_autocast` ends.

    False where none was asked for, or it was given back already: then nothing has changed.
    """
    state = _left_out
    changes = state.was_asked and not state.given_back
    if changes:
        # A pass that raised may have left autocast without a word.
        state.given_back, state.open = True, [*state.around]
    return changes


@contextmanager
def as_asked_around() -> Iterator[None]:
    """The autocast that was on around all, where it has been given back."""
    with ExitStack() as undone:
        for device, dtype in _left_out.around if _left_out.given_back else ():
            undone.enter_context(torch.autocast(device, dtype))
        yield


def lowered(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Returns the dtype in which the pass asks for a product of numbers of that dtype: autocast's,
    but for float64.
    """
    if not _left_out.depth or dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return dtype
    asked = [to for of, to in _left_out.open if of == device.type]
    return (asked[-1] if asked else None) or dtype
