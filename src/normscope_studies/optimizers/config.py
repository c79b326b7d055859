"""How large the cross of placement, optimiser and warm-up is asked."""

from dataclasses import dataclass
from types import MappingProxyType

from normscope.data.opening import TOY

from ..engine.checks import check_defined_for, check_different, check_positive
from ..engine.models import LadderConfig
from ..engine.study import scales

PLACEMENTS = (
    *("post-ln", "pre-ln", "deepnorm", "peri-ln", "olmo-2", "sub-ln", "residual", "rezero"),
    *("lns", "hybrid-norm-star", "completep", "mhc"),
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
"""Seven rates of each optimiser, two and a half times apart, SGD's three times: its best rates differ most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizersConfig(LadderConfig):
    """Small decoders of the Llama preset, alike but for placement, optimiser and warm-up."""

    placements: tuple[str, ...] = PLACEMENTS
    optimizers: tuple[str, ...] = tuple(LADDERS)
    warmup_updates: int = 12
    best_rates: int = 3
    """How many of the ladder's rates are trained with all seeds: those with the lowest losses."""
    rates: int = 7
    """Of an optimiser's ladder, from its lowest."""
    updates: int = 120
    needs_nats: float = 0.1
    """A warm-up is needed where the best loss without it lies more than this above the best with it."""
    text: str = "corpora/wikipedia_1000"
    preset: str = "llama"
    width: int = 48
    ffn_width: int = 128
    heads: int = 4
    key_value_heads: int = 2
    blocks: int = 8
    weight_decay: float = 0.1
    momentum: float = 0.9
    """Of SGD."""

    def __post_init__(self) -> None:
        LadderConfig.__post_init__(self)
        check_different(self, "placements", "optimizers")
        if unknown := [name for name in self.optimizers if name not in LADDERS]:
            raise ValueError(
                f"optimizers: {', '.join(unknown)} has no ladder of rates; choose from {', '.join(LADDERS)}"
            )
        if not 1 <= self.best_rates <= self.rates <= len(LADDERS["adamw"]):
            raise ValueError(
                f"1 <= best_rates <= rates <= {len(LADDERS['adamw'])} must hold, got {self.best_rates} and {self.rates}"
            )
        check_positive(self, "needs_nats")
        check_defined_for(self, "placements", model="decoder-only")

    def ladder(self, optimizer: str) -> tuple[float, ...]:
        """The optimiser's rates, rising."""
        return LADDERS[optimizer][: self.rates]


SCALES = scales(
    OptimizersConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"), "optimizers": ("adamw", "sgd"), "seeds": 2, "rates": 2, "best_rates": 1,
        "updates": 4, "warmup_updates": 2, "text": TOY, "width": 16, "ffn_width": 24, "heads": 2, "key_value_heads": 1,
        "blocks": 2, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={
        "ladder_seeds": 3, "updates": 20_000, "warmup_updates": 2_000, "text": "corpora/wikipedia", "width": 768,
        "ffn_width": 2048, "heads": 12, "key_value_heads": 4, "blocks": 12, "sequence_length": 1024,
        "batch_sequences": 32, "device": "auto",
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu 1,250 runs of some ten seconds of one core; paper, with models of 124 million
parameters, as many runs of an hour of an accelerator."""
