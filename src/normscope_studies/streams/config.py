"""How large the study of residual streams is asked: placements, rates, warm-up, texts and models."""

from dataclasses import dataclass

from normscope.data.parallel.opening import TOY
from normscope.placement import named

from ..engine.checks import check_different, check_ladder, check_rising
from ..engine.study import Scale
from .sources import BASE, NEW, OLD, POST

TASKS = ("language-model", "translation")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Small models on two tasks, alike but for their placement."""

    tasks: tuple[str, ...] = TASKS
    placements: tuple[str, ...] = NEW
    others: tuple[str, ...] = OLD
    """Older placements, the best first."""
    others_kept: int = 6
    """How many of them are trained: the first that a task's model can have."""
    peak_lrs: tuple[float, ...] = (7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2)
    """The ladder, in rising order."""
    warmup_updates: int = 50
    """Of the runs with warm-up; as many have none."""
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Seeds that are trained at the best rate of the ladder."""
    updates: int = 200
    comparable_nats: float = 0.05
    """What a source calls comparable lies within that of Pre-LN's loss."""
    text: str = "corpora/wikitext2_1000"
    """Of the language model: a folder made by `normscope data documents`, or `toy`."""
    pairs: str = "corpora/multi30k_deen"
    """Of translation: a folder made by `normscope data prepare`, or `toy`."""
    toy_pairs: int = 5000
    width: int = 48
    ffn_width: int = 192
    """Of Pre-LN. The others have less of it where they have parameters of their own."""
    heads: int = 4
    blocks: int = 6
    """Of the language model."""
    stack_blocks: int = 3
    """Of the encoder and of the decoder that translate."""
    initialisation: str = "paper"
    """One scheme for all, times the placement's own gains: only the streams shall differ."""
    sequence_length: int = 32
    batch_sequences: int = 16
    max_tokens: int = 512
    """Of a batch that is translated."""
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        check_different(self, ("tasks", "placements", "peak_lrs"))
        if unknown := set(self.tasks) - set(TASKS):
            raise ValueError(f"tasks: {', '.join(sorted(unknown))} is not one; choose from {', '.join(TASKS)}")
        check_rising(self.peak_lrs)
        check_ladder(
            ladder_seeds=self.ladder_seeds,
            seeds=self.seeds,
            warmup_updates=self.warmup_updates,
            updates=self.updates,
        )
        if self.others_kept < 0 or not self.comparable_nats > 0:
            raise ValueError("others_kept must be 0 or more, and comparable_nats positive")
        for name in (*self.placements, *self.others):
            named(name)

    @property
    def warmups(self) -> tuple[int, int]:
        """In updates."""
        return 0, self.warmup_updates

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
