"""Names what is trained: placements that move, the fixed ones at their ends, and the ladders."""

from dataclasses import dataclass

from normscope.data.opening import TOY
from normscope.placement import StackShape, named
from normscope.placement.reading import read
from normscope.runs.config import replaced
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine import checks
from ..engine.decoders import OPTIMIZER, DecoderArm, DecoderLadders, check_decoders
from ..engine.study import scales


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingConfig(DecoderLadders):
    """Decoders whose placement moves, and those at its ends, without warm-up and with.

    Raises ValueError for a placement that does not move, and for an end that does.
    """

    moving: tuple[str, ...] = (
        "pre-to-post:pre-ln:post-ln",
        "post-to-pre:post-ln:pre-ln",
        "deepnorm-to-post:deepnorm:post-ln",
        "prores:pre-ln",
        "prores-post-ln:post-ln",
    )
    """PLACEMENT:END:END: a placement whose number moves, and the fixed one or two that it is at
    when it does not.
    """
    post: str = "post-ln"
    """The placement whose end a hybrid is to match without its warm-up."""
    over_updates: int = 300
    """Updates in which the number goes from 0 to 1."""
    best_rates: int = 2
    seeds: int = 4
    needs_nats: float = 0.1
    """A warm-up is not needed where the runs without it end at most so much higher."""
    matching_nats: float = 0.02
    """The difference in nats up to which one that ends higher counts as ending as low."""

    def __post_init__(self) -> None:
        DecoderLadders.__post_init__(self)
        checks.check_different(self, "moving")
        checks.check_positive(self, "over_updates", "needs_nats", "matching_nats")
        check_decoders("moving", self.placements)
        for name, ends in self.ends.items():
            if not ends or not _moves(name):
                raise ValueError(
                    "moving must be PLACEMENT:END or PLACEMENT:END:END with a placement that has a "
                    f"scheduled number, such as pre-to-post:pre-ln:post-ln, got {name} with "
                    f"{', '.join(ends) or 'no end'}"
                )
        for name in self.fixed:
            if _moves(name):
                raise ValueError(f"moving: {name} is named as an end, and moves itself")

    @property
    def ends(self) -> dict[str, tuple[str, ...]]:
        """Returns the fixed ends of what moves, by its name."""
        parts = (one.split(":") for one in self.moving)
        return {name: tuple(ends) for name, *ends in parts}

    @property
    def fixed(self) -> tuple[str, ...]:
        """The ends of all, each once, and the one that hybrids are to match."""
        every = [end for ends in self.ends.values() for end in ends]
        return tuple(dict.fromkeys([self.post, *every]))

    @property
    def placements(self) -> tuple[str, ...]:
        """Returns what is trained."""
        return (*self.fixed, *self.ends)

    @property
    def arms(self) -> list[DecoderArm]:
        """The arms: every placement, without warm-up and with."""
        return [
            DecoderArm(placement, OPTIMIZER, warmup)
            for placement in self.placements
            for warmup in (0, self.warmup_updates)
        ]

    def base(self) -> LanguageModelRunConfig:
        """Returns what all runs share. Raises UserError for text that is not there."""
        return replaced(DecoderLadders.base(self), adaptive__over=self.over_updates)


def _moves(placement: str) -> bool:
    """Returns whether a formula has a number that follows a schedule."""
    shape = StackShape(kind="decoder", width=8, ffn_width=8, heads=1, decoder_blocks=1)
    return bool(read(named(placement)(shape)).schedules)


SCALES = scales(
    MovingConfig,
    smoke={
        "moving": ("pre-to-post:pre-ln:post-ln",), "peak_lrs": (4e-3,), "best_rates": 1, "seeds": 2,
        "updates": 4, "warmup_updates": 2, "over_updates": 2, "text": TOY, "width": 16,
        "ffn_width": 24, "heads": 2, "blocks": 2, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={
        "ladder_seeds": 3, "updates": 20_000, "warmup_updates": 2_000, "over_updates": 10_000,
        "peak_lrs": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), "text": "corpora/wikipedia", "width": 768,
        "ffn_width": 2048, "heads": 12, "blocks": 24, "sequence_length": 1024,
        "batch_sequences": 32, "device": "auto",
    },
    more={"gpu": {"width": 256, "ffn_width": 688, "device": "cuda"}},
)  # fmt: skip
"""Cost: smoke takes a minute; cpu 208 runs of some fifty seconds of one core, three core-hours in
all; paper, with models of 200 million parameters, as many of two hours of an accelerator; gpu, with
`--processes 16`, some minutes of one by arithmetic, which nobody has timed."""
