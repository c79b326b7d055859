"""SIGINT and SIGTERM end a run at the next update instead of in the middle of one."""

import signal
from types import FrameType, TracebackType


class Interrupted(Exception):
    """Work was asked to stop and has saved. `exit_code` is 130 for SIGINT and 143 for SIGTERM."""

    def __init__(self, signal_number: int, state: str) -> None:
        """state: how far the work came, such as "after update 7; saved"."""
        super().__init__(f"stopped by {signal.Signals(signal_number).name} {state}")
        self.exit_code = 128 + signal_number


class StopRequest:
    """Context in which the first SIGINT or SIGTERM is noted in `signal_number`; a second one acts at once."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._restore()
