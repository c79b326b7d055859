"""The sizes at which a study can be asked."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One size that a study can be asked at."""

    config: Any
    """A frozen dataclass, of keyword arguments alone, whose __post_init__ raises ValueError for what cannot be
    measured."""
    decides: bool = True
    """False for a size that shows that a study works and no more. The page, the data and the terminal then say that
    the verdicts mean nothing."""
