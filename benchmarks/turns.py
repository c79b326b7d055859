"""Systems that take turns: each in a process of its own, on one core, so that switches and peaks of
memory stay apart.

Rates are per second of the process's CPU time: on an idle core that is the clock's, and on a shared
one it leaves out the time that neighbours took.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normscope.train.device import Precision

Step = Callable[[Any], object]
SHARE_OF_PEAK: dict[Precision, float] = {"fp32": 0.85, "bf16": 0.8}
"""The targets: what a step does of the arithmetic that the best product of the same run does in the
same time.
"""


@dataclass
class Arm:
    """One system, and what was measured of it."""

    system: str
    precision: Precision
    group: str
    """Arms are compared within a group, with its first."""
    make: Callable[[], Step] = field(repr=False)
    """Of this module or another, so that a new process can be sent it."""
    tokens_per_second: list[float] = field(default_factory=list)
    gflops: list[float] = field(default_factory=list)
    """Real-token GFLOP per second; one entry a round, as above."""
    wall_over_cpu: float = 0.0
    """Of the last round; well above 1 means that neighbours took part of the core."""
    peak_mb: float = 0.0


def on_one_core() -> None:
    """This process and those it starts, on the same core and one thread."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def take_turns(
    arms: Sequence[Arm],
    batches: Callable[[], Sequence[Any]],
    *,
    tokens: float,
    flops: float,
    rounds: int,
) -> None:
    """Start the arms one after another, then let them take turns over the batches for `rounds`
    rounds.

    tokens, flops: of all batches together.
    """
    spawn = multiprocessing.get_context("spawn")
    workers = []
    for arm in arms:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_work, args=(theirs, arm.make, batches), daemon=True)
        process.start()
        theirs.close()
        ours.recv()
        workers.append((process, ours))
    for _ in range(rounds):
        for arm, (_, connection) in zip(arms, workers, strict=True):
            connection.send("round")
            cpu, wall = connection.recv()
            arm.tokens_per_second.append(tokens / cpu)
            arm.gflops.append(flops / cpu / 1e9)
            arm.wall_over_cpu = wall / cpu
    for arm, (process, connection) in zip(arms, workers, strict=True):
        connection.send(None)
        arm.peak_mb = connection.recv()
        process.join()


def _work(
    connection: Connection, make: Callable[[], Step], batches: Callable[[], Sequence[Any]]
) -> None:
    """In the arm's process: two passes over the batches untimed, then one timed pass for every
    message but None.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step, all_batches = make(), batches()
    for batch in (*all_batches, *all_batches):  # until the allocator has met every shape
        step(batch)
    connection.send(None)
    while connection.recv() is not None:
        cpu, wall = time.process_time(), time.perf_counter()
        for batch in all_batches:
            step(batch)
        connection.send((time.process_time() - cpu, time.perf_counter() - wall))
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)  # Linux gives KiB


def gemm_rates(shapes: Sequence[tuple[int, int, int]]) -> dict[str, float]:
    """Best GFLOP per second of these products: fp32 by torch's default, fp32 through oneDNN, and
    bf16.
    """
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, rates = matmul.fp32_precision, {}
    try:
        for name, dtype, precision in (
            ("fp32 default", torch.float32, before),
            ("fp32 oneDNN", torch.float32, "bf16"),
            ("bf16", torch.bfloat16, before),
        ):
            matmul.fp32_precision = precision
            rates[name] = max(_rate(m, k, n, dtype) for m, k, n in shapes)
    finally:
        matmul.fp32_precision = before
    return rates


def _rate(m: int, k: int, n: int, dtype: torch.dtype) -> float:
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    out = torch.empty(m, n, dtype=dtype)
    return 2 * m * k * n / min(_seconds(lambda: torch.mm(a, b.T, out=out)) for _ in range(10)) / 1e9


def _seconds(product: Callable[[], Tensor]) -> float:
    start = time.process_time()
    product()
    return time.process_time() - start


def report(arms: Sequence[Arm], samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Print the table and the verdicts; return them as JSON.

    samples: of `gemm_rates`, taken between the groups.
    """
    rates = {name: max(sample[name] for sample in samples) for name in samples[0]}
    peaks: dict[Precision, float] = {
        "fp32": max(rates["fp32 default"], rates["fp32 oneDNN"]),
        "bf16": rates["bf16"],
    }
    print("best GEMM, GFLOP/s: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    print(
        f"{'system':28}{'precision':>10}{'group':>10}{'tokens/s':>10}{'ratio':>8}{'of peak':>9}"
        f"{'peak MB':>9}"
    )
    rows: list[dict[str, Any]] = []
    for arm in arms:
        base = next(a for a in arms if a.group == arm.group)
        rate = statistics.median(arm.tokens_per_second)
        # Round by round, as both arms of a round meet the same neighbours.
        ratio = statistics.median(
            x / y for x, y in zip(arm.tokens_per_second, base.tokens_per_second, strict=True)
        )
        share = statistics.median(arm.gflops) / peaks[arm.precision]
        print(
            f"{arm.system:28}{arm.precision:>10}{arm.group:>10}{rate:>10.0f}{ratio:>8.2f}{share:>9.0%}{arm.peak_mb:>9.0f}"
        )
        row = {name: value for name, value in asdict(arm).items() if name != "make"}
        row |= {"median_tokens_per_second": rate, "ratio": ratio, "share_of_peak": share}
        if arm is not base:
            least = SHARE_OF_PEAK[arm.precision]
            row |= {"target": f"{least:.0%} of the peak", "reached": share >= least}
            row |= {"memory_not_above": arm.peak_mb <= base.peak_mb}
        rows.append(row)
    for row in rows:
        if "target" in row:
            speed = "reached" if row["reached"] else "missed"
            memory = "not above" if row["memory_not_above"] else "above"
            print(
                f"{row['precision']} {row['group']}: {row['target']} {speed}; memory {memory} the "
                "first's"
            )
    return {"gemm_gflops": rates, "arms": rows}


def compare_steps(
    description: str | None,
    *,
    groups: Sequence[Sequence[Arm]],
    make_batches: Callable[[int], Sequence[Any]],
    tokens_of: Callable[[Any], int],
    shapes: Sequence[tuple[int, int, int]],
) -> None:
    """The command line of a benchmark of training steps: every group takes turns on the same
    batches, and is reported.

    description: the module's. make_batches: so many batches, each with `flops()`. tokens_of: those
    that are counted.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed passes over the batches (default 3)"
    )
    parser.add_argument("--quick", action="store_true", help="one round of one batch")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    rounds, count = (1, 1) if options.quick else (options.rounds, 2)
    on_one_core()
    batches = partial(make_batches, count)
    tokens, flops = sum(map(tokens_of, batches())), sum(batch.flops() for batch in batches())
    samples = [gemm_rates(shapes)]
    for group in groups:
        take_turns(group, batches, tokens=tokens, flops=flops, rounds=rounds)
        samples.append(gemm_rates(shapes))
    result = report([arm for group in groups for arm in group], samples)
    if options.json:
        save(result, options.json)


def save(result: dict[str, Any], file: Path) -> None:
    """With what it was measured on."""
    machine = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    file.write_text(
        json.dumps({"environment": machine} | result, indent=1) + "\n", encoding="utf-8"
    )
