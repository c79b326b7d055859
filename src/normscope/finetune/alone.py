"""A training of a search in a process of its own: `python -m normscope.finetune.alone FOLDER`, with
what it is at the standard input.

It has the folder while it trains, and leaves there what it came to. It has no checkpoints: where it
is killed, the next one begins anew.
"""

import contextlib
import json
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..files import disk_errors, make_folders
from ..processes.surroundings import Held, hold, hold_lifeline
from ..settings.validation import validated
from ..signals import ending_in_one_line
from .cells import TuningCell, TuningSetting
from .opened import FineTuningConfig, open_search

CELL_FILE = "cell.json"
"""The file, in the folder of a training, with its outcome: the file of its cell."""
COUNT_FILE = "updates.txt"
"""The file beside it with the number of updates that are made, written now and then."""
_COUNT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTraining:
    """The training that a process is asked for."""

    config: FineTuningConfig
    """The settings, with paths that do not depend on a current folder."""
    setting: TuningSetting
    seed: int
    asked: Mapping[str, Any]
    """The settings that its numbers depend on, as `TuningCell.asked` has them where the search was
    begun.
    """


def main() -> None:
    """Trains. Exit codes: 0 done, 2 the user's mistake; 128 and a signal's number where one ends
    it.
    """
    with ending_in_one_line():
        hold_lifeline()
        try:
            _train(Path(sys.argv[1]), sys.stdin.read())
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)


def _train(folder: Path, text: str) -> None:
    wanted = validated(AskedTraining, json.loads(text))
    torch.set_num_threads(1)  # the same bits on every number of cores
    with contextlib.ExitStack() as held:
        with disk_errors(f"opening {folder}"):
            make_folders(folder)
        try:
            held.enter_context(hold(folder))
        except Held as error:
            raise UserError(
                f"{folder} is being trained by another process{error.holder}; wait for it, or stop "
                "it"
            ) from error
        opened = open_search(wanted.config)
        cell = opened.cell(wanted.setting, wanted.seed, folder / CELL_FILE)
        _refuse_other_files(cell, wanted.asked)
        if cell.scores() is None:
            opened.train(cell, _Count(folder / COUNT_FILE))


def _refuse_other_files(cell: TuningCell, asked: Mapping[str, Any]) -> None:
    """Checks that the encoder and the rows are those that the search was begun with. Raises
    UserError where they are not.
    """
    for key, value in asked.items():
        if cell.asked[key] != value:
            raise UserError(
                f"on {socket.gethostname()}, {key.replace('_', ' ')} is {cell.asked[key]!r}, and "
                f"{value!r} where the command was given: every machine needs the same files under "
                "the same paths"
            )


class _Count:
    """Counts updates, and writes down how many there are."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.updates = 0
        self._written = 0.0

    def __call__(self) -> None:
        self.updates += 1
        if time.monotonic() - self._written < _COUNT_SECONDS:
            return
        self._written = time.monotonic()
        # Nothing but what is shown hangs on it.
        with contextlib.suppress(OSError):
            self.file.write_text(str(self.updates), encoding="utf-8")


if __name__ == "__main__":
    main()
