"""What a cell of one update of a tiny model costs beyond its training, on this machine.

`python benchmarks/cell.py [COUNT]` prints the median processor's seconds, and seconds by the clock,
of so many cells, one after the other: as jobs of a worker that forks them, as processes from
nothing, and as tasks of concurrent.futures with a process each, forked from a server that has the
same modules. What is beyond the training is what each takes more than the same training in a
process that has trained before.
"""

import concurrent.futures
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import job_of, train_command
from normscope.data import opening
from normscope.engines import forking
from normscope.engines.seam import process_of
from normscope.engines.worker import Worker
from normscope.runs.config import load
from normscope.runs.run import train_run

TINY = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.encoder_blocks=1",
    "model.decoder_blocks=1",
    "data.toy_pairs=300",
    "data.max_tokens=512",
    "train.threads=1",
    "train.device=cpu",
    "train.duration=1",
    "train.validate_every=1",
    "train.checkpoint_every=1",
)
"""One update, one validation and one checkpoint."""

Spent = Callable[[], float]
"""The processor's seconds so far."""


def cells(folder: Path, count: int) -> list[Cell]:
    """So many seeds, written down."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=count
    )
    made = grid.cells(load(None, list(TINY)), folder)
    write_configs(made)
    return made


def medians(made: Sequence[Cell], do: Callable[[Cell], None], spent: Spent) -> tuple[float, float]:
    """The processor's seconds and those of the clock that a cell takes; the first one, with which
    whatever is shared by all begins, is not counted.
    """
    processor, clock = [], []
    for cell in made:
        before, since = spent(), time.monotonic()
        do(cell)
        processor.append(spent() - before)
        clock.append(time.monotonic() - since)
    return statistics.median(processor[1:]), statistics.median(clock[1:])


def of_process(number: int) -> float:
    """What a process and all that it has waited for have taken."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, cutime and cstime, as proc(5) has them.
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def of_children() -> float:
    """What the processes that this one has waited for have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trained(cell: Cell) -> None:
    """Trains it in this process, which is to have no corpus open."""
    for made in vars(opening).values():
        if hasattr(made, "cache_clear"):
            made.cache_clear()
    train_run(cell.config, cell.folder.path)


def given(cell: Cell) -> None:
    """Trains it where its configuration is all that is known."""
    train_run(cell.config, cell.folder.path)


def forked(made: Sequence[Cell]) -> tuple[float, float]:
    """By a worker, as `--engine local` has one."""
    worker = Worker(1)

    def do(cell: Cell) -> None:
        job = job_of(cell, train_command(cell, None, "/dev/stdin"))
        assert worker.start(job, {}).wait() == 0

    try:
        return medians(made, do, lambda: of_process(worker._process.pid))
    finally:
        worker.close()


def from_nothing(made: Sequence[Cell]) -> tuple[float, float]:
    """Each by an interpreter of its own."""

    def do(cell: Cell) -> None:
        assert process_of(job_of(cell, train_command(cell, None, "/dev/stdin")), {}).wait() == 0

    return medians(made, do, of_children)


def in_the_library(made: Sequence[Cell]) -> tuple[float, float]:
    """By concurrent.futures: the server is asked for what it and its children have taken."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*forking._NEEDED, __name__])
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=context, max_tasks_per_child=1
    ) as pool:
        # A process ends a little after its task's result is here, and is counted when the next
        # has begun: medians of many do not show it.
        server = pool.submit(os.getppid).result()
        return medians(
            made, lambda cell: pool.submit(given, cell).result(), lambda: of_process(server)
        )


def here(made: Sequence[Cell]) -> tuple[float, float]:
    """Nothing but the training."""
    return medians(made, trained, time.process_time)


WAYS: Mapping[str, Callable[[Sequence[Cell]], tuple[float, float]]] = {
    "training alone": here,
    "worker": forked,
    "concurrent.futures": in_the_library,
    "process from nothing": from_nothing,
}
"""The first is what all others are held against."""


def main(count: int) -> None:
    """Print a row for each way."""
    print("way                   processor s  beyond s  clock s")
    training = 0.0
    for name, measure in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            processor, clock = measure(cells(Path(folder), count + 1))
        training = training or processor
        print(f"{name:<22}{processor:>11.3f}{processor - training:>10.3f}{clock:>9.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
