"""Stages of work of which only the slow ones are worth a line."""

import threading
from collections.abc import Callable
from types import TracebackType

from .console import StageDisplay

_SHOWN_AFTER_SECONDS = 1.0


class LateStages:
    """Show each stage once it takes longer than a second; it ends when the next one begins.

    Called with a stage, how much of it is done, and the total.
    """

    def __init__(self, display: StageDisplay) -> None:
        self.display = display
        self._name, self._done, self._total, self._shown = "", 0, 1, False
        self._timer = threading.Timer(0.0, lambda: None)

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._told

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end()

    def _told(self, name: str, done: int, total: int) -> None:
        if name != self._name:
            self._end()
            self._name, self._shown = name, False
            self._timer = threading.Timer(_SHOWN_AFTER_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        self._done, self._total = done, total
        if self._shown:
            self.display(name, done, total)

    def _show(self) -> None:
        self.display(self._name, self._done, self._total)
        self._shown = True

    def _end(self) -> None:
        if self._timer.ident is None:
            return
        self._timer.cancel()
        self._timer.join()
        if self._shown:
            self.display(self._name, self._total, self._total)
