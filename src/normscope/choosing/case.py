"""The model one wants to train, and how far from it something was measured."""

from dataclasses import dataclass
from typing import get_args

from ..placement.base import ModelKind
from ..settings.tables import check_choice
from .values import Setting

NEAR = 4.0
"""Evidence from sizes within this factor, in depth, width and tokens, is near; from any other it is small-scale, or of
another size. No result says how far evidence carries: the factor is a convention, and it is told with the distances."""
SAME = (frozenset({"adam", "adamw"}),)
"""Optimisers whose evidence counts for one another: they differ in how weights decay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Raises ValueError for what is no model."""

    model: ModelKind
    blocks: int
    """Of a stack; an encoder-decoder has as many in each."""
    width: int
    optimizer: str
    tokens: float | None = None
    """Of the whole training; None where it is not known, and then not compared."""

    def __post_init__(self) -> None:
        check_choice("model", self.model, get_args(ModelKind))
        for name in ("blocks", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.tokens is not None and not 1 <= self.tokens < float("inf"):
            raise ValueError(f"tokens must be a number of tokens, such as 5e9, got {self.tokens:g}")

    def __str__(self) -> str:
        tokens = "" if self.tokens is None else f", {self.tokens:,.0f} tokens"
        return f"{self.model}, {self.blocks} blocks of width {self.width:,}, {self.optimizer}{tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The case over the setting: 3 where the case is three times as deep, 0.5 where it is half as deep."""

    blocks: float
    width: float
    tokens: float | None

    @property
    def factors(self) -> dict[str, float]:
        """By what is compared."""
        found = {"depth": self.blocks, "width": self.width}
        return found if self.tokens is None else {**found, "tokens": self.tokens}

    @property
    def total(self) -> float:
        """The product of all factors, each taken so that it is 1 or more: 1 is the case itself."""
        product = 1.0
        for factor in self.factors.values():
            product *= max(factor, 1 / factor)
        return product

    @property
    def is_near(self) -> bool:
        return all(1 / NEAR <= factor <= NEAR for factor in self.factors.values())

    @property
    def is_small_scale(self) -> bool:
        """Whether the case is larger by more than `NEAR` in something."""
        return any(factor > NEAR for factor in self.factors.values())


def distance(case: Case, setting: Setting) -> Distance:
    """To the nearest size of the setting."""
    return Distance(
        blocks=case.blocks / _nearest(case.blocks, setting.blocks),
        width=case.width / _nearest(case.width, setting.width),
        tokens=None if case.tokens is None else case.tokens / setting.tokens,
    )


def counts_for(optimizer: str, other: str) -> bool:
    """Whether evidence under one optimiser counts under the other."""
    return optimizer == other or any({optimizer, other} <= same for same in SAME)


def _nearest(value: int, span: tuple[int, int]) -> int:
    return min(max(value, span[0]), span[1])
