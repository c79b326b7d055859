"""Training speed and memory beside transformers.LlamaForCausalLM: real steps of a small Llama on one CPU thread.

python benchmarks/llama_step.py [--rounds 3] [--quick] [--json FILE]
"""

import argparse
from functools import partial
from pathlib import Path

from llama_systems import make_llama_batches, normscope_step, transformers_step
from normscope.train.device import Precision
from turns import Arm, gemm_rates, on_one_core, report, save, take_turns

TARGETS: dict[Precision, float] = {"fp32": 2.2, "bf16": 3.5}
"""Times LlamaForCausalLM's fp32 default."""
SHAPES = ((1024, 768, 768), (1024, 768, 2048), (1024, 2048, 768))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="timed passes over the batches (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of one batch")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    rounds, count = (1, 1) if options.quick else (options.rounds, 2)
    on_one_core()
    batches = partial(make_llama_batches, count)
    samples = [gemm_rates(SHAPES)]
    arms = [
        Arm("transformers.LlamaForCausalLM", "fp32", "llama", transformers_step),
        Arm("normscope", "fp32", "llama", partial(normscope_step, "fp32")),
        Arm("normscope", "bf16", "llama", partial(normscope_step, "bf16")),
    ]
    tokens, flops = sum(b.tokens for b in batches()), sum(b.flops() for b in batches())
    take_turns(arms, batches, tokens=tokens, flops=flops, rounds=rounds)
    samples.append(gemm_rates(SHAPES))
    result = report(arms, samples, TARGETS)
    if options.json:
        save(result, options.json)


if __name__ == "__main__":
    main()
