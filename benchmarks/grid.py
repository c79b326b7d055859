"""What the driver of a grid costs: runs that end at once, by thousands, so that all of the time is its own.

`python benchmarks/grid.py [COUNT …]` prints, for each number of runs, seconds and memory of the driver.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from normscope.cli.console import stderr
from normscope.cli.display import GridDisplay
from normscope.compare import pool
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.runs.config import load
from normscope.train.metrics import LogMark, MetricsLog

UPDATES = 20
POLLS = 3
"""How often a run is looked at before it ends; with each look it has logged some updates."""


class Stub:
    """Stands for the process of a run: it logs some updates whenever it is looked at."""

    seconds = 0.0
    """Of all of them, which is not the driver's time."""

    def __init__(self, cell: Cell, words: Sequence[str]) -> None:
        begun = time.perf_counter()
        cell.folder.path.mkdir(parents=True)
        self._log, self._update = MetricsLog(cell.folder.metrics_file, LogMark()), 0
        Stub.seconds += time.perf_counter() - begun

    def poll(self) -> int | None:
        begun, code = time.perf_counter(), None
        for _ in range(-(-UPDATES // POLLS)):
            if self._update < UPDATES:
                self._update += 1
                self._log.append({"event": "update", "update": self._update, "nll_nats": 5.0})
        if self._update == UPDATES:
            self._log.append({"event": "validation", "update": UPDATES, "nll_nats": 4.0})
            self._log.append({"event": "finished", "update": UPDATES})
            self._log.close()
            code = 0
        Stub.seconds += time.perf_counter() - begun
        return code


def cells(folder: Path, count: int) -> list[Cell]:
    """So many seeds of one configuration."""
    grid = Grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=count)
    return grid.cells(load(None, [f"train.duration={UPDATES}", "train.threads=1"]), folder)


def main(counts: Sequence[int]) -> None:
    """Print a row for each number of runs and each way of running them."""
    print(f"{'runs':>8}{'at once':>10}{'writing s':>11}{'driving s':>11}{'ms a run':>10}{'peak MB':>9}")
    for count in counts:
        for at_once in (100, count):
            with tempfile.TemporaryDirectory() as folder, GridDisplay(stderr()) as display:
                begun = time.perf_counter()
                made = cells(Path(folder), count)
                write_configs(made)
                written, Stub.seconds = time.perf_counter(), 0.0
                with patch.object(pool, "process_of", Stub):
                    states = pool.run_cells(made, at_once=at_once, watch=display)
                driving = time.perf_counter() - written - Stub.seconds
                assert all(state.status == "finished" for state in states)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux gives KiB
            print(
                f"{count:>8}{at_once:>10}{written - begun:>11.1f}{driving:>11.1f}"
                f"{1000 * driving / count:>10.1f}{peak_mb:>9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1_000])
