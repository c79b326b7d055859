"""The trainings: placements, the warm-ups and rates that each may choose from, and the sizes that
all share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from normscope.compare.grid import Cell, Grid
from normscope.data.opening import TOY, DataConfig
from normscope.model import ModelConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.placement import named
from normscope.runs.config import replaced
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import TrainConfig

from ..engine import checks
from ..engine.study import scales


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergedConfig:
    """Encoder-decoders that translate, alike but for placement, warm-up and rate: one seed is
    trained with every warm-up at every rate, and others at the best pair of both, since none that
    chose judges.

    Raises ValueError where nothing can be compared.
    """

    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, or `toy`."""
    warmups: tuple[str, ...] = (
        "post-ln:0.1",
        "post-ln:0.3",
        "pre-ln:0.1",
        "deepnorm:0.1",
        "peri-ln:0.1",
    )
    """PLACEMENT:SHARE: the share of the updates that the warm-up takes, one or more for each
    placement.
    """
    beside: str = "pre-ln"
    """The placement that the others are compared with."""
    peak_lrs: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    seeds: int = 3
    updates: int = 3000
    ladder_updates: int = 3000
    """The updates of the runs that choose; their warm-ups are the same share of them."""
    validations: int = 20
    blocks: int = 6
    """The blocks of each stack."""
    width: int = 128
    ffn_width: int = 256
    heads: int = 4
    dropout: float = 0.3
    max_tokens: int = 4096
    clip_norm: float = 1.0
    split: str = "test"
    """The split of the text that the best checkpoint of each run that judges translates; empty for
    none.
    """
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """The precision of products, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "warmups", "peak_lrs")
        checks.check_rising(self, "peak_lrs")
        checks.check_least(self, seeds=1, validations=1, updates=10 * self.validations)
        checks.check_least(self, ladder_updates=self.validations)
        if self.beside not in self.placements or len(self.placements) < 2:
            raise ValueError(
                f"beside={self.beside} must be among the placements of warmups, and not alone there"
            )
        for placement, share in self.pairs:
            if not 0 <= share < 1:
                raise ValueError(
                    f"warmups: the share of {placement} must lie in [0, 1), got {share:g}"
                )
            named(placement)
        self.training(self.updates, 0.0)

    @property
    def pairs(self) -> list[tuple[str, float]]:
        """Placements and the shares of their warm-ups."""
        words = (one.partition(":") for one in self.warmups)
        try:
            return [(placement, float(share)) for placement, _, share in words]
        except ValueError:
            raise ValueError(
                f"warmups must be PLACEMENT:SHARE, such as post-ln:0.1, got {self.warmups}"
            ) from None

    @property
    def placements(self) -> list[str]:
        """The placements in the order in which they are named first."""
        return list(dict.fromkeys(placement for placement, _ in self.pairs))

    def training(self, updates: int, share: float) -> TranslationRunConfig:
        """Returns a run of so many updates; its placement, rate and seed are still to be chosen."""
        warmup, every = round(share * updates), updates // self.validations
        return TranslationRunConfig(
            data=DataConfig(corpus=self.corpus, max_tokens=self.max_tokens),
            model=ModelConfig(
                encoder_blocks=self.blocks,
                decoder_blocks=self.blocks,
                **checks.settings_of(self, "width", "ffn_width", "heads", "dropout"),
            ),
            optimizer=OptimizerConfig(name="adam"),
            schedule=ScheduleConfig(
                decay="linear", warmup_updates=warmup, decay_from_updates=max(1, warmup)
            ),
            train=TrainConfig(
                duration=updates,
                validate_every=every,
                checkpoint_every=every,
                keep_checkpoints=1,
                threads=1,
                # Batches so small cost little, and many runs may share a machine.
                input_workers=0,
                **checks.settings_of(self, "clip_norm", "device", "precision"),
            ),
        )

    def cells(
        self,
        folder: Path,
        pair: tuple[str, float],
        lrs: Sequence[float],
        seeds: range,
        updates: int,
    ) -> list[Cell]:
        """Returns the runs of a placement with a warm-up at some rates and seeds."""
        placement, share = pair
        base = replaced(self.training(updates, share), seed=seeds.start)
        grid = Grid(
            placements_and_warmups=((placement, base.schedule.warmup_updates),),
            peak_lrs=tuple(lrs),
            optimizers=("adam",),
            seeds=len(seeds),
        )
        return grid.cells(base, folder / f"updates-{updates}")


SCALES = scales(
    ConvergedConfig,
    smoke={
        "corpus": TOY,
        "warmups": ("post-ln:0.1", "pre-ln:0", "pre-ln:0.1"),
        "peak_lrs": (1e-3, 4e-3),
        "seeds": 2,
        "updates": 20,
        "ladder_updates": 10,
        "validations": 2,
        "blocks": 1,
        "width": 16,
        "ffn_width": 32,
        "heads": 2,
        "dropout": 0.0,
        "max_tokens": 256,
        "split": "valid",
    },
    paper={
        "corpus": "corpora/iwslt14_deen",
        "updates": 60_000,
        "ladder_updates": 6_000,
        "validations": 60,
        "width": 512,
        "ffn_width": 1024,
        "device": "auto",
    },
)
"""Cost: smoke takes a minute; cpu 37 runs of three quarters of an hour of one core, or of six
minutes where sixteen share a device; paper as many runs of an hour of an accelerator."""
