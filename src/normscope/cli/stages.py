"""Stages of work of which only the slow ones are worth a line."""

import threading
from collections.abc import Mapping
from types import TracebackType

from .console import StageDisplay

_SHOWN_AFTER_SECONDS = 1.0


class LateStages:
    """Show each stage once it takes longer than a second; it ends when the next one begins.

    Called with a stage, how much of it is done, and the total. Beside a slow stage stands how far all planned ones are.
    """

    def __init__(self, display: StageDisplay) -> None:
        self.display = display
        self._name, self._done, self._total, self._shown = "", 0, 1, False
        self._timer = threading.Timer(0.0, lambda: None)
        self._planned, self._whole_shown = _Planned("", {}), False

    def __enter__(self) -> "LateStages":
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end()
        if self._whole_shown:
            self.display(self._planned.title, 100, 100)

    def plan(self, title: str, work: Mapping[str, float]) -> None:
        """What stages there will be and how much work each is, in one unit, in their order."""
        self._planned = _Planned(title, work)

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._name:
            self._end()
            self._name, self._shown = name, False
            self._timer = threading.Timer(_SHOWN_AFTER_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        self._done, self._total = done, total
        if self._shown:
            self._show()

    def _show(self) -> None:
        self.display(self._name, self._done, self._total)
        percent = self._planned.percent(self._name, self._done, self._total)
        if percent is not None:
            self.display(self._planned.title, percent, 100)
            self._whole_shown = True
        self._shown = True

    def _end(self) -> None:
        if self._timer.ident is None:
            return
        self._timer.cancel()
        self._timer.join()
        if self._shown:
            self.display(self._name, self._total, self._total)


class _Planned:
    """Stages that are known before they begin."""

    def __init__(self, title: str, work: Mapping[str, float]) -> None:
        self.title, self._work = title, dict(work)

    def percent(self, name: str, done: int, total: int) -> int | None:
        """How far all of them are, in the middle of one; None for one that was not planned."""
        if name not in self._work:
            return None
        names = list(self._work)
        before = sum(self._work[one] for one in names[: names.index(name)])
        return int(100 * (before + self._work[name] * done / max(1, total)) / sum(self._work.values()))
