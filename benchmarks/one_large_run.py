"""A step of BERT-base's size by one process of one thread, and by two that share it out: its time,
and the memory.

python benchmarks/one_large_run.py [--updates 3] [--blocks 12] [--processes 2]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

BERT = (
    'task="masked-lm"',
    "model.width=768",
    "model.ffn_width=3072",
    "model.heads=12",
    "model.dropout=0.1",
    "data.sequence_length=128",
    "data.batch_sequences=2",
    "train.accumulation=2",
    "train.threads=1",
    'train.device="cpu"',
    'train.precision="fp32"',
)
"""Two batches an update, one for each of two processes; the vocabulary is the toy language's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        _measure(asked.measure, asked.updates, asked.blocks)
        return
    alone = _run(1, "none", asked)
    print(_row("one process", alone, alone))
    for how in ("replicas", "shards"):
        print(_row(f"{asked.processes} processes, {how}", _run(asked.processes, how, asked), alone))


def _run(processes: int, how: str, asked: argparse.Namespace) -> dict[str, float]:
    """What the first process has measured."""
    own = [__file__, "--measure", how, "--updates", str(asked.updates)]
    own += ["--blocks", str(asked.blocks)]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = own if processes == 1 else [*launcher, *own]
    done = subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _measure(how: str, updates: int, blocks: int) -> None:
    from normscope.runs.config import load
    from normscope.runs.run import train_run

    clock, processor = [time.perf_counter()], [time.process_time()]
    peak_mb = [0.0]

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "update":
            clock.append(time.perf_counter())
            processor.append(time.process_time())
            # Before the checkpoint, for which the first process puts everything together.
            peak_mb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    # The first update is for warming up.
    length = (f"train.duration={updates + 1}", f"train.validate_every={updates + 1}")
    settings = [*BERT, *length, f"model.blocks={blocks}", f'train.parallel="{how}"']
    shared = os.environ.get("TORCHELASTIC_RUN_ID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"one-large-run-{how}-{shared}"
    train_run(load(None, settings), folder, listeners=[note])
    if os.environ.get("RANK", "0") != "0":
        return
    found = {
        "seconds": statistics.median(_steps(clock)),
        "cpu_seconds": statistics.median(_steps(processor)),
        "peak_mb": peak_mb[-1],
    }
    print(json.dumps(found))


def _steps(times: list[float]) -> list[float]:
    """Of the updates after the first."""
    return [after - before for before, after in pairwise(times[1:])]


def _row(name: str, found: dict[str, float], alone: dict[str, float]) -> str:
    speed_up = alone["seconds"] / found["seconds"]
    of_cpu = alone["cpu_seconds"] / found["cpu_seconds"]
    return (
        f"{name:24} {found['seconds']:7.2f} s a step ({speed_up:.2f} times as fast), "
        f"{found['cpu_seconds']:6.2f} s of CPU ({of_cpu:.2f}), {found['peak_mb']:,.0f} MB"
    )


if __name__ == "__main__":
    main()
