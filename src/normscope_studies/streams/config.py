"""How large the study of residual streams is asked: placements, rates, warm-up, texts and models."""

from dataclasses import dataclass

from normscope.data.parallel.opening import TOY
from normscope.placement import named

from ..engine.checks import check_different, check_positive
from ..engine.models import TwoTasksConfig
from ..engine.study import Scale
from .sources import BASE, NEW, OLD, POST


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig(TwoTasksConfig):
    """Small models on two tasks, alike but for their placement."""

    placements: tuple[str, ...] = NEW
    others: tuple[str, ...] = OLD
    """Older placements, the best first."""
    others_kept: int = 6
    """How many of them are trained: the first that a task's model can have."""
    comparable_nats: float = 0.05
    """What a source calls comparable lies within that of Pre-LN's loss."""
    text: str = "corpora/wikitext2_1000"
    pairs: str = "corpora/multi30k_deen"
    width: int = 48
    ffn_width: int = 192
    """Of Pre-LN. The others have less of it where they have parameters of their own."""
    batch_sequences: int = 16
    max_tokens: int = 512

    def __post_init__(self) -> None:
        TwoTasksConfig.__post_init__(self)
        check_different(self, "placements")
        check_positive(self, "comparable_nats")
        if self.others_kept < 0:
            raise ValueError(f"others_kept must be 0 or more, got {self.others_kept}")
        for name in (*self.placements, *self.others):
            named(name)

    def trained(self, model: str) -> list[str]:
        """The placements that a task's model can have: what all are compared with, the new, the best of the others.

        model: decoder-only or encoder-decoder.
        """
        have = {name: model in named(name).models for name in (*self.placements, *self.others)}
        others = [name for name in self.others if have[name] and name not in self.placements][: self.others_kept]
        new = [name for name in self.placements if have[name]]
        return list(dict.fromkeys([BASE, POST, *new, *others]))


SCALES = {
    "smoke": Scale(
        config=StreamsConfig(
            placements=("mhc", "parallel"),
            others=("rezero",),
            peak_lrs=(1e-3, 4e-3),
            seeds=2,
            updates=4,
            warmup_updates=2,
            text=TOY,
            pairs=TOY,
            toy_pairs=300,
            width=16,
            ffn_width=128,
            heads=2,
            blocks=2,
            stack_blocks=1,
            sequence_length=24,
            batch_sequences=4,
            max_tokens=256,
        ),
        decides=False,
    ),
    "cpu": Scale(config=StreamsConfig()),
    "paper": Scale(
        config=StreamsConfig(
            ladder_seeds=3,
            updates=20_000,
            warmup_updates=1_000,
            peak_lrs=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
            text="corpora/wikitext2",
            pairs="corpora/iwslt14_deen",
            width=512,
            ffn_width=2048,
            heads=8,
            blocks=24,
            stack_blocks=12,
            sequence_length=512,
            batch_sequences=32,
            max_tokens=4096,
            device="auto",
        )
    ),
}
"""Cost: smoke takes seconds; cpu some 900 runs of ten seconds to half a minute of one core; paper, with models of 80
million parameters, about 1,900 runs of an hour of an accelerator."""
