"""Training speed and memory beside torch.nn.Transformer: real steps at the paper's size on one CPU
thread.

python benchmarks/train_step.py [--rounds 3] [--quick] [--json FILE]
"""

from functools import partial
from operator import attrgetter

from step_systems import PlacementName, make_step_batches, normscope_step, torch_step
from turns import Arm, compare_steps

SHAPES = ((4000, 512, 512), (4000, 512, 1024), (1024, 1024, 1024))


def main() -> None:
    placements: tuple[PlacementName, ...] = ("post", "pre")
    groups = [
        [
            Arm("torch.nn.Transformer", "fp32", placement, partial(torch_step, placement)),
            Arm("normscope", "fp32", placement, partial(normscope_step, placement, "fp32")),
            Arm("normscope", "bf16", placement, partial(normscope_step, placement, "bf16")),
        ]
        for placement in placements
    ]
    compare_steps(
        __doc__,
        groups=groups,
        make_batches=make_step_batches,
        tokens_of=attrgetter("target_tokens"),
        shapes=SHAPES,
    )


if __name__ == "__main__":
    main()
