"""Pre-training speed and memory beside transformers.BertForMaskedLM: real steps of BERT-base on one
CPU thread.

python benchmarks/bert_step.py [--rounds 3] [--quick] [--json FILE]
"""

from functools import partial
from operator import attrgetter

from bert_systems import make_bert_batches, normscope_step, transformers_step
from turns import Arm, compare_steps

SHAPES = ((1024, 768, 768), (1024, 768, 3072), (1024, 3072, 768))


def main() -> None:
    arms = [
        Arm("transformers.BertForMaskedLM", "fp32", "base", transformers_step),
        Arm("normscope", "fp32", "base", partial(normscope_step, "fp32")),
        Arm("normscope", "bf16", "base", partial(normscope_step, "bf16")),
    ]
    compare_steps(
        __doc__,
        groups=[arms],
        make_batches=make_bert_batches,
        tokens_of=attrgetter("tokens"),
        shapes=SHAPES,
    )


if __name__ == "__main__":
    main()
