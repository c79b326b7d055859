"""The pool's work in this process, for tests that look at the runs: each of its processes would
import torch anew.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from normscope.cli import main as cli
from normscope.compare.state import CellState
from normscope.runs.run import train_run
from normscope.train import StopRule


def run_cells(
    cells: Iterable[Any],
    *,
    evaluate: Callable[[Any], list[list[str]]] | None = None,
    stop_when: StopRule | None = None,
    **options: object,
) -> list[CellState]:
    """As `normscope.compare.pool.run_cells`, one cell after the other."""
    states = [CellState(cell) for cell in cells]
    for state in states:
        train_run(state.cell.config, state.cell.folder.path, stop_when=stop_when)
        for command in evaluate(state.cell) if evaluate else ():
            _run(command)
        state.read_new_events()
    return states


def _run(command: list[str]) -> None:
    """What would be words after the Python interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command[1:])
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert end.value.code in (0, None), command
