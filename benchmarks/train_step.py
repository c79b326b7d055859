"""Training speed and memory beside torch.nn.Transformer: real steps at the paper's size on one CPU thread.

    python benchmarks/train_step.py [--rounds 3] [--quick] [--json FILE]

Every arm is a process of its own, so that switches and peaks of memory stay apart; arms take turns, a round each. Rates
are per second of the process's CPU time: on an idle core that is the clock's, and on a shared one it leaves out the
time that neighbours took.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normscope.train.device import Precision
from step_systems import PlacementName, System, make_step_batches, normscope_step, torch_step

TARGETS: dict[Precision, float] = {"fp32": 2.2, "bf16": 3.5}
"""Times torch.nn.Transformer's fp32 default."""
SHARE_OF_PEAK = 0.75
"""The fp32 target where torch's default products already run at the peak: no ratio is to be had from products there."""


@dataclass
class Arm:
    """One system on one placement, and what was measured of it."""

    system: System
    precision: Precision
    placement: PlacementName
    tokens_per_second: list[float] = field(default_factory=list)
    gflops: list[float] = field(default_factory=list)
    """Real-token GFLOP per second; one entry a round, as above."""
    wall_over_cpu: float = 0.0
    """Of the last round; well above 1 means that neighbours took part of the core."""
    peak_mb: float = 0.0


ARMS: tuple[tuple[System, Precision], ...] = (
    ("torch.nn.Transformer", "fp32"),
    ("normscope", "fp32"),
    ("normscope", "bf16"),
)


def work(connection: Connection, system: System, precision: Precision, placement: PlacementName, count: int) -> None:
    """In the arm's process: two passes over the batches untimed, then one timed pass for every message but None."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = torch_step(placement) if system == "torch.nn.Transformer" else normscope_step(placement, precision)
    batches = make_step_batches(count)
    for batch in (*batches, *batches):  # until the allocator has met every shape
        step(batch)
    connection.send(None)
    while connection.recv() is not None:
        cpu, wall = time.process_time(), time.perf_counter()
        for batch in batches:
            step(batch)
        connection.send((time.process_time() - cpu, time.perf_counter() - wall))
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)  # Linux gives KiB


def measure(placement: PlacementName, rounds: int, count: int) -> list[Arm]:
    """Start the arms one after another, then let them take turns for `rounds` rounds."""
    tokens = sum(batch.target_tokens for batch in make_step_batches(count))
    flops = sum(batch.flops() for batch in make_step_batches(count))
    spawn = multiprocessing.get_context("spawn")
    arms, workers = [Arm(system, precision, placement) for system, precision in ARMS], []
    for arm in arms:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=work, args=(theirs, arm.system, arm.precision, placement, count), daemon=True)
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
    return arms


def gemm_rates() -> dict[str, float]:
    """Best GFLOP per second of this model's products: fp32 by torch's default, fp32 through oneDNN, and bf16."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, rates = matmul.fp32_precision, {}
    try:
        for name, dtype, precision in (
            ("fp32 default", torch.float32, before),
            ("fp32 oneDNN", torch.float32, "bf16"),
            ("bf16", torch.bfloat16, before),
        ):
            matmul.fp32_precision = precision
            rates[name] = max(_rate(m, k, n, dtype) for m, k, n in ((4000, 512, 512), (4000, 512, 1024), (1024,) * 3))
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


def report(arms: list[Arm], rates: dict[str, float]) -> dict[str, Any]:
    """Print the table and the verdicts; return them as JSON."""
    peaks: dict[Precision, float] = {"fp32": max(rates["fp32 default"], rates["fp32 oneDNN"]), "bf16": rates["bf16"]}
    by_share = rates["fp32 default"] >= 0.9 * peaks["fp32"]
    print("best GEMM, GFLOP/s: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    print(f"{'system':22}{'precision':>10}{'placement':>10}{'tokens/s':>10}{'ratio':>8}{'of peak':>9}{'peak MB':>9}")
    rows: list[dict[str, Any]] = []
    for arm in arms:
        base = next(a for a in arms if a.placement == arm.placement and a.system == "torch.nn.Transformer")
        rate = statistics.median(arm.tokens_per_second)
        # Round by round, as both arms of a round meet the same neighbours.
        ratio = statistics.median(x / y for x, y in zip(arm.tokens_per_second, base.tokens_per_second, strict=True))
        share = statistics.median(arm.gflops) / peaks[arm.precision]
        print(
            f"{arm.system:22}{arm.precision:>10}{arm.placement:>10}{rate:>10.0f}{ratio:>8.2f}{share:>9.0%}"
            f"{arm.peak_mb:>9.0f}"
        )
        row = asdict(arm) | {"median_tokens_per_second": rate, "ratio": ratio, "share_of_peak": share}
        if arm is not base:
            in_share = by_share and arm.precision == "fp32"
            reached = share >= SHARE_OF_PEAK if in_share else ratio >= TARGETS[arm.precision]
            target = f"{SHARE_OF_PEAK:.0%} of the peak" if in_share else f"{TARGETS[arm.precision]} times torch's fp32"
            row |= {"target": target, "reached": reached, "memory_not_above": arm.peak_mb <= base.peak_mb}
        rows.append(row)
    for row in rows:
        if "target" in row:
            speed = "reached" if row["reached"] else "missed"
            memory = "not above" if row["memory_not_above"] else "above"
            print(f"{row['precision']} {row['placement']}: {row['target']} {speed}; memory {memory} torch's")
    return {"gemm_gflops": rates, "arms": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="timed passes over the batches (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of one batch")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    rounds, count = (1, 1) if options.quick else (options.rounds, 2)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, for every arm the same
    torch.set_num_threads(1)
    arms: list[Arm] = []
    samples = [gemm_rates()]
    placements: tuple[PlacementName, ...] = ("post", "pre")
    for placement in placements:
        arms += measure(placement, rounds, count)
        samples.append(gemm_rates())
    result = report(arms, {name: max(sample[name] for sample in samples) for name in samples[0]})
    if options.json:
        machine = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({"environment": machine} | result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
