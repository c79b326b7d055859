"""Predictions over depth: seconds of the processor and memory from 100 blocks to 10,000, and the
power of depth.

Run: python benchmarks/predict.py [--placements pre-ln post-ln] [--blocks 100 1000] [--rounds 3]
[--stack decoder]. Every figure is of a process of its own, the best of so many; the memory is what
the prediction adds to the process's peak, and the power is that by which the seconds grow between
the last two depths. `--together 1000` instead predicts, in one process, every placement that is
defined for the stack at that depth: each one, the first 32 of them as the registry has them, and
all.
"""

import argparse
import gc
import json
import math
import resource
import subprocess
import sys
import time
from typing import Literal

_Stack = Literal["encoder", "decoder"]
DEFAULT = ("pre-ln", "post-ln", "denseformer", "attn-res-inkling")


def measure(placement: str, stack: _Stack, blocks: int) -> None:
    """Print what one prediction takes."""
    from normscope.theory.predict import ModelSetting, predict

    predict("pre-ln", ModelSetting(stack=stack, blocks=6))  # warm: imports and tables
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    predict(placement, ModelSetting(stack=stack, blocks=blocks))
    seconds = time.process_time() - start
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": seconds, "mb": added / 1024}))


def best(placement: str, stack: str, blocks: int, rounds: int) -> dict[str, float]:
    """The fewest seconds of so many processes, with the memory of that one."""
    command = [
        sys.executable,
        __file__,
        "--measure",
        placement,
        "--stack",
        stack,
        "--blocks",
        str(blocks),
    ]
    found = []
    for _ in range(rounds):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return min(found, key=lambda one: one["seconds"])


def growth(options: argparse.Namespace) -> None:
    """Print a row for each placement."""
    depths = sorted(options.blocks)
    print(
        "| placement | "
        + " | ".join(f"{depth:,} blocks: s | MB" for depth in depths)
        + " | power of depth |"
    )
    print("|" + " --- |" * (2 + 2 * len(depths)))
    for placement in options.placements:
        found = [best(placement, options.stack, depth, options.rounds) for depth in depths]
        cells = [cell for one in found for cell in (f"{one['seconds']:.3f}", f"{one['mb']:,.0f}")]
        if len(depths) > 1:
            ratio = found[-1]["seconds"] / found[-2]["seconds"]
            cells.append(f"{math.log(ratio) / math.log(depths[-1] / depths[-2]):.2f}")
        print(f"| {placement} | " + " | ".join(cells) + " |", flush=True)


def together(stack: _Stack, blocks: int, rounds: int) -> None:
    """Print what every placement takes, and all together."""
    from normscope.placement import registered
    from normscope.theory.moments import Unpredictable
    from normscope.theory.predict import ModelSetting, predict

    model = ModelSetting(stack=stack, blocks=blocks)
    names = [name for name, one in registered().items() if model.shape(stack).model in one.models]
    seconds = dict.fromkeys(names, math.inf)
    for name in names * rounds:
        gc.collect()
        start = time.process_time()
        try:
            predict(name, model)
        except Unpredictable:
            seconds[name] = 0.0
        else:
            seconds[name] = min(seconds[name], time.process_time() - start)
    for name, taken in seconds.items():
        print(f"{name:32} {taken:.3f}" if taken else f"{name:32} is not followed by theory here")
    first, every = (sum(seconds[name] for name in some) for some in (names[:32], names))
    print(f"first 32: {first:.2f} s, all {len(names)}: {every:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--placements", nargs="+", default=DEFAULT)
    parser.add_argument("--blocks", nargs="+", type=int, default=[100, 1000, 10_000])
    parser.add_argument("--stack", choices=["encoder", "decoder"], default="encoder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        measure(options.measure, options.stack, options.blocks[0])
    elif options.together is not None:
        together(options.stack, options.together, options.rounds)
    else:
        growth(options)


if __name__ == "__main__":
    main()
