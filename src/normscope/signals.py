"""SIGINT, SIGTERM and SIGHUP: a run ends at its next update, and everything else at once, with one
line.

It imports nothing slow, so that the command line can ask for it before it imports anything else.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask for an end: Ctrl-C, a scheduler's or the system's request, and a closed
terminal.
"""

_AGAIN_SECONDS = 0.02
"""The seconds until the destructor that swallowed a signal has most likely ended; if it has not,
the signal is sent once more.
"""

_Handler = Callable[[int, FrameType | None], None]


class Interrupted(Exception):
    """Work was asked to stop and has saved. `exit_code` is 128 and the signal's number, such as 143
    for SIGTERM.
    """

    def __init__(self, signal_number: int, state: str) -> None:
        """state: how far the work came, such as "after update 7; saved"."""
        super().__init__(f"stopped by {signal.Signals(signal_number).name} {state}")
        self.exit_code = 128 + signal_number


class Stopped(BaseException):
    """Work was asked to stop where it had nothing to save; raised at once, wherever it was
    (`raising_stopped`).

    No Exception, so that nothing takes it for a failure of its own, and no KeyboardInterrupt, for
    which typer has other words and another exit code.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class GivenUp(BaseException):
    """Work that can be done again was asked to stop, and is not finished; raised between two of its
    units (`between_units`).

    No Exception, so that nothing takes it for a failure of its own.
    """


class StopRequest:
    """Context in which the first signal of HANDLED is noted in `signal_number`; a second one acts
    as outside of it.

    Only the main thread can handle signals: in another one nothing is noted. passed_on_seconds: for
    so long a further signal counts as the first one, passed on: a launcher of several processes
    sends them what the terminal has sent to all of them already.
    """

    def __init__(self, *, passed_on_seconds: float = 0.0) -> None:
        self.signal_number: int | None = None
        self._passed_on_seconds, self._noted_at = passed_on_seconds, 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        self._previous = _handle(self._note)
        return self

    @contextmanager
    def giving_up(self) -> Iterator[None]:
        """Context whose work raises GivenUp at its next unit once a signal has been noted."""
        global _heeded
        outer, _heeded = _heeded, self
        try:
            yield
        finally:
            _heeded = outer

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.signal_number is None:
            self.signal_number, self._noted_at = number, now
            if not self._passed_on_seconds:
                self._restore()
        elif now - self._noted_at > self._passed_on_seconds:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        _put_back(self._previous)
        self._previous = {}

    def __exit__(
        self, *exception: type[BaseException] | BaseException | TracebackType | None
    ) -> None:
        self._restore()


_heeded: StopRequest | None = None
"""The request for which work is given up, where there is one."""


def between_units() -> None:
    """Gives up work where a stop was asked for and the caller can do it again, by raising GivenUp;
    work that takes long calls this before each unit of it, such as a batch of a validation.
    """
    if _heeded is not None and _heeded.signal_number is not None:
        raise GivenUp


class _Sender:
    """Sends signals to this process a moment after it was asked to, and none after its `end`."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._ended = False
        self._sending = threading.Lock()

    def send_soon(self, number: int) -> None:
        """Send a signal _AGAIN_SECONDS from now, from another thread."""
        threading.Thread(target=self._send, args=(number,), daemon=True).start()

    def _send(self, number: int) -> None:
        time.sleep(_AGAIN_SECONDS)
        with self._sending:
            if not self._ended:
                os.kill(self._process, number)

    def end(self) -> None:
        """Send nothing more; what is being sent has been sent when this returns."""
        self._ended = True
        with self._sending:
            pass


@contextmanager
def raising_stopped() -> Iterator[None]:
    """Context in which a signal of HANDLED raises Stopped; a second one acts as outside of it.

    Where Python swallows that, as it does in a destructor or a hook of a fork, the signal is sent
    again a moment later, until it is not swallowed. Work that returns before that is followed by
    Stopped.
    """
    owner, noted = os.getpid(), list[int]()
    outer_hook, sender = sys.unraisablehook, _Sender()
    owed: int | None = None  # the signal that was swallowed and has not arrived again

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal owed
        if os.getpid() != owner:
            # A forked process that has not said what it does with signals ends as any other.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        noted.append(number)
        if _runs_in(frame, swallowed.__code__):
            # What is raised in the hook is lost for certain: no hook is told of it.
            owed = number
            sender.send_soon(number)
            return
        owed = None
        _put_back(previous)
        raise Stopped(number)

    def swallowed(what: Any) -> None:
        nonlocal owed
        if not isinstance(what.exc_value, Stopped) or os.getpid() != owner:
            outer_hook(what)
            return
        owed = noted[-1]
        _handle(stop)
        sender.send_soon(owed)

    previous = _handle(stop)
    sys.unraisablehook = swallowed
    try:
        yield
    except Exception as error:
        if noted:
            # What was under way has made an error of its own of it, as an import that is cut short
            # may.
            raise Stopped(noted[0]) from error
        raise
    else:
        if owed is not None:
            raise Stopped(owed)
    finally:
        sys.unraisablehook = outer_hook
        sender.end()
        _put_back(previous)


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Runs a whole command as `raising_stopped` does; a stop is said on stderr, and the exit code
    is 128 plus the signal's number.
    """
    try:
        with raising_stopped():
            yield
    except Stopped as stop:
        # Where the terminal was closed there is nobody to tell.
        with contextlib.suppress(OSError, ValueError):
            print(f"{stop}; no file is left half written", file=sys.stderr, flush=True)
        sys.exit(stop.exit_code)


def _handle(handler: _Handler) -> dict[int, Any]:
    """Has the signals of HANDLED call `handler`; returns what each of them called before, by
    number.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    # `nohup` and `disown -h` have a process ignore SIGHUP so that it outlives its terminal.
    wanted = [n for n in HANDLED if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in wanted}


def _runs_in(frame: FrameType | None, code: CodeType) -> bool:
    """Tells whether `frame` is a call of `code`, or was called by one, at any depth."""
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _put_back(previous: dict[int, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(
            number, signal.SIG_DFL if handler is None else handler
        )  # None: another language's
