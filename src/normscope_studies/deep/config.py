"""Names what is trained: very deep decoders, and how wide they are at each depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from normscope.compare.grid import Cell
from normscope.data.opening import TOY
from normscope.runs.config import replaced
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine import checks
from ..engine.decoders import OPTIMIZER, DecoderLadders, check_decoders
from ..engine.study import scales


class _DepthArm(NamedTuple):
    """Trainings that differ in their rate and their seed alone."""

    placement: str
    blocks: str
    """The number of blocks, in digits: the middle of a ladder's key is a text."""
    warmup_updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepLadders(DecoderLadders):
    """Decoders of one depth, their weights drawn as each placement's source draws them: what
    DeepNorm scales down at the start is a half of it.
    """

    def base(self) -> LanguageModelRunConfig:
        """Returns what all runs share. Raises UserError for text that is not there."""
        return replaced(DecoderLadders.base(self), model__initialisation="as-placement")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepConfig:
    """Decoders of several depths, alike at each but for placement and its best rate.

    Raises ValueError for what cannot be trained or compared.
    """

    depths: tuple[str, ...] = ("100:64", "1000:16")
    """BLOCKS:WIDTH, rising; the deeper, the narrower, as all blocks are gone through one by one."""
    placements: tuple[str, ...] = ("deepnorm", "post-ln", "pre-ln")
    scaled: str = "deepnorm"
    """The placement that is said to train at any depth."""
    post: str = "post-ln"
    """The placement that is said not to."""
    text: str = "corpora/wikipedia_1000"
    """A folder made by `normscope data documents`, or `toy`."""
    sequence_length: int = 64
    batch_sequences: int = 8
    heads: int = 2
    ffn_times: int = 2
    """The feed-forward's width over the model's."""
    updates: int = 300
    warmup_updates: int = 30
    """The warm-up of all runs, which go to 0 in a straight line from there on."""
    peak_lrs: tuple[float, ...] = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
    """The ladder, rising."""
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Others, which are trained at the best rate of the ladder and judge."""
    weight_decay: float = 0.1
    windows: int = 20
    """Into how many stretches a training is cut, over which its losses are averaged, to see whether
    they rise.
    """
    rise_nats: float = 0.1
    """A training is steady whose loss never rises by more above the lowest that it had reached."""
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """Numbers that products are computed in, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "depths", "placements")
        check_decoders("placements", self.placements)
        checks.check_least(self, ffn_times=1, windows=2, updates=self.windows)
        checks.check_positive(self, "rise_nats")
        for name in ("scaled", "post"):
            if getattr(self, name) not in self.placements:
                raise ValueError(f"{name}={getattr(self, name)} must be among the placements")
        if self.scaled == self.post:
            raise ValueError(f"scaled and post must be two placements, got {self.post} twice")
        rising = list(self.widths) == sorted(self.widths)
        if not rising or len(self.widths) < len(self.depths):
            raise ValueError(f"depths must rise, each but once, got {', '.join(self.depths)}")
        for blocks in self.widths:
            self.at(blocks)

    @property
    def widths(self) -> dict[int, int]:
        """Returns the widths by the number of blocks. Raises ValueError for what is not a depth and
        a width.
        """
        found = {}
        for one in self.depths:
            blocks, _, width = one.partition(":")
            if not (blocks.isdecimal() and width.isdecimal()):
                raise ValueError(f"depths must be BLOCKS:WIDTH, such as 100:64, got {one!r}")
            if int(width) % self.heads or not int(width):
                raise ValueError(
                    f"depths: the width of {one} must be a multiple of heads={self.heads}"
                )
            found[int(blocks)] = int(width)
        return found

    @property
    def arms(self) -> list[_DepthArm]:
        """The arms: every placement at every number of blocks, with the warm-up."""
        return [
            _DepthArm(placement, str(blocks), self.warmup_updates)
            for blocks in self.widths
            for placement in self.placements
        ]

    def cells(
        self, folder: Path, arm: tuple[str, str, int], peak_lrs: Sequence[float], seeds: range
    ) -> list[Cell]:
        """Returns the runs of an arm at these rates and seeds; those of a depth lie in a folder of
        their own.
        """
        placement, blocks, warmup_updates = arm
        asked = self.at(int(blocks))
        own = (placement, OPTIMIZER, warmup_updates)
        return asked.cells(asked.base(), folder / f"blocks-{blocks}", own, peak_lrs, seeds)

    def at(self, blocks: int) -> DeepLadders:
        """Returns what is trained at one depth."""
        width = self.widths[blocks]
        shared = checks.settings_of(
            self,
            "text",
            "sequence_length",
            "batch_sequences",
            "heads",
            "updates",
            "warmup_updates",
            "peak_lrs",
            "ladder_seeds",
            "seeds",
            "weight_decay",
            "device",
            "precision",
        )
        return DeepLadders(blocks=blocks, width=width, ffn_width=self.ffn_times * width, **shared)


SCALES = scales(
    DeepConfig,
    smoke={
        "depths": ("8:16", "100:8"), "text": TOY, "sequence_length": 24, "batch_sequences": 16,
        "updates": 4, "warmup_updates": 1, "windows": 2, "peak_lrs": (1e-3,), "seeds": 1,
    },
    paper={
        "depths": ("100:512", "200:512", "1000:256"), "text": "corpora/wikipedia",
        "sequence_length": 512, "batch_sequences": 16, "heads": 8, "ffn_times": 4,
        "updates": 20_000, "warmup_updates": 2_000, "device": "auto",
    },
    more={
        "gpu": {
            "depths": ("100:256", "1000:64"), "heads": 4, "batch_sequences": 16, "device": "cuda",
        },
    },
)  # fmt: skip
"""Cost: smoke takes a minute; cpu 24 runs of two minutes of one core and 24 of a quarter of an
hour, seven core-hours in all; paper as many runs of hours of an accelerator; gpu, with
`--processes 16`, some minutes of one by arithmetic, which nobody has timed."""
