"""Names what is trained: placements, depths and rates, alike in all else, and without warm-up."""

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

FOLLOWED = ("adam", "sgd", "muon")
"""Optimisers whose first update is measured and predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationTrainingsConfig:
    """Encoder-decoders that translate, each placement at each depth, at every rate.

    Raises ValueError where nothing can be left out, or a placement is not defined for them.
    """

    placements: tuple[str, ...] = (
        "post-ln",
        "pre-ln",
        "deepnorm",
        "admin",
        "b2t",
        "residual",
        "peri-ln",
        "sub-ln",
        "rezero",
        "lns",
    )
    depths: tuple[int, ...] = (2, 4, 8)
    """Blocks of each of the two stacks."""
    peak_lrs: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    seeds: int = 2
    """Seeds of weights and batches."""
    optimizer: str = "adam"
    """adam, sgd or muon."""
    updates: int = 250
    warmup_updates: int = 0
    """The warm-up: none, so that what the first update does is not held back; then the rate falls
    in a straight line to 0.
    """
    corpus: str = TOY
    """A folder made by `normscope data prepare`, or `toy`."""
    toy_pairs: int = 20_000
    width: int = 64
    ffn_width: int = 128
    heads: int = 4
    dropout: float = 0.0
    max_tokens: int = 768
    """The most tokens of a batch."""
    fewest_placements: int = 6
    """The placements below which resamples say nothing of others: then nothing is decided."""
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """Numbers that products are computed in, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "placements", "depths", "peak_lrs")
        checks.check_rising(self, "depths", "peak_lrs")
        checks.check_least(self, seeds=1, updates=2, warmup_updates=0, fewest_placements=2)
        if self.optimizer not in FOLLOWED:
            raise ValueError(
                f"optimizer must be one of {', '.join(FOLLOWED)}, got {self.optimizer!r}"
            )
        for name in ("placements", "depths", "peak_lrs"):
            if len(getattr(self, name)) < 2:
                raise ValueError(
                    f"{name}: what is left out is foretold by the others, so give two or more, got "
                    f"{getattr(self, name)}"
                )
        if self.warmup_updates >= self.updates:
            raise ValueError(
                f"warmup_updates must be less than updates={self.updates}, got "
                f"{self.warmup_updates}"
            )
        for name in self.placements:
            if "encoder-decoder" not in named(name).models:
                raise ValueError(f"placements: {name} is not defined for an encoder-decoder")

    def training(self, placement: str, blocks: int) -> TranslationRunConfig:
        """Returns a run of a placement with so many blocks in each stack; its rate and seed are
        still to be chosen.
        """
        return TranslationRunConfig(
            data=DataConfig(**checks.settings_of(self, "corpus", "toy_pairs", "max_tokens")),
            model=ModelConfig(
                placement=placement,
                encoder_blocks=blocks,
                decoder_blocks=blocks,
                initialisation="as-placement",
                **checks.settings_of(self, "width", "ffn_width", "heads", "dropout"),
            ),
            optimizer=OptimizerConfig(name=self.optimizer),
            schedule=ScheduleConfig(
                decay="linear",
                warmup_updates=self.warmup_updates,
                decay_from_updates=max(1, self.warmup_updates),
            ),
            train=TrainConfig(
                duration=self.updates,
                validate_every=self.updates,
                checkpoint_every=self.updates,
                keep_checkpoints=1,
                threads=1,
                # Batches so small cost little, and many runs may share a machine.
                input_workers=0,
                **checks.settings_of(self, "device", "precision"),
            ),
        )

    def cells(self, folder: Path, placement: str, blocks: int) -> list[Cell]:
        """Returns the runs of a model at every rate and seed."""
        grid = Grid(
            placements_and_warmups=((placement, self.warmup_updates),),
            peak_lrs=self.peak_lrs,
            optimizers=(self.optimizer,),
            seeds=self.seeds,
        )
        return grid.cells(self.training(placement, blocks), folder / f"blocks-{blocks}")

    def first(self, placement: str, blocks: int, seed: int) -> TranslationRunConfig:
        """Returns the configuration that the first update of a seed's runs is looked at by."""
        return replaced(self.training(placement, blocks), seed=seed)

    @property
    def seed_numbers(self) -> Sequence[int]:
        """Returns the seeds of the runs, in their order."""
        return range(1, self.seeds + 1)


SCALES = scales(
    AmplificationTrainingsConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"),
        "depths": (1, 2),
        "peak_lrs": (2e-2, 0.5),
        "seeds": 1,
        "updates": 120,
        "toy_pairs": 300,
        "width": 16,
        "ffn_width": 32,
        "heads": 2,
        "max_tokens": 256,
    },
    paper={
        "depths": (6, 12, 24),
        "seeds": 3,
        "corpus": "corpora/iwslt14_deen",
        "updates": 4_000,
        "width": 512,
        "ffn_width": 1024,
        "max_tokens": 4096,
        "device": "auto",
    },
    more={"gpu": {"width": 256, "ffn_width": 512, "device": "cuda"}},
)
"""Cost: smoke, 8 runs, takes a minute; cpu is 420 runs (10 placements, 3 depths, 7 rates, 2 seeds)
and 60 looks at first updates; paper is 630 runs of a quarter to a whole hour of an accelerator;
gpu, with `--processes 16`, some minutes of one by arithmetic, which nobody has timed.
"""
