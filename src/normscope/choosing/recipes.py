"""The recipes of models that others have trained, each read in a file of theirs."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..placement.base import ModelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRecipe:
    """A recipe with which others have trained a model, read in a file of theirs."""

    name: str
    repository: str
    path: str
    commit: str
    model: ModelKind
    placement: str
    blocks: int
    width: int
    optimizer: str
    peak_lr: float
    warmup_updates: int | None = None
    """The updates of warm-up; None where the file does not say, or counts tokens."""
    updates: int | None = None
    batch_tokens: int | None = None
    """The tokens of one update, over all devices and accumulation; None where the file does not
    say.
    """
    family: str = ""
    """Recipes of one count as one where the law is judged: by default those of one repository."""
    of_images: bool = False

    @property
    def citation(self) -> str:
        return f"{self.name}, {self.repository}, {self.path}"


@cache
def recipes() -> Sequence[RateRecipe]:
    """Returns every recipe that we read, in the order of the file."""
    text = Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8")
    return [RateRecipe(**one) for one in tomllib.loads(text)["recipe"]]
