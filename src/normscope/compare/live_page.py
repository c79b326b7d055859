"""A page about runs that are watched, written anew while they go on."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..files import disk_errors, make_folders, write_atomically
from ..report.comparison.page import render
from ..settings.files import is_run
from .folders import opened
from .grid import Cell
from .manifest import Manifest, named_cells, read_manifest
from .reading.page import read

_EVERY_SECONDS = 3.0
_REST = 10.0
"""Times as long as writing the page has taken, before it is written again: the runs need the cores more."""


@dataclass(slots=True)
class LivePage:
    """The report of a comparison's folder or a run's, in one file; nothing else is written.

    Raises UserError where there is no comparison, or its corpus cannot be opened.
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
            write_atomically(self.file, text)
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
