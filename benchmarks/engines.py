"""What each engine costs the command that drives a grid, beside its library alone: cells whose jobs
do nothing, by thousands.

`python benchmarks/engines.py ENGINE [COUNT …]`, of local, ray and slurm, prints for each number of
cells the processor's seconds of this process with our driver and with the library alone, their
ratio, and the driver's exponent of growth from the row above. On this machine the library is
concurrent.futures, whose every task has a process of its own too, forked from a server with the
same modules; Slurm's commands are stand-ins.
"""

import concurrent.futures
import dataclasses
import itertools
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from normscope.cli.console import stderr
from normscope.cli.display import GridDisplay
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import run_cells
from normscope.engines import forking
from normscope.engines.choosing import RaySettings, SlurmSettings
from normscope.engines.local import OnThisMachine
from normscope.engines.seam import Engine, Future, Job
from normscope.runs.config import load

AT_ONCE = 8
NOTHING = ("-m", "normscope.errors")
"""A module of ours that does nothing when it is run: a worker forks it as it does a training."""
LOOKS = 3
"""How often Slurm's queue is seen full before all jobs have ended."""


class Dry(Engine):
    """An engine that is given jobs of nothing instead."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.at_once, self.queues, self.outlived = engine.at_once, engine.queues, engine.outlived

    def start(self, job: Job) -> Future:
        """As of any engine."""
        return self.engine.start(dataclasses.replace(job, words=NOTHING))

    def stop(self, futures: Sequence[Future]) -> None:
        """As of any engine."""
        self.engine.stop(futures)

    def close(self) -> None:
        """As of any engine."""
        self.engine.close()


def cells(folder: Path, count: int) -> list[Cell]:
    """So many seeds of one configuration, written down."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=count
    )
    made = grid.cells(load(None, ["train.threads=1"]), folder)
    write_configs(made)
    return made


def driven(made: list[Cell], engine: Engine) -> float:
    """The processor's seconds of this process until the driver has seen all cells end."""
    begun = time.process_time()
    with GridDisplay(stderr()) as display, closing(Dry(engine)) as dry:
        states = run_cells(made, engine=dry, watch=display)
    assert {state.status for state in states} == {"finished"}
    return time.process_time() - begun


def nothing(*_: Any) -> int:
    """What a task does."""
    return 0


def on_this_machine(made: list[Cell]) -> tuple[float, float]:
    """Seconds of our driver, and of the library alone."""
    ours = driven(made, OnThisMachine(AT_ONCE))
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([*forking._NEEDED, __name__])
    begun = time.process_time()
    with concurrent.futures.ProcessPoolExecutor(
        AT_ONCE, mp_context=server, max_tasks_per_child=1
    ) as pool:
        ended = [pool.submit(nothing, cell.configuration) for cell in made]
        assert sum(one.result() for one in concurrent.futures.as_completed(ended)) == 0
    return ours, time.process_time() - begun


def on_ray(made: list[Cell]) -> tuple[float, float]:
    """The same of a Ray of this machine."""
    import ray

    from normscope.engines import ray as ours

    if not ray.is_initialized():
        ray.init(num_cpus=AT_ONCE, include_dashboard=False, log_to_driver=False)
    with patch.object(ours, "_run", nothing):
        engine = ours.OnRay(RaySettings())
        seconds = driven(made, engine)
    task = ray.remote(num_cpus=1, max_retries=3)(nothing)
    begun = time.process_time()
    waiting = [task.remote(cell.configuration) for cell in made]
    while waiting:
        ended, waiting = ray.wait(waiting, num_returns=min(100, len(waiting)))
        assert sum(ray.get(ended)) == 0
    return seconds, time.process_time() - begun


def on_slurm(made: list[Cell]) -> tuple[float, float]:
    """The same of stand-ins for Slurm's commands."""
    import submitit

    from normscope.engines import slurm as ours

    settings = SlurmSettings()
    folder = made[0].above.absolute()
    with stand_ins(folder, len(made), settings.array_size):
        engine = ours.OnSlurm(settings)
        queue, left, excluded = engine._queue, itertools.count(), [0.0]

        def ending() -> set[str]:
            """All jobs, some times; then none, and their exit codes are there."""
            found = queue()
            if next(left) < LOOKS:
                return found
            begun = time.process_time()
            for future in engine._open:
                ours._keep_code(future.job, 0)
            excluded[0] += time.process_time() - begun
            return set()

        with patch.object(engine, "_queue", ending), patch.object(ours, "_LOOK_SECONDS", 0.5):
            seconds = driven(made, engine) - excluded[0]
        begun = time.process_time()
        for first in range(0, len(made), settings.array_size):
            executor = submitit.SlurmExecutor(folder / "alone")
            executor.update_parameters(job_name="alone", time=240, array_parallelism=1000)
            with executor.batch():
                some = made[first : first + settings.array_size]
                for cell in some:
                    executor.submit(nothing, cell.configuration)
        return seconds, time.process_time() - begun


@contextmanager
def stand_ins(folder: Path, count: int, array_size: int) -> Iterator[None]:
    """Within it, `sbatch` gives numbers and `squeue` has all jobs in the queue."""
    commands, number, queue = (folder / name for name in ("commands", "number", "queue"))
    commands.mkdir()
    number.write_text("0")
    queue.write_text("".join(f"{at // array_size + 1}_{at % array_size}\n" for at in range(count)))
    counting = f"n=$(($(cat {number}) + 1)); echo $n > {number}; echo Submitted batch job $n"
    for name, line in {"sbatch": counting, "squeue": f"cat {queue}", "srun": "false"}.items():
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    with patch.dict(os.environ, PATH=f"{commands}:{os.environ['PATH']}"):
        yield


ENGINES: dict[str, Callable[[list[Cell]], tuple[float, float]]] = {
    "local": on_this_machine,
    "ray": on_ray,
    "slurm": on_slurm,
}


def main(name: str, counts: Sequence[int]) -> None:
    """Print a row for each number of cells."""
    print("engine    cells  making s  driver s  alone s  ratio  exponent  clock s")
    before: tuple[int, float] | None = None
    for count in counts:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            begun, since = time.process_time(), time.monotonic()
            made = cells(folder, count)
            making = time.process_time() - begun
            ours, alone = ENGINES[name](made)
            clock = time.monotonic() - since
        exponent = math.nan
        if before is not None:
            exponent = math.log(ours / before[1]) / math.log(count / before[0])
        before = (count, ours)
        print(
            f"{name:<7}{count:>8}{making:>10.2f}{ours:>10.2f}{alone:>9.2f}{ours / alone:>7.2f}"
            f"{exponent:>10.2f}{clock:>9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], [int(word) for word in sys.argv[2:]] or [1_000, 10_000])
