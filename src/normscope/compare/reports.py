"""The report of runs that are there: written once for any of them, or anew while they go on."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserError
from ..files import disk_errors, make_folders, write_over
from ..limits.ours import refuse_other
from ..report.comparison.contents import ComparisonPage
from ..report.comparison.page import render
from ..runs.config import load_run_config
from ..settings.files import is_run
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from .grid import Cell
from .manifest import Manifest, about, cell_of, former_manifest, named_cells, read_manifest, refuse_unlike
from .page import compare, read


def report(folders: Sequence[Path], out: Path, *, title: str | None = None) -> tuple[ComparisonPage, Path]:
    """Write the page of all runs in the folders into `out`, as far as they have come; returns it and its file.

    A comparison's folder says itself what is needed of its corpus; otherwise the corpus of the run is opened. Raises
    UserError where a folder holds no runs, or where runs cannot stand in one comparison.
    """
    found = [opened(folder) for folder in folders]
    cells, manifest = found[0]
    for folder, (others, of_others) in zip(folders[1:], found[1:], strict=True):
        refuse_unlike(others, cells, manifest, of_others.corpus.fingerprint, folders[0])
        for other in others:
            if twice := [cell for cell in cells if cell.name == other.name]:
                raise UserError(
                    f"{folder}: {other.name} is also in {twice[0].folder.path}; a report holds each run once"
                )
        cells = [*cells, *others]
        manifest = replace(
            manifest,
            commands=tuple(dict.fromkeys([*manifest.commands, *of_others.commands])),
            failed={**manifest.failed, **of_others.failed},
        )
    with disk_errors(f"writing the report into {out}"):
        return compare(cells, replace(manifest, title=title or manifest.title), out)


def opened(folder: Path) -> tuple[list[Cell], Manifest]:
    """The runs of a folder, which is that of a comparison or a run, and what it says of them. Raises UserError."""
    run = RunFolder(folder)
    if run.is_run:
        config = load_run_config(run)
        return [cell_of(run, config)], about(config, task_of(config).recorded(config, run.vocabularies))
    manifest = former_manifest(folder, _corpus)
    cells = named_cells(folder, manifest.cells) if manifest is not None else []
    if manifest is None or not cells:
        raise UserError(f"{folder} holds no comparison and is no run; give the --out of a comparison, or a run folder")
    return cells, manifest


def _corpus(config: RunConfig) -> AnyCorpus:
    corpus: AnyCorpus = task_of(config).open(config)
    return corpus


_EVERY_SECONDS = 3.0
_REST = 10.0
"""Times as long as writing the page has taken, before it is written again: the runs need the cores more."""


@dataclass(slots=True)
class LivePage:
    """The report of a comparison's folder or a run's, in one file; nothing else is written.

    Raises UserError where there is no comparison, its corpus cannot be opened, or `file` is another's.
    """

    folder: Path
    file: Path
    clock: Callable[[], float] = time.monotonic
    _begun: tuple[list[Cell], Manifest] = field(init=False)
    _shows: int = -1
    """Which of the changes to the runs the page shows."""
    _written_at: float = -math.inf
    _rest_seconds: float = _EVERY_SECONDS

    def __post_init__(self) -> None:
        refuse_other(self.file)
        self._begun = opened(self.folder)

    def write_if_due(self, changes: int) -> bool:
        """Write the page where something has changed since, and the last time is not too near; whether it was.

        changes: how many there have been.
        """
        if changes == self._shows or self.clock() - self._written_at < self._rest_seconds:
            return False
        # A reader need not look more often than it is written.
        self._write(math.ceil(self._rest_seconds))
        self._shows = changes
        return True

    def write_last(self) -> None:
        """Write the page as it stays: a browser does not load it again."""
        self._write(0)

    def _write(self, reload_seconds: int) -> None:
        begun = self.clock()
        text = render(read(*self._now()), reload_seconds=reload_seconds)
        with disk_errors(f"writing {self.file}"):
            make_folders(self.file.parent)
            write_over(self.file, text)
        self._written_at = self.clock()
        self._rest_seconds = max(_EVERY_SECONDS, _REST * (self._written_at - begun))

    def _now(self) -> tuple[list[Cell], Manifest]:
        """The comparison may have grown; its corpus is not opened again."""
        cells, manifest = self._begun
        if is_run(self.folder):
            return cells, manifest
        grown = read_manifest(self.folder)
        if grown is None:
            names = sorted(file.stem for file in (self.folder / "cells").glob("*.toml"))
            grown = replace(manifest, cells=tuple(names))
        return named_cells(self.folder, grown.cells) or cells, grown
