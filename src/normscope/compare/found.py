"""The runs below a folder, as their files tell of them: nothing is imported, opened or locked to find them."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..limits.reading import read_toml
from ..optim import parse_duration
from ..settings.files import CONFIG_FILE
from ..settings.tables import flat
from ..train import RunFolder
from .manifest import read_manifest
from .state import BesideRuns

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
class FoundRun(BesideRuns):
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
        return self.folder.path.parents[1 if self.folder.path.parent.name == "runs" else 0]

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


def runs_below(folder: Path, known: Mapping[Path, FoundRun] | None = None) -> list[FoundRun]:
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


def refuse_no_runs(folder: Path, runs: Sequence[FoundRun]) -> None:
    """Raise UserError where there is nothing to look at."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give the --out of a comparison, a fine-tuning or a study, or a run")
    if not runs:
        raise UserError(
            f"{folder} holds no runs and no configurations of any; give the --out of a comparison, a fine-tuning or a "
            "study, once it has said that its runs begin, or a run's folder"
        )


def _found(path: Path) -> FoundRun:
    run = FoundRun(folder=RunFolder(path), settings={})
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


def _place(run: FoundRun, folder: Path) -> str:
    return run.group.relative_to(folder).as_posix() if run.group.is_relative_to(folder) else ""


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
