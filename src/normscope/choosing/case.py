"""The model one wants to train: how far from it something was measured, and what theory says of its
depth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from ..placement.base import ModelKind
from ..settings.tables import check_choice
from ..theory.predict import predict_or_refuse
from ..theory.settings import ModelSetting
from .evidence import EvidenceSetting

NEAR = 4.0
"""Evidence from sizes within this factor, in depth, width and tokens, is near; from any other it is
small-scale, or of another size. No result says how far evidence carries: the factor is a
convention, and it is told with the distances."""
SAME = (frozenset({"adam", "adamw"}),)
"""Optimisers whose evidence counts for one another: they differ in how weights decay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToTrain:
    """A model that is to be trained. Raises ValueError for what is no model."""

    model: ModelKind
    blocks: int
    """The number of blocks of a stack; an encoder-decoder has as many in each."""
    width: int
    optimizer: str
    tokens: float | None = None
    """The tokens of the whole training; None where not known, and then not compared."""
    batch_tokens: float | None = None
    """The tokens of one update, over all devices and accumulation; None where not known."""

    def __post_init__(self) -> None:
        check_choice("model", self.model, get_args(ModelKind))
        for name in ("blocks", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, such in (("tokens", "5e9"), ("batch_tokens", "5e5")):
            given = getattr(self, name)
            if given is not None and not 1 <= given < float("inf"):
                raise ValueError(
                    f"{name} must be a number of tokens, such as {such}, got {given:g}"
                )

    def __str__(self) -> str:
        tokens = "" if self.tokens is None else f", {self.tokens:,.0f} tokens"
        batch = "" if self.batch_tokens is None else f" in batches of {self.batch_tokens:,.0f}"
        return (
            f"{self.model}, {self.blocks} blocks of width {self.width:,}, "
            f"{self.optimizer}{tokens}{batch}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The case over the setting: 3 where the case is three times as deep, 0.5 where it is half as
    deep.
    """

    blocks: float
    width: float
    tokens: float | None

    @property
    def factors(self) -> dict[str, float]:
        """The factors by what is compared."""
        found = {"depth": self.blocks, "width": self.width}
        return found if self.tokens is None else {**found, "tokens": self.tokens}

    @property
    def total(self) -> float:
        """The product of all factors, each taken so that it is 1 or more: 1 is the case itself."""
        return math.prod(max(factor, 1 / factor) for factor in self.factors.values())

    @property
    def is_near(self) -> bool:
        return all(1 / NEAR <= factor <= NEAR for factor in self.factors.values())

    @property
    def is_small_scale(self) -> bool:
        """True where the case is larger by more than `NEAR` in something."""
        return any(factor > NEAR for factor in self.factors.values())


def distance(case: ModelToTrain, setting: EvidenceSetting) -> Distance:
    """Returns the distance of a case to the nearest size of the setting."""
    return Distance(
        blocks=case.blocks / _nearest(case.blocks, setting.blocks),
        width=case.width / _nearest(case.width, setting.width),
        tokens=None if case.tokens is None else case.tokens / setting.tokens,
    )


def counts_for(optimizer: str, other: str) -> bool:
    """Tells whether evidence under one optimiser counts under the other."""
    return optimizer == other or any({optimizer, other} <= same for same in SAME)


def _nearest(value: int, span: tuple[int, int]) -> int:
    return min(max(value, span[0]), span[1])


GRADIENT_OF = "ffn_out"
"""The matrix whose gradient is told, the last one of a block."""
_STACKS = {
    "encoder-only": "encoder",
    "decoder-only": "decoder",
    "encoder-decoder": "encoder-decoder",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthPrediction:
    """The prediction for one placement at the case's depth and width."""

    placement: str
    start_square: float
    """E‖x_0‖² / d, of the embedding."""
    end_square: float
    """E‖x_L‖² / d after the last block."""
    first_gradient: float
    last_gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """The predictions before any update; of an encoder-decoder, its decoder."""

    command: str
    """The command that computes the same curves block by block."""
    foreseen: Sequence[_DepthPrediction]
    refused: Sequence[str]
    """Placements that theory does not follow."""


def theory(case: ModelToTrain, placements: Sequence[str]) -> Theory:
    """For placements that are defined for the model."""
    model = ModelSetting(
        stack=_STACKS[case.model],  # type: ignore[arg-type]
        blocks=case.blocks,
        width=case.width,
        ffn_width=4 * case.width,
        setting="as-placement",
    )
    found, refused = predict_or_refuse(placements, model)
    foreseen = []
    for name, stacks in found.items():
        last = list(stacks.values())[-1]
        gradient = last.gradient_norm[GRADIENT_OF]
        foreseen.append(
            _DepthPrediction(
                placement=name,
                start_square=float(last.q[0]),
                end_square=float(last.q[-1]),
                first_gradient=float(gradient[0]),
                last_gradient=float(gradient[-1]),
            )
        )
    options = (
        f"--stack {model.stack} --blocks {model.blocks} --width {model.width} --ffn-width "
        f"{model.ffn_width}"
    )
    return Theory(
        command=f"normscope predict {' '.join(found)} {options} --setting {model.setting}",
        foreseen=foreseen,
        refused=list(refused),
    )
