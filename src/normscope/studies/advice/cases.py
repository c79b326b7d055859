"""The models whose trainings the doctor's advice is fitted to and judged by, and the rates they are tried at."""

import math
from dataclasses import dataclass

from ...data.parallel.opening import TOY
from ...model import ModelConfig
from ...optim.optimizers import OPTIMIZERS, OptimizerName
from ...placement import named

TENTH = 3
"""Steps between a rate and a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An encoder-decoder, its optimiser and its corpus."""

    placement: str
    blocks: int
    """Of the encoder, and as many of the decoder."""
    width: int
    """The feed-forward is twice as wide; heads have 16 dimensions."""
    optimizer: OptimizerName = "adam"
    corpus: str = TOY
    """A folder made by `normscope data prepare`, or `toy`."""
    seed: int = 1
    """Of the weights and the order of the batches."""

    def __post_init__(self) -> None:
        named(self.placement)
        if self.blocks < 1 or self.width % 16:
            raise ValueError(f"blocks must be at least 1 and width a multiple of 16, got {self.blocks}, {self.width}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")

    @property
    def name(self) -> str:
        """Safe as a part of a file's name."""
        corpus = self.corpus.rstrip("/").rpartition("/")[2]
        return f"{corpus}_{self.placement}_{self.blocks}-{self.blocks}_{self.width}_{self.optimizer}_seed-{self.seed}"

    def model(self) -> ModelConfig:
        return ModelConfig(
            placement=self.placement,
            width=self.width,
            ffn_width=2 * self.width,
            heads=self.width // 16,
            encoder_blocks=self.blocks,
            decoder_blocks=self.blocks,
            dropout=0.0,
        )


def rate_of(step: int) -> float:
    """Rates a third of a decade apart: 0 is 1, and -3 is 0.1."""
    return float(f"{10 ** (step / 3):.3g}")


def searched_steps(optimizer: str) -> tuple[int, int]:
    """Where the search for the largest rate that trains begins and ends, as steps of `rate_of`."""
    first, last = (round(3 * math.log10(rate)) for rate in OPTIMIZERS[optimizer].searched_rates)
    return first, last


def _cases(optimizer: OptimizerName, seed: int, sizes: str, corpus: str = TOY) -> list[Case]:
    """sizes: "post-ln 2x32 5x64; pre-ln 2x32", placements with blocks x width."""
    found = []
    for line in sizes.split(";"):
        placement, *several = line.split()
        for size in several:
            blocks, width = map(int, size.split("x"))
            found.append(
                Case(placement=placement, blocks=blocks, width=width, optimizer=optimizer, corpus=corpus, seed=seed)
            )
    return found


def calibration_cases(multi30k: str) -> list[Case]:
    """What the advice is fitted to: 2, 5 and 9 blocks, width 32 and 64."""
    return [
        *_cases("adam", 1, "post-ln 5x32 2x64 9x32 5x64 2x32 9x64; pre-ln 5x32 9x64 2x64 9x32 5x64 2x32"),
        *_cases("adam", 1, "deepnorm 5x32 9x64 2x64; peri-ln 5x64 9x32; rezero 5x32 9x64; residual 5x32"),
        *_cases("adam", 1, "b2t 5x64; mix-ln 9x32; admin 5x32; scale-norm 5x64; sub-ln 5x64; ds-init 5x32"),
        *_cases("sgd", 1, "post-ln 2x64 5x32 9x32; pre-ln 2x64 9x64; deepnorm 5x64; peri-ln 5x32"),
        *_cases("lion", 1, "post-ln 2x64 5x32; pre-ln 5x64 2x32; deepnorm 5x64"),
        *_cases("radam", 1, "post-ln 2x32 9x32; pre-ln 5x32; deepnorm 5x32"),
        *_cases("adam", 1, "post-ln 2x64 5x32; pre-ln 5x64; deepnorm 5x32", multi30k),
        *_cases("lion", 1, "post-ln 2x64", multi30k),
        *_cases("sgd", 1, "pre-ln 5x32", multi30k),
    ]


def evaluation_cases(multi30k: str) -> list[Case]:
    """What it is judged by: other depths, other widths, other seeds, and placements it has not seen."""
    return [
        *_cases("adam", 2, "post-ln 6x48 3x80 3x48 8x48 4x80; pre-ln 6x48 4x80 3x48 8x48"),
        *_cases("adam", 2, "deepnorm 6x48 4x48; peri-ln 6x48; rezero 6x48; residual 6x48; b2t 6x48"),
        *_cases("adam", 2, "mix-ln 6x48; sandwich 6x48; sub-ln 6x48; hybrid-norm 6x48; lns 6x48"),
        *_cases("adamw", 2, "post-ln 4x48; pre-ln 4x48"),
        *_cases("sgd", 2, "post-ln 6x48 3x80; pre-ln 6x48; deepnorm 3x48"),
        *_cases("lion", 2, "post-ln 6x48 3x48; pre-ln 3x80; deepnorm 4x48"),
        *_cases("radam", 2, "post-ln 6x48 3x80; pre-ln 6x48; deepnorm 3x48"),
        *_cases("adam", 2, "post-ln 3x48; pre-ln 3x48; deepnorm 3x48", multi30k),
        *_cases("lion", 2, "post-ln 3x48", multi30k),
    ]


def warmup_cases() -> list[Case]:
    """Of the calibration's, those in which warm-ups are looked for."""
    return _cases("adam", 1, "post-ln 2x64 5x32 9x32; deepnorm 2x64; pre-ln 2x64; b2t 5x64")
