"""Cells trained side by side, on whichever engine, or one by one in this process."""

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..engines.choosing import EngineSettings, Needs
from ..engines.driving import Errand, drive
from ..engines.opening import opened as opened_engine
from ..engines.seam import Job, said_at_the_end
from ..errors import UserError, option
from ..files import disk_errors, make_folders
from ..limits.kinds import TEXT
from ..limits.names import refuse_leading_out
from ..limits.ours import refuse_other
from ..processes.surroundings import LOCK
from ..settings.tables import as_json, as_table
from ..train.device import available_cores
from ..train.together.group import ALONE, Group
from .alone import CELL_FILE, COUNT_FILE, AskedTraining
from .cells import TuningCell
from .opened import FineTuningConfig, OpenedSearch

Told = Callable[[int], None]
"""A function that is called now and then with the number of updates that have been trained."""
_LOOK_SECONDS = 0.5
_TRAININGS = "trainings"
"""The folder, in that of a search, in which separate processes work."""
_MODULES = ("transformers.trainer", "transformers.training_args", "accelerate")
"""The modules that every training imports beside those that all of ours do."""


def train_cells(
    opened: OpenedSearch,
    cells: Sequence[TuningCell],
    engine_asked: EngineSettings,
    processes: int,
    told: Told,
    group: Group = ALONE,
) -> None:
    """Trains every cell and keeps what it came to, as soon as it is there.

    processes: cells at a time; 0 for as many as the engine has room for. group: of the processes
    that train every cell together, one cell after the other. Raises UserError naming
    the trainings that failed, when all others are kept, and Interrupted.
    """
    if not cells:
        return
    if group.size > 1:
        _one_by_one(opened, cells, told, group)
        return
    needs = Needs(threads=1, device=opened.device, cores=available_cores())
    with closing(opened_engine(engine_asked, needs, processes)) as engine:
        if min(engine.at_once or len(cells), len(cells)) == 1 and not engine_asked.elsewhere:
            _one_by_one(opened, cells, told, group)
            return
        trainings = [_Training(opened.config, cell) for cell in cells]

        def watch() -> None:
            # Time is reckoned from the first update on: before it, libraries are loaded.
            updates = sum(one.updates for one in trainings)
            if updates:
                told(updates)

        drive([one for one in trainings if not one.is_kept()], engine, watch)
    failed = [
        f"{one.cell.name}: {one.message} (log: {one.log})" for one in trainings if one.message
    ]
    if failed:
        raise UserError(
            "\n".join([*failed, "what is finished is kept: the same command trains the rest"])
        )


def _one_by_one(
    opened: OpenedSearch, cells: Sequence[TuningCell], told: Told, group: Group
) -> None:
    done, shown = 0, time.monotonic()

    def updated() -> None:
        nonlocal done, shown
        done += 1
        if time.monotonic() - shown > _LOOK_SECONDS:
            shown = time.monotonic()
            told(done)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes of an engine have it: the same bits
    try:
        for cell in cells:
            opened.train(cell, updated, group)
            told(done)
    finally:
        torch.set_num_threads(threads)


@dataclass(slots=True)
class _Training(Errand):
    """A cell that a process of its own trains, in a folder of its own."""

    config: FineTuningConfig
    cell: TuningCell
    updates: int = 0
    """The updates that are made, as far as is known here."""
    message: str = ""
    """The reason why it has failed; empty where it has not."""

    @property
    def folder(self) -> Path:
        """The folder of the process."""
        return self.cell.file.parents[1] / _TRAININGS / self.cell.name

    @property
    def log(self) -> Path:
        """The file with the output of the process."""
        return self.cell.file.parents[1] / "logs" / f"{self.cell.name}.txt"

    def next_job(self) -> Job:
        """Returns its training. Raises UserError where a file of another's is in its way."""
        with disk_errors(f"writing into {self.cell.file.parents[1]}"):
            for above in (self.log.parent, self.folder.parent, self.folder):
                refuse_leading_out(above)
            if not self.folder.exists():
                refuse_other(self.log, TEXT)  # which is added to
            make_folders(self.log.parent)
            make_folders(self.folder)
        wanted = AskedTraining(
            config=self.config.anywhere(),
            setting=self.cell.setting,
            seed=self.cell.seed,
            asked=self.cell.asked,
        )
        return Job(
            name=self.cell.name,
            words=["-m", "normscope.finetune.alone", str(self.folder)],
            configuration=as_json(as_table(wanted)),
            directory=Path.cwd(),
            folder=self.folder,
            log=self.log,
            threads=1,
            modules=_MODULES,
        )

    def begin(self, *, queued: bool) -> None:
        """Notes that the training begins, as every errand does."""

    def look(self) -> None:
        """Takes in how many updates it says it has made."""
        with contextlib.suppress(OSError, ValueError):
            count = int((self.folder / COUNT_FILE).read_text(encoding="utf-8"))
            self.updates = min(count, self.cell.updates)

    def end(self, code: int) -> bool:
        """Keeps what it came to."""
        if code != 0:
            self.fail(_why(code, self.log))
        elif not self.is_kept():
            self.fail(f"nothing was left in {self.folder}")
        return False

    def fail(self, why: str) -> None:
        """Notes why the training failed, as every errand does."""
        self.message = why

    def is_kept(self) -> bool:
        """Tells whether the training is finished; its outcome is then put with the other cells."""
        there = replace(self.cell, file=self.folder / CELL_FILE).scores()
        if there is None:
            return False
        self.cell.write(there)
        self.updates = self.cell.updates
        for name in (CELL_FILE, COUNT_FILE, LOCK):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a file of the user's keeps it
            self.folder.rmdir()
        return True


def _why(code: int, log: Path) -> str:
    said = said_at_the_end(code, log)
    if code < 0:
        said += f"; perhaps for want of memory: give a smaller {option('processes')}"
    return said
