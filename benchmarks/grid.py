"""What the driver of a grid costs: runs that end at once, by thousands, so that all of the time is
its own.

`python benchmarks/grid.py [COUNT …]` prints, for each number of runs, what the driver takes:
seconds of the processor for making and writing the configurations and for driving the runs, seconds
by the clock in which it waits for the disk to synchronise, how often it does, and memory.
"""

import itertools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from normscope.cli.console import stderr
from normscope.cli.display import GridDisplay
from normscope.compare import pool
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.engines import local
from normscope.engines.seam import Job
from normscope.runs.config import load
from normscope.train import RunFolder
from normscope.train.metrics import LogMark, MetricsLog

UPDATES = 20
POLLS = 3
"""How often a run is looked at before it ends; with each look it has logged some updates."""


class Stub:
    """Stands for the process of a run: it logs some updates whenever it is looked at."""

    seconds = 0.0
    """Of all of them, which is not the driver's time."""

    def __init__(self, job: Job, more: Mapping[str, str]) -> None:
        begun = time.process_time()
        folder = RunFolder(job.folder)
        folder.path.mkdir(parents=True)
        folder.config_file.write_text(job.configuration, encoding="utf-8")
        self._log, self._update = MetricsLog(folder.metrics_file, LogMark()), 0
        Stub.seconds += time.process_time() - begun

    def poll(self) -> int | None:
        begun, code = time.process_time(), None
        for _ in range(-(-UPDATES // POLLS)):
            if self._update < UPDATES:
                self._update += 1
                counts = {"update": self._update, "lr": 1e-3, "epoch": self._update / UPDATES}
                self._log.append(
                    {"event": "update", "nll_nats": 5.0, "gradient_norm": 1.0} | counts
                )
        if self._update == UPDATES:
            self._log.append({"event": "validation", "update": UPDATES, "nll_nats": 4.0})
            self._log.append({"event": "finished", "update": UPDATES, "best_update": UPDATES})
            self._log.close()
            code = 0
        Stub.seconds += time.process_time() - begun
        return code


def cells(folder: Path, count: int) -> list[Cell]:
    """So many seeds of one configuration."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=count
    )
    return grid.cells(load(None, [f"train.duration={UPDATES}", "train.threads=1"]), folder)


@contextmanager
def stubs() -> Iterator[None]:
    """Within it, runs of this machine are stubs."""
    with (
        patch.object(local, "forks", lambda job: False),
        patch.object(local, "begun", Stub),
    ):
        yield


class Synced:
    """Stands for `os.fsync`, and counts."""

    def __init__(self) -> None:
        self.times, self.seconds, self._fsync = 0, 0.0, os.fsync

    def __call__(self, descriptor: int) -> None:
        begun = time.perf_counter()
        self._fsync(descriptor)
        self.times, self.seconds = self.times + 1, self.seconds + time.perf_counter() - begun


def main(counts: Sequence[int]) -> None:
    """Print a row for each number of runs and each way of running them."""
    print("    runs  at once  making s  writing s  synced  waited s  driving s    MB")
    for count in counts:
        for at_once in (100, count):
            synced = Synced()
            with tempfile.TemporaryDirectory() as folder, GridDisplay(stderr()) as display:
                times = [time.process_time()]
                made = cells(Path(folder), count)
                times.append(time.process_time())
                with patch.object(os, "fsync", synced):
                    write_configs(made)
                times.append(time.process_time())
                Stub.seconds = 0.0
                with stubs():
                    engine = local.OnThisMachine(at_once)
                    states = pool.run_cells(made, engine=engine, watch=display)
                times.append(time.process_time() - Stub.seconds)
                assert all(state.status == "finished" for state in states)
            making, writing, driving = (
                after - before for before, after in itertools.pairwise(times)
            )
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux gives KiB
            print(
                f"{count:>8}{at_once:>9}{making:>10.1f}{writing:>11.1f}{synced.times:>8}{synced.seconds:>10.1f}"
                f"{driving:>11.1f}{peak_mb:>6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1_000])
