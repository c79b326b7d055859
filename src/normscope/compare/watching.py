"""Follow runs that other processes train, from their files alone: whatever machine they are on, whoever began them."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..processes.locks import SeenLocks
from ..train.config import DECIDED
from .found import FoundRun, refuse_no_runs, runs_below
from .manifest import FILE, read_manifest
from .state import CellState

_FIND_EVERY_SECONDS = 2.0
_MOVES_WITHIN_SECONDS = 60.0
"""A run whose lock cannot be seen from here is running if it has logged something within this time."""
_TAIL_BYTES = 4096


@dataclass(slots=True)
class _Seen:
    """What was seen of a run beside what its log says."""

    state: CellState[FoundRun]
    locked: bool = False
    """Whether its lock was ever seen held: then it is known from its lock whether the run is being trained."""
    log_bytes: int | None = None
    """Size of its metrics at the last look."""
    moved_at: float | None = None
    """When its metrics had grown."""


@dataclass(slots=True)
class Watch:
    """The runs below a folder; nothing of them is locked or written."""

    folder: Path
    clock: Callable[[], float] = time.monotonic
    at_work: bool = False
    """Whether a command is seen to hold the folder, or one below it, for its runs."""
    changes: int = 0
    """Counts the looks at which something had changed."""
    _seen: dict[Path, _Seen] = field(default_factory=dict)
    _found_at: float | None = None
    _failed: dict[Path, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    """By folder of a comparison: when its file was written, and which runs it says have failed."""

    def look(self) -> list[CellState[FoundRun]]:
        """What every run is doing now. Only what its log has gained since the last look is read.

        Raises UserError where there are no runs, or no more, and for a damaged comparison.
        """
        now, locks = self.clock(), SeenLocks.now()
        before = self._known()
        if self._found_at is None or now - self._found_at >= _FIND_EVERY_SECONDS:
            self._find()
            self._found_at = now
        for seen in self._seen.values():
            self._look_at(seen, locks, now)
        groups = {seen.state.cell.group for seen in self._seen.values()}
        self.at_work = any(locks.held(folder) for folder in {self.folder, *groups})
        self.changes += before != self._known()
        return [seen.state for seen in self._seen.values()]

    @property
    def over(self) -> bool:
        """Whether every run is over, and no command is seen that may add others."""
        return not self.at_work and all(seen.state.over for seen in self._seen.values())

    def _known(self) -> list[tuple[Path, str, int | None]]:
        return [(path, seen.state.status, seen.log_bytes) for path, seen in self._seen.items()]

    def _find(self) -> None:
        runs = runs_below(self.folder, {path: seen.state.cell for path, seen in self._seen.items()})
        refuse_no_runs(self.folder, runs)
        found = dict[Path, _Seen]()
        for run in runs:
            path = run.folder.path
            if path in self._seen and self._seen[path].state.cell.settings == run.settings:
                found[path] = self._seen[path]
                found[path].state.cell = run  # a further folder gives it a place in the table
            else:
                number, unit = run.duration()
                updates, epochs = (int(number), None) if number and unit == "updates" else (None, number)
                found[path] = _Seen(CellState(run, updates, epochs=epochs, clock=self.clock))
        self._seen = found
        for group in {run.group for run in runs}:
            self._read_failures(group)

    def _read_failures(self, group: Path) -> None:
        try:
            written = (group / FILE).stat().st_mtime_ns
        except OSError:
            self._failed.pop(group, None)
            return
        if self._failed.get(group, (None,))[0] != written:
            manifest = read_manifest(group)
            self._failed[group] = written, manifest.failed if manifest else {}

    def _look_at(self, seen: _Seen, locks: SeenLocks, now: float) -> None:
        state, run = seen.state, seen.state.cell
        size = _size(run.folder.metrics_file)
        if size != seen.log_bytes:
            if seen.log_bytes is not None:
                seen.moved_at = now
            seen.log_bytes = size
            state.read_new_events()
        if state.status in ("finished", DECIDED, "non-finite"):
            return
        held = locks.held(run.folder.path)
        seen.locked = seen.locked or held
        moves = not seen.locked and seen.moved_at is not None and now - seen.moved_at < _MOVES_WITHIN_SECONDS
        why = self._failed.get(run.group, (0, {}))[1].get(run.name, "")
        if held or moves:
            state.begin()
        elif why:
            state.status, state.message = "failed", why
        elif size is None and not run.folder.config_file.is_file():
            state.status, state.message = "waiting", ""
        elif state.status != "stopped":
            state.status, state.message = "stopped", _last_line(run.log_file)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _last_line(file: Path) -> str:
    """What a run that has stopped said last; empty where nothing of it was kept."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
