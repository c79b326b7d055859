"""Names what is trained, and how often its gradients are looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from normscope.compare.grid import Cell
from normscope.data.opening import TOY
from normscope.runs.config import replaced
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine import checks
from ..engine.decoders import OPTIMIZER, DecoderArm, DecoderLadders, check_decoders
from ..engine.study import scales


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditioningConfig(DecoderLadders):
    """Decoders with a warm-up, alike but for their placement and its best rate, whose gradients are
    looked at from the first update to the last.

    Raises ValueError for what cannot be compared.
    """

    placements: tuple[str, ...] = (
        "post-ln",
        "pre-ln",
        "deepnorm",
        "peri-ln",
        "residual",
        "mix-ln",
        "sub-ln",
        "rezero",
    )
    post: str = "post-ln"
    """The placement that others have to match to end as low."""
    standard: str = "pre-ln"
    """The placement whose gradients are well-conditioned: those of others are compared with
    them.
    """
    monitor_every: int = 10
    """Updates from one look at the gradients' norms to the next."""
    looks: int = 8
    """Looks at the gradients' stable ranks, beside one before the first update."""
    conditioned_factor: float = 1.5
    """The factor by which gradients may be worse conditioned than the standard's worst."""
    matching_nats: float = 0.02
    """The difference in nats up to which one that ends higher counts as ending as low."""

    def __post_init__(self) -> None:
        DecoderLadders.__post_init__(self)
        checks.check_different(self, "placements")
        check_decoders("placements", self.placements)
        checks.check_least(self, blocks=2, monitor_every=1, looks=1)
        checks.check_positive(self, "matching_nats")
        for name in ("post", "standard"):
            if getattr(self, name) not in self.placements:
                raise ValueError(f"{name}={getattr(self, name)} must be among the placements")
        if self.post == self.standard:
            raise ValueError(f"post and standard must be two placements, got {self.post} twice")
        if self.conditioned_factor < 1:
            raise ValueError(
                f"conditioned_factor must be at least 1, got {self.conditioned_factor}"
            )
        if self.updates % self.looks:
            raise ValueError(
                f"updates={self.updates} must be a multiple of looks={self.looks}, each of which "
                "is a checkpoint"
            )

    @property
    def arms(self) -> list[DecoderArm]:
        """The arms: every placement, with the warm-up."""
        return [
            DecoderArm(placement, OPTIMIZER, self.warmup_updates) for placement in self.placements
        ]

    @property
    def looked_at(self) -> tuple[int, ...]:
        """The updates after which stable ranks are looked at; 0 is before the first."""
        every = self.updates // self.looks
        return tuple(range(0, self.updates + 1, every))

    def cells(
        self,
        base: LanguageModelRunConfig,
        folder: Path,
        arm: tuple[str, str, int],
        peak_lrs: Sequence[float],
        seeds: range,
    ) -> list[Cell]:
        """Returns the runs of an arm; those that judge are looked at, and keep checkpoints."""
        if seeds.start > self.ladder_seeds:
            base = replaced(
                base,
                train__monitor_every=self.monitor_every,
                train__checkpoint_every=self.updates // self.looks,
                train__keep_checkpoints=self.looks,
            )
        return DecoderLadders.cells(self, base, folder, arm, peak_lrs, seeds)


SCALES = scales(
    ConditioningConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"), "peak_lrs": (4e-3,), "seeds": 2, "updates": 6,
        "warmup_updates": 2, "monitor_every": 2, "looks": 2, "text": TOY, "width": 16,
        "ffn_width": 24, "heads": 2, "blocks": 2, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={
        "updates": 20_000, "warmup_updates": 2_000, "monitor_every": 100, "looks": 20,
        "peak_lrs": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), "text": "corpora/wikipedia", "width": 768,
        "ffn_width": 2048, "heads": 12, "blocks": 24, "sequence_length": 1024,
        "batch_sequences": 32, "device": "auto",
    },
    more={"gpu": {"width": 256, "ffn_width": 688, "device": "cuda"}},
)  # fmt: skip
"""Cost: smoke takes a minute; cpu 40 runs of some fifty seconds of one core and 24 of twice as
long, an hour and a half in all; paper, with models of 200 million parameters, as many of two hours
of an accelerator; gpu, with `--processes 16`, some minutes of one by arithmetic, which nobody has
timed."""
