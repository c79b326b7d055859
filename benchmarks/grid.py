"""What the driver of a grid costs: runs that end at once, by thousands, so that all of the time is its own.

`python benchmarks/grid.py [COUNT …]` prints, for each number of runs, seconds and memory of the driver.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from normscope.cli.console import stderr
from normscope.cli.display import GridDisplay
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import run_cells
from normscope.engines.seam import Engine, Job
from normscope.runs.config import load
from normscope.train.metrics import LogMark, MetricsLog

UPDATES = 20
POLLS = 3
"""How often a run is looked at before it ends; with each look it has logged some updates."""


class Stubs(Engine[dict[str, int]]):
    """Jobs that log some updates whenever they are looked at, without a process."""

    def __init__(self, at_once: int | None) -> None:
        self.at_once = at_once
        self.seconds = 0.0
        """Its own, which is not the driver's."""
        self._logs: dict[int, MetricsLog] = {}

    def start(self, job: Job) -> dict[str, int]:
        begun = time.perf_counter()
        job.folder.mkdir(parents=True)
        running = {"number": len(self._logs), "update": 0}
        self._logs[running["number"]] = MetricsLog(job.folder / "metrics.jsonl", LogMark())
        self.seconds += time.perf_counter() - begun
        return running

    def poll(self, running: dict[str, int]) -> int | None:
        begun = time.perf_counter()
        log, code = self._logs[running["number"]], None
        for _ in range(-(-UPDATES // POLLS)):
            if running["update"] < UPDATES:
                running["update"] += 1
                log.append({"event": "update", "update": running["update"], "nll_nats": 5.0})
        if running["update"] == UPDATES:
            log.append({"event": "validation", "update": UPDATES, "nll_nats": 4.0})
            log.append({"event": "finished", "update": UPDATES})
            log.close()
            code = 0
        self.seconds += time.perf_counter() - begun
        return code

    def stop(self, running: Sequence[dict[str, int]]) -> None:
        return None


def cells(folder: Path, count: int) -> list[Cell]:
    """So many seeds of one configuration."""
    grid = Grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=count)
    return grid.cells(load(None, [f"train.duration={UPDATES}", "train.threads=1"]), folder)


def main(counts: Sequence[int]) -> None:
    """Print a row for each number of runs and each way of running them."""
    print(f"{'runs':>8}{'at once':>10}{'writing s':>11}{'driving s':>11}{'ms a run':>10}{'peak MB':>9}")
    for count in counts:
        for at_once in (100, None):
            with tempfile.TemporaryDirectory() as folder, GridDisplay(stderr()) as display:
                begun = time.perf_counter()
                made = cells(Path(folder), count)
                write_configs(made)
                written, engine = time.perf_counter(), Stubs(at_once)
                states = run_cells(made, engine=engine, watch=display)
                driving = time.perf_counter() - written - engine.seconds
                assert all(state.status == "finished" for state in states)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux gives KiB
            print(
                f"{count:>8}{at_once or 'all':>10}{written - begun:>11.1f}{driving:>11.1f}"
                f"{1000 * driving / count:>10.1f}{peak_mb:>9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1_000])
