"""Training speed and memory beside torch.nn.Transformer: real steps at the paper's size on one CPU thread.

python benchmarks/train_step.py [--rounds 3] [--quick] [--json FILE]
"""

import argparse
from functools import partial
from pathlib import Path

from normscope.train.device import Precision
from step_systems import PlacementName, make_step_batches, normscope_step, torch_step
from turns import Arm, gemm_rates, on_one_core, report, save, take_turns

TARGETS: dict[Precision, float] = {"fp32": 2.2, "bf16": 3.5}
"""Times torch.nn.Transformer's fp32 default."""
SHAPES = ((4000, 512, 512), (4000, 512, 1024), (1024, 1024, 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="timed passes over the batches (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of one batch")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    rounds, count = (1, 1) if options.quick else (options.rounds, 2)
    on_one_core()
    arms: list[Arm] = []
    samples = [gemm_rates(SHAPES)]
    placements: tuple[PlacementName, ...] = ("post", "pre")
    batches = partial(make_step_batches, count)
    tokens, flops = sum(b.target_tokens for b in batches()), sum(b.flops() for b in batches())
    for placement in placements:
        group = [
            Arm("torch.nn.Transformer", "fp32", placement, partial(torch_step, placement)),
            Arm("normscope", "fp32", placement, partial(normscope_step, placement, "fp32")),
            Arm("normscope", "bf16", placement, partial(normscope_step, placement, "bf16")),
        ]
        take_turns(group, batches, tokens=tokens, flops=flops, rounds=rounds)
        arms += group
        samples.append(gemm_rates(SHAPES))
    result = report(arms, samples, TARGETS)
    if options.json:
        save(result, options.json)


if __name__ == "__main__":
    main()
