"""One training in several processes: what two bring, what the fixed order of sums costs, and what a save takes.

python benchmarks/devices.py [--rounds 3] [--updates 8] [--json FILE]
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SETTINGS = (
    "data.max_tokens=1024",
    "model.width=256",
    "model.encoder_blocks=3",
    "model.decoder_blocks=3",
    'train.device="cpu"',
    "train.validate_every=1000",
    "train.checkpoint_every=1000",
)
"""3+3 blocks of width 256 on the toy language, batches of at most 1,024 tokens a side."""


@dataclass(kw_only=True)
class Arm:
    """A way to run the same training."""

    name: str
    processes: int
    threads: int
    batches: int = 4
    """An update."""
    reduction: str = "ordered"
    tokens_per_second: list[float] = field(default_factory=list)
    save_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    """Of the first process."""


ARMS = (
    Arm(name="one process of one thread", processes=1, threads=1),
    Arm(name="one process of one thread, fast", processes=1, threads=1, reduction="fast"),
    Arm(name="one process of two threads", processes=1, threads=2),
    Arm(name="two processes of one thread", processes=2, threads=1),
    Arm(name="two processes of one thread, fast", processes=2, threads=1, reduction="fast"),
    Arm(name="one process, half the batches", processes=1, threads=1, batches=2),
)


def worker(folder: Path, settings: list[str]) -> None:
    """Train in this process, and in the first of its group write down what was measured."""
    from normscope.processes.surroundings import rank_of_environment
    from normscope.runs.config import load
    from normscope.runs.run import train_run
    from normscope.train import checkpoint

    events: list[dict[str, Any]] = []
    saved: list[float] = []
    save = checkpoint.save

    def timed_save(*arguments: Any) -> Any:
        start = time.perf_counter()
        found = save(*arguments)
        saved.append(time.perf_counter() - start)
        return found

    checkpoint.save = timed_save  # type: ignore[assignment]
    train_run(load(None, settings), folder / "run", listeners=[events.append])
    if rank_of_environment() == 0:
        # The first updates meet shapes and memory for the first time.
        updates = [event for event in events if event["event"] == "update"][2:]
        seconds = updates[-1]["elapsed_seconds"] - updates[0]["elapsed_seconds"]
        tokens = sum(event["target_tokens"] for event in updates[1:])
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        measured = {"tokens": tokens / seconds, "update": seconds / (len(updates) - 1), "save": saved, "peak": peak_mb}
        (folder / "measured.json").write_text(json.dumps(measured), encoding="utf-8")


def measure(arm: Arm, updates: int) -> None:
    """Run the arm once, in processes of its own."""
    words = [
        *SETTINGS,
        f"train.duration={updates}",
        f"train.accumulation={arm.batches}",
        f'train.reduction="{arm.reduction}"',
        f"train.threads={arm.threads}",
    ]
    with tempfile.TemporaryDirectory() as name:
        command = [__file__, "--worker", name, *words]
        if arm.processes > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={arm.processes}"]
            command = [*launcher, *command]
        environment = os.environ | {"OMP_NUM_THREADS": str(arm.threads)}
        subprocess.run([sys.executable, *command], check=True, env=environment, stderr=subprocess.DEVNULL)
        measured = json.loads((Path(name) / "measured.json").read_text(encoding="utf-8"))
    arm.tokens_per_second.append(measured["tokens"])
    arm.update_seconds.append(measured["update"])
    arm.save_seconds += measured["save"]
    arm.peak_mb = max(arm.peak_mb, measured["peak"])


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for number in range(options.rounds):
        for arm in ARMS:
            print(f"round {number + 1} of {options.rounds}: {arm.name}", file=sys.stderr, flush=True)
            measure(arm, options.updates)
    rates = [statistics.median(arm.tokens_per_second) for arm in ARMS]
    print(f"{'':36} tokens/s  ratio  peak MB  save / update")
    for arm, rate in zip(ARMS, rates, strict=True):
        save = statistics.median(arm.save_seconds) / statistics.median(arm.update_seconds)
        print(f"{arm.name:36} {rate:8,.0f}  {rate / rates[0]:5.2f}  {arm.peak_mb:7,.0f}  {save:13.2f}")
    one, one_fast, _, two, two_fast, half = rates
    print(f"ordered takes {one_fast / one:.3f} times as long as fast in one process, {two_fast / two:.3f} in two")
    print(f"two processes: {two / one:.2f} times one on the same update, {two / half:.2f} times one on half of it")
    if options.json:
        options.json.write_text(json.dumps([asdict(arm) for arm in ARMS], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
