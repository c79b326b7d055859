"""metrics.jsonl: one JSON line an event, and no clock in it, so that runs compare by bytes.

Every line ends in a guard, a hash over the line and the guard of the line before: a line that was
changed, lost, repeated or moved is found. A checkpoint keeps its place in the file, and with it the
guard of all lines up to there.
"""

import errno
import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, option
from ..files import disk_errors, naming, sync
from .events import Event as Event, EventOrder, event_of

_GUARD_BYTES = 8
_SEAL = ', "guard": "{}"}}'
_SEAL_LENGTH = len(_SEAL.format("0" * 2 * _GUARD_BYTES))
_ADVICE = (
    f"put the file back as it was, go on from an older checkpoint with {option('from_step')}, or "
    "start in another folder"
)


@dataclass(frozen=True, slots=True)
class LogMark:
    """A place in metrics.jsonl: after how many bytes, and the guard of the last line before it."""

    bytes: int = 0
    guard: str = ""

    def to_state(self) -> dict[str, Any]:
        return {"metrics_bytes": self.bytes, "metrics_guard": self.guard}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "LogMark":
        """Reads the mark in a state. Raises KeyError or ValueError for a state that lacks it."""
        return cls(int(state["metrics_bytes"]), str(state["metrics_guard"]))


class DamagedMetrics(UserError):
    """A line of metrics.jsonl is not as it was written, or not where it was."""


def read_events(file: Path, *, after_bytes: int = 0) -> list[Event]:
    """Returns all events, as `events_in`."""
    return list(events_in(file, after_bytes=after_bytes))


def events_in(file: Path, *, after_bytes: int = 0) -> Iterator[Event]:
    """One event after the other; a last line still being written is left out. Raises DamagedMetrics
    naming the line.

    after_bytes: where the lines end that a checkpoint counts on, which must be there; with none,
    the file need not be.
    """
    # All of it at once: a run that goes on from a checkpoint cuts its lines meanwhile.
    content = file.read_bytes() if file.is_file() else b""
    order = EventOrder()
    for number, (body, _) in enumerate(_lines(content, file), 1):
        try:
            event = event_of(body + b"}")
            order.take(event)
        except ValueError as error:
            raise DamagedMetrics(
                f"{file}:{number}: no run writes this line ({error}); {_ADVICE}"
            ) from None
        yield event
    if (whole := content.rfind(b"\n") + 1) < after_bytes:
        raise DamagedMetrics(_lines_are_missing(file, whole, after_bytes))


class MetricsLog:
    """Appends events to metrics.jsonl."""

    def __init__(self, file: Path, mark: LogMark) -> None:
        """Keep the file up to `mark`, which is what a checkpoint has seen, and append from there.

        Raises UserError where the file is not as the checkpoint has seen it: its lines cannot be
        written again.
        """
        self.file, self._guard = file, mark.guard
        with disk_errors(f"opening {file}"):
            # Unbuffered, so that nothing is left to write, and to fail again, when the file is
            # closed.
            self._stream = file.open("ab", buffering=0)
            try:
                # A checkpoint counts on the file's lines, and a power cut may take a name that its
                # folder never kept.
                sync(file.parent)
                _refuse_other_beginning(file, mark)
                self._stream.truncate(mark.bytes)
            except BaseException:
                self.close()
                raise

    def append(self, event: Event) -> None:
        line, self._guard = _sealed(event, self._guard)
        with disk_errors(f"writing {self.file}"), naming(self.file):
            if self._stream.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def mark(self) -> LogMark:
        """Returns the end of the file, once every line up to there is on disk."""
        with disk_errors(f"writing {self.file}"):
            sync(self.file)
            return LogMark(os.fstat(self._stream.fileno()).st_size, self._guard)

    def close(self) -> None:
        self._stream.close()


class Unlogged:
    """The stand-in for a log in a process for which another one logs."""

    def append(self, event: Event) -> None:
        """Leaves it to the other one."""

    def mark(self) -> LogMark:
        """Returns a place that nobody goes back to."""
        return LogMark()

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def remove_end(file: Path) -> None:
    """Take the line off that says that the run is finished, where there is one: it goes on."""
    content = file.read_bytes()
    end = 0
    for body, guard in _lines(content, file):
        if json.loads(body + b"}")["event"] == "finished":
            with file.open("r+b") as stream:
                stream.truncate(end)
                os.fsync(stream.fileno())
        end += len(body) + len(_seal(guard)) + 1


def _refuse_other_beginning(file: Path, mark: LogMark) -> None:
    content = file.read_bytes()
    if len(content) < mark.bytes:
        raise UserError(_lines_are_missing(file, len(content), mark.bytes))
    guard = ""
    for _, found in _lines(content[: mark.bytes], file):
        guard = found
    if guard != mark.guard:
        raise UserError(
            f"{file} does not have the lines that the checkpoint was saved after; {_ADVICE}"
        )


def _lines_are_missing(file: Path, found: int, wanted: int) -> str:
    return (
        f"{file} has {found} bytes, but the checkpoint was saved after {wanted}: lines are "
        f"missing; {_ADVICE}"
    )


def _lines(content: bytes, file: Path) -> Iterator[tuple[bytes, str]]:
    """Yields, for each whole line, the event's JSON without its closing brace, and the guard.
    Raises DamagedMetrics.
    """
    guard = ""
    for number, row in enumerate(io.BytesIO(content), 1):
        body = row[: -_SEAL_LENGTH - 1]
        after = _guard(guard, body)
        is_sealed = row[-_SEAL_LENGTH - 1 : -1] == _seal(after)
        if not row.endswith(b"\n"):
            if is_sealed:
                raise DamagedMetrics(f"{file}:{number}: the end of this line is damaged; {_ADVICE}")
            return  # it is still being written, or was when a kill came
        if not is_sealed:
            raise DamagedMetrics(
                f"{file}:{number}: this line is damaged, was edited, or does not belong here "
                "(lines may be missing, repeated or moved, or another version wrote them); "
                f"{_ADVICE}"
            )
        guard = after
        yield body, guard


def _sealed(event: Event, guard_before: str) -> tuple[bytes, str]:
    body = json.dumps(event, allow_nan=False)[:-1].encode()
    guard = _guard(guard_before, body)
    return body + _seal(guard) + b"\n", guard


def _guard(before: str, body: bytes) -> str:
    return hashlib.blake2b(before.encode() + body, digest_size=_GUARD_BYTES).hexdigest()


def _seal(guard: str) -> bytes:
    return _SEAL.format(guard).encode()
