"""Follow runs that other processes train, from their files alone: whatever machine they are on, whoever began them.

The runs below a folder are found by their files; nothing is imported, opened or locked to find them.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..limits.reading import read_toml
from ..optim import parse_duration
from ..processes.surroundings import halted, is_held
from ..settings.files import CONFIG_FILE
from ..settings.tables import flat
from ..train import RunFolder
from ..train.config import DECIDED
from .manifest import FILE, read_manifest
from .state import BesideRuns, CellState

_MOST_DEPTH = 6
"""Folders within one another: a study has its pieces, their ladders, and runs below these."""
_SETTINGS = {
    "model.placement": "placement",
    "schedule.warmup_updates": "warm-up",
    "optimizer.peak_lr": "rate",
    "optimizer.name": "optimiser",
    "data.batch_sequences": "batch",
    "train.duration": "duration",
    "seed": "seed",
}
"""Which tell runs apart in a table, with their headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundRun(BesideRuns):
    """A run that has a folder, or a configuration for one."""

    folder: RunFolder
    settings: Mapping[str, Any]
    """By dotted key; empty where its configuration cannot be read."""
    place: str = ""
    """Which of several folders of runs it is in; empty where there is one."""
    shown_name: str = ""
    """Given where its place and its settings tell it from no other."""

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def group(self) -> Path:
        """The folder of the comparison, search or ladder that it belongs to."""
        path, above = self.folder.path, 1 if self.folder.path.parent.name == "runs" else 0
        # A run may be named by one relative word, which has no folder above it.
        return (path if len(path.parents) > above else path.absolute()).parents[above]

    def columns(self) -> Mapping[str, str]:
        """What tells it from the others, by heading."""
        values = {heading: _written(self.settings.get(key, "")) for key, heading in _SETTINGS.items()}
        return {"folder": self.place, **values, "run": self.shown_name}

    def duration(self) -> tuple[float | None, str]:
        """Of the whole run, and in what unit; None where its configuration does not say."""
        try:
            number, unit = parse_duration(self.settings.get("train.duration", ""))
        except ValueError:
            return None, ""
        return float(number), unit


def runs_below(folder: Path, known: Mapping[Path, _FoundRun] | None = None) -> list[_FoundRun]:
    """Every run of a run's folder, a comparison's, a search's or a study's, in the order of their tables.

    known: what is known of runs by their folders, which is not read again. Raises UserError for a damaged comparison.
    """
    known, folder = known or {}, folder.absolute()
    paths = list(dict.fromkeys(_paths(folder, _MOST_DEPTH)))
    runs = [known[path] if path in known and known[path].settings else _found(path) for path in paths]
    groups = {run.group for run in runs}
    placed = [replace(run, place=_place(run, folder) if len(groups) > 1 else "", shown_name="") for run in runs]
    alike = Counter(tuple(run.columns().values()) for run in placed)
    if max(alike.values(), default=1) == 1:
        return placed
    return [replace(run, shown_name=run.name) for run in placed]


def refuse_no_runs(folder: Path, runs: Sequence[_FoundRun]) -> None:
    """Raise UserError where there is nothing to look at."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give the --out of a comparison or a study, or a run")
    if not runs:
        raise UserError(
            f"{folder} holds no runs and no configurations of any; give the --out of a comparison or a study, once it "
            "has said that its runs begin, or a run's folder"
        )


def _found(path: Path) -> _FoundRun:
    run = _FoundRun(folder=RunFolder(path), settings={})
    for file in (run.config_file, run.folder.config_file):
        try:
            return replace(run, settings=flat(read_toml(file)))
        except (OSError, ValueError):
            continue  # not there, or damaged, which the command that trains it says
    return run


def _paths(folder: Path, depth: int) -> Iterator[Path]:
    """Folders of runs, whether there is one yet or only its configuration; those of a comparison in its order."""
    try:
        with os.scandir(folder) as listed:
            entries = {entry.name: entry for entry in listed}
        below = sorted(name for name, entry in entries.items() if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # removed meanwhile, or not ours to read
    if CONFIG_FILE in entries:
        yield folder
        return
    if "cells" in below:
        names = {file.stem for file in (folder / "cells").glob("*.toml")}
        manifest = read_manifest(folder)
        first = [name for name in (manifest.cells if manifest else ()) if name in names]
        yield from (folder / "runs" / name for name in dict.fromkeys([*first, *sorted(names)]))
    if depth:
        for name in below:
            if name not in ("cells", "logs") and not name.startswith("."):
                yield from _paths(folder / name, depth - 1)


def _place(run: _FoundRun, folder: Path) -> str:
    return run.group.relative_to(folder).as_posix() if run.group.is_relative_to(folder) else ""


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


_FIND_EVERY_SECONDS = 2.0
_MOVES_WITHIN_SECONDS = 60.0
"""A run whose lock cannot be seen from here is running if it has logged something within this time."""
_TAIL_BYTES = 4096


@dataclass(slots=True)
class _Seen:
    """What was seen of a run beside what its log says."""

    state: CellState[_FoundRun]
    locked: bool = False
    """Whether its lock was ever seen held: then it is known from its lock whether the run is being trained."""
    log_bytes: int | None = None
    """Size of its metrics at the last look."""
    moved_at: float | None = None
    """When its metrics had grown."""


@dataclass(slots=True)
class RunsWatch:
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

    def look(self) -> list[CellState[_FoundRun]]:
        """What every run is doing now. Only what its log has gained since the last look is read.

        Raises UserError where there are no runs, or no more, and for a damaged comparison.
        """
        now = self.clock()
        before = self._known()
        if self._found_at is None or now - self._found_at >= _FIND_EVERY_SECONDS:
            self._find()
            self._found_at = now
        for seen in self._seen.values():
            self._look_at(seen, now)
        groups = {seen.state.cell.group for seen in self._seen.values()}
        self.at_work = any(is_held(folder) for folder in {self.folder, *groups})
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

    def _look_at(self, seen: _Seen, now: float) -> None:
        state, run = seen.state, seen.state.cell
        size = _size(run.folder.metrics_file)
        if size != seen.log_bytes:
            if seen.log_bytes is not None:
                seen.moved_at = now
            seen.log_bytes = size
            state.read_new_events()
        if state.status in ("finished", DECIDED, "non-finite"):
            return
        held = is_held(run.folder.path)
        seen.locked = seen.locked or held
        moves = not seen.locked and seen.moved_at is not None and now - seen.moved_at < _MOVES_WITHIN_SECONDS
        why = self._failed.get(run.group, (0, {}))[1].get(run.name, "")
        if held or moves:
            state.begin(halted(run.folder.path) if held else None)
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
