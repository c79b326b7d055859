"""The demonstration: a setting of the embedded toy language in which the need for warm-up is soon plain."""

from ..data.parallel.opening import DataConfig
from ..model import ModelConfig
from ..tasks.translation import TranslationRunConfig
from ..train import TrainConfig
from .grid import Grid

DEMO_TITLE = "Does it need warm-up? Post-LN and Pre-LN on the toy language"
DEMO_GRID = Grid(
    placements_and_warmups=(("post-ln", 0), ("post-ln", 200), ("pre-ln", 0), ("pre-ln", 200)),
    peak_lrs=(3e-3,),
    optimizers=("adam",),
    seeds=1,
)
"""At a rate of 1e-3 the four would differ in speed only; at 3e-3 Post-LN without warm-up does not learn."""


def demo_config() -> TranslationRunConfig:
    """6+6 blocks of width 64 for 250 updates: Post-LN without warm-up does no better than the unigram
    baseline, and the other three learn.

    No longer, and on no more sentences, than shows that: what a newcomer waits for is worth seconds.
    With 200 updates and a warm-up of 150 the same three learn, but Pre-LN without warm-up is then so far behind the
    best that the report says it differs from the paper; a warm-up of 100 leaves Post-LN at 4.2 nats (seed 1).
    """
    return TranslationRunConfig(
        data=DataConfig(toy_pairs=10_000, max_tokens=768),
        model=ModelConfig(width=64, ffn_width=128, heads=4, dropout=0.0),
        train=TrainConfig(duration=250, validate_every=50, checkpoint_every=250),
    )
