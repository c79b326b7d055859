"""Names what the study trains: placements, optimisers with their ladders, warm-ups, sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from normscope.compare.grid import Cell, Grid
from normscope.data.opening import TOY
from normscope.optim import OptimizerConfig
from normscope.runs.config import replaced
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine import checks
from ..engine.decoders import check_decoders, decoder_run
from ..engine.study import scales

PLACEMENTS = (
    "post-ln",
    "pre-ln",
    "deepnorm",
    "peri-ln",
    "olmo-2",
    "sub-ln",
    "residual",
    "rezero",
    "lns",
    "hybrid-norm-star",
    "completep",
    "mhc",
)
"""Post-LN and Pre-LN, and of each idea since the one that is used most."""

LADDERS = MappingProxyType(
    {
        "adamw": (3e-4, 7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2, 7e-2),
        "muon": (3e-4, 7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2, 7e-2),
        "lion": (3e-5, 7.5e-5, 1.9e-4, 4.7e-4, 1.2e-3, 2.9e-3, 7.4e-3),
        "sgd": (1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0),
    }
)
"""Seven rates of each optimiser, two and a half times apart, SGD's three times: its best rates
differ most.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizersConfig:
    """Small decoders of the Llama preset, alike but for placement, optimiser and warm-up: few seeds
    climb a ladder of rates, and others are trained at its best.

    Raises ValueError where more seeds climb than are trained, or a warm-up does not end within the
    training.
    """

    warmup_updates: int = 12
    """The warm-up of the runs with one; as many have none. All go to 0 in a straight line from
    there on.
    """
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Seeds that are trained at the best rates of the ladder."""
    updates: int = 120
    text: str = "corpora/wikipedia_1000"
    """A folder made by `normscope data documents`, or `toy`."""
    sequence_length: int = 64
    batch_sequences: int = 16
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    placements: tuple[str, ...] = PLACEMENTS
    optimizers: tuple[str, ...] = tuple(LADDERS)
    short_warmup_updates: int = 2
    """The warm-up of as many runs more."""
    best_rates: int = 3
    """The number of the ladder's rates that are trained with all seeds, none of which climbed:
    those of the lowest losses.
    """
    rates: int = 7
    """The number of rates of an optimiser's ladder, from its lowest."""
    needs_nats: float = 0.1
    """A warm-up is needed where the best loss without it lies more than this above the best with
    it.
    """
    preset: str = "llama"
    width: int = 48
    ffn_width: int = 128
    heads: int = 4
    key_value_heads: int = 2
    blocks: int = 8
    weight_decay: float = 0.1
    momentum: float = 0.9
    """The momentum of SGD."""
    precision: str = "auto"
    """Numbers that products are computed in, as `train.precision`."""

    def __post_init__(self) -> None:
        if not 1 <= self.ladder_seeds <= self.seeds:
            raise ValueError(
                f"ladder_seeds must lie in [1, seeds={self.seeds}], got {self.ladder_seeds}"
            )
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(
                f"warmup_updates must lie between 0 and updates={self.updates}, got "
                f"{self.warmup_updates}"
            )
        checks.check_different(self, "placements", "optimizers")
        if unknown := [name for name in self.optimizers if name not in LADDERS]:
            raise ValueError(
                f"optimizers: {', '.join(unknown)} has no ladder of rates; choose from "
                f"{', '.join(LADDERS)}"
            )
        if not 1 <= self.best_rates <= self.rates <= len(LADDERS["adamw"]):
            raise ValueError(
                f"1 <= best_rates <= rates <= {len(LADDERS['adamw'])} must hold, got "
                f"{self.best_rates} and {self.rates}"
            )
        if not 0 < self.short_warmup_updates < self.warmup_updates:
            raise ValueError(
                "short_warmup_updates must lie between 0 and "
                f"warmup_updates={self.warmup_updates}, got {self.short_warmup_updates}"
            )
        checks.check_positive(self, "needs_nats")
        check_decoders("placements", self.placements)

    @property
    def warmups(self) -> tuple[int, ...]:
        """Returns no warm-up, the short one and the long one."""
        return 0, self.short_warmup_updates, self.warmup_updates

    def ladder(self, optimizer: str) -> tuple[float, ...]:
        """Returns the optimiser's rates, rising."""
        return LADDERS[optimizer][: self.rates]


SCALES = scales(
    OptimizersConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"),
        "optimizers": ("adamw", "sgd"),
        "seeds": 2,
        "rates": 2,
        "best_rates": 1,
        "updates": 4,
        "warmup_updates": 2,
        "short_warmup_updates": 1,
        "text": TOY,
        "width": 16,
        "ffn_width": 24,
        "heads": 2,
        "key_value_heads": 1,
        "blocks": 2,
        "sequence_length": 24,
        "batch_sequences": 4,
    },
    paper={
        "ladder_seeds": 3,
        "updates": 20_000,
        "warmup_updates": 2_000,
        "short_warmup_updates": 400,
        "text": "corpora/wikipedia",
        "width": 768,
        "ffn_width": 2048,
        "heads": 12,
        "key_value_heads": 4,
        "blocks": 12,
        "sequence_length": 1024,
        "batch_sequences": 32,
        "device": "auto",
    },
)
"""Cost: smoke takes seconds; cpu 2,300 runs of some ten seconds of one core; paper, with models of
124 million parameters, as many runs of an hour of an accelerator."""


def base_config(config: OptimizersConfig) -> LanguageModelRunConfig:
    """Returns what all runs share. Raises UserError for text that is not there."""
    sizes = checks.settings_of(config, "width", "ffn_width", "heads", "blocks")
    return decoder_run(
        config,
        preset=config.preset,
        model={"attention": {"key_value_heads": config.key_value_heads}, **sizes},
        optimizer=OptimizerConfig(weight_decay=config.weight_decay),
    )


def cells_of(
    config: OptimizersConfig,
    folder: Path,
    arm: tuple[str, str, int],
    peak_lrs: Sequence[float],
    seeds: range,
) -> list[Cell]:
    """Returns the runs of a placement, an optimiser and a warm-up at these rates and seeds; SGD
    alone has momentum.
    """
    placement, optimizer, warmup_updates = arm
    momentum = {"optimizer__momentum": config.momentum} if optimizer == "sgd" else {}
    grid = Grid(
        placements_and_warmups=((placement, warmup_updates),),
        peak_lrs=tuple(peak_lrs),
        optimizers=(optimizer,),
        seeds=len(seeds),
    )
    base = base_config(config)
    return grid.cells(
        replaced(base, optimizer__name=optimizer, seed=base.seed + seeds.start - 1, **momentum),
        folder,
    )
