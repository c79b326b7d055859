"""Training speed and memory beside transformers.LlamaForCausalLM: real steps of a small Llama on
one CPU thread.

python benchmarks/llama_step.py [--rounds 3] [--quick] [--json FILE]
"""

from functools import partial
from operator import attrgetter

from llama_systems import make_llama_batches, normscope_step, transformers_step
from turns import Arm, compare_steps

SHAPES = ((1024, 768, 768), (1024, 768, 2048), (1024, 2048, 768))


def main() -> None:
    arms = [
        Arm("transformers.LlamaForCausalLM", "fp32", "llama", transformers_step),
        Arm("normscope", "fp32", "llama", partial(normscope_step, "fp32")),
        Arm("normscope", "bf16", "llama", partial(normscope_step, "bf16")),
    ]
    compare_steps(
        __doc__,
        groups=[arms],
        make_batches=make_llama_batches,
        tokens_of=attrgetter("tokens"),
        shapes=SHAPES,
    )


if __name__ == "__main__":
    main()
