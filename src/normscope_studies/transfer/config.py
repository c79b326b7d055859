"""How far width and depth are taken, and how finely rates are looked at."""

from dataclasses import dataclass

from normscope.data.opening import TOY

from ..engine.checks import check_defined_for, check_different, check_positive, check_rising
from ..engine.models import LadderConfig
from ..engine.study import scales

AXES = ("width", "depth")
PROMISED = (
    ("completep", "depth", "Dey et al. 2025, arXiv:2505.01618, section 3, with its own learning rates by layer"),
    ("depth-mup", "depth", "Yang et al. 2023, arXiv:2310.02244, section 1, of blocks of one layer"),
)
"""Promised along an axis; of the width nothing is, since no placement changes what a wider matrix does."""
PLACEMENTS = ("post-ln", "pre-ln", "deepnorm", "peri-ln", "completep", "depth-mup", "mhc")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig(LadderConfig):
    """Decoders of the Llama preset under Adam, alike but for placement, width or depth, warm-up and rate."""

    placements: tuple[str, ...] = PLACEMENTS
    widths: tuple[int, ...] = (32, 64, 96, 128)
    """At the first of `depths`."""
    depths: tuple[int, ...] = (4, 8, 16, 32)
    """In blocks, at the first of `widths`."""
    head_width: int = 16
    ffn_ratio: float = 2.75
    """The feed-forward's width over the model's."""
    peak_lrs: tuple[float, ...] = (7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2)
    """The ladder, in rising order."""
    warmup_updates: int = 10
    updates: int = 60
    ladder_seeds: int = 1
    """Seeds that climb the ladder of rates; the exponent of the best rate has its interval from the scatter of all
    sizes about the line."""
    seeds: int = 3
    """Of the coordinate checks."""
    coordinate_lr: float = 1e-3
    """Of the coordinate checks, the same for all sizes and without warm-up."""
    coordinate_updates: tuple[int, ...] = (1, 2, 5, 10)
    """After which the change is measured."""
    coordinate_edge: float = 0.15
    """A change transfers where the interval of its exponent lies within so much of 0."""
    rate_edge: float = 0.25
    """A best rate transfers where the interval of its exponent lies within so much of 0."""
    text: str = "corpora/wikipedia_1000"
    preset: str = "llama"

    def __post_init__(self) -> None:
        LadderConfig.__post_init__(self)
        check_different(self, "placements", "widths", "depths", "peak_lrs", "coordinate_updates")
        check_rising(self, "widths", "depths", "peak_lrs", "coordinate_updates")
        for name in ("widths", "depths"):
            if len(getattr(self, name)) < 2:
                raise ValueError(f"{name}: an exponent takes at least two sizes, got {getattr(self, name)}")
        if odd := [width for width in self.widths if width % self.head_width]:
            raise ValueError(f"widths must be multiples of head_width={self.head_width}, got {odd}")
        check_positive(self, "coordinate_lr", "coordinate_edge", "rate_edge", "ffn_ratio")
        check_defined_for(self, "placements", model="decoder-only")

    def sizes(self, axis: str) -> list[tuple[int, int]]:
        """Width and blocks of every size along an axis, the smallest first."""
        if axis == "width":
            return [(width, self.depths[0]) for width in self.widths]
        return [(self.widths[0], depth) for depth in self.depths]

    def along(self, axis: str) -> tuple[int, ...]:
        """The sizes themselves."""
        return self.widths if axis == "width" else self.depths


SCALES = scales(
    TransferConfig,
    smoke={
        "placements": ("pre-ln", "completep"), "widths": (16, 32), "depths": (1, 2), "head_width": 8,
        "peak_lrs": (1e-3, 1e-2), "updates": 4, "warmup_updates": 2, "seeds": 2, "coordinate_updates": (1, 2),
        "text": TOY, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={
        "widths": (256, 512, 1024, 2048), "depths": (8, 16, 32, 64), "head_width": 64,
        "peak_lrs": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "updates": 5_000, "warmup_updates": 500,
        "text": "corpora/wikipedia", "sequence_length": 1024, "batch_sequences": 32, "device": "auto",
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some 500 runs of five to thirty seconds of one core; paper, with models of up to 900
million parameters, some 700 runs of minutes to hours of an accelerator."""
