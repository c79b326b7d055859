"""A step of BERT-base's size by one process of one thread, and by several that share it out: its
time and its memory. On a machine with a core for each process, and nothing else to do.

python benchmarks/one_large_run.py [--updates 4] [--rounds 3] [--sequences 8] [--file FILE.jsonl]

The same command goes on with the measurements that the file lacks.
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
    "train.threads=1",
    'train.device="cpu"',
    'train.precision="fp32"',
)
"""The vocabulary is the toy language's."""
WAYS = ("none", "replicas", "shards")
MEASURED = ("seconds", "cpu_seconds", "steady_mb", "peak_mb", "load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=8, help="of a batch; one a process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", type=Path, default=Path("one-large-run.jsonl"))
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        _measure(asked.measure, asked)
        return
    found = _missing_made(asked)
    alone = _medians(found, "none")
    for how in WAYS:
        print(_row(how, _medians(found, how), alone, asked.processes))


def _missing_made(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Makes the measurements that the file lacks; returns all that are asked for."""
    size = {name: getattr(asked, name) for name in ("updates", "blocks", "processes", "sequences")}
    found = []
    for number in range(asked.rounds):
        for how in WAYS:
            key = {**size, "how": how, "round": number}
            there = [line for line in _lines(asked.file) if key.items() <= line.items()]
            if not there:
                there = [{**key, **_run(how, asked)}]
                with asked.file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(there[0]) + "\n")
            found.append(there[0])
    return found


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _medians(found: list[dict[str, Any]], how: str) -> dict[str, float]:
    own = [line for line in found if line["how"] == how]
    return {name: statistics.median(line[name] for line in own) for name in MEASURED}


def _run(how: str, asked: argparse.Namespace) -> dict[str, float]:
    """What the first process has measured."""
    own = [__file__, "--measure", how]
    for name in ("updates", "blocks", "processes", "sequences"):
        own += [f"--{name}", str(getattr(asked, name))]
    count = str(asked.processes)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, *([] if how == "none" else launcher), *own],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "ONE_LARGE_RUN": folder},
        )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _measure(how: str, asked: argparse.Namespace) -> None:
    from normscope.runs.config import load
    from normscope.runs.run import train_run

    clock, processor = [time.perf_counter()], [time.process_time()]
    memory = {"steady_mb": 0.0, "peak_mb": 0.0}

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "update":
            clock.append(time.perf_counter())
            processor.append(time.process_time())
            # Before the checkpoint, for which the first process puts everything together.
            memory["steady_mb"] = _now_mb()
            memory["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    # The first update is for warming up, and all is kept once, behind the last.
    last = asked.updates + 1
    length = [f"train.{name}={last}" for name in ("duration", "validate_every", "checkpoint_every")]
    batches = [f"data.batch_sequences={asked.sequences}", f"train.accumulation={asked.processes}"]
    settings = [*BERT, *length, *batches, f"model.blocks={asked.blocks}"]
    folder = Path(os.environ["ONE_LARGE_RUN"]) / "run"
    train_run(load(None, [*settings, f'train.parallel="{how}"']), folder, listeners=[note])
    if os.environ.get("RANK", "0") != "0":
        return
    found = {
        "seconds": statistics.median(_steps(clock)),
        "cpu_seconds": statistics.median(_steps(processor)),
        **memory,
        "load": os.getloadavg()[0],
    }
    print(json.dumps(found))


def _now_mb() -> float:
    """Of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _steps(times: list[float]) -> list[float]:
    """Of the updates after the first."""
    return [after - before for before, after in pairwise(times[1:])]


def _row(how: str, found: dict[str, float], alone: dict[str, float], processes: int) -> str:
    name = "one process" if how == "none" else f"{processes} processes, {how}"
    speed_up = alone["seconds"] / found["seconds"]
    of_cpu = alone["cpu_seconds"] / found["cpu_seconds"]
    return (
        f"{name:24} {found['seconds']:7.2f} s a step ({speed_up:.2f} times as fast), "
        f"{found['cpu_seconds']:6.2f} s of CPU of a process ({of_cpu:.2f}), "
        f"{found['steady_mb']:,.0f} MB, at most {found['peak_mb']:,.0f}; load {found['load']:.1f}"
    )


if __name__ == "__main__":
    main()
