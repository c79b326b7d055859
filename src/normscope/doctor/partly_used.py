"""The measurements of parts that not all of a model goes through, or that no loss trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A choice of some out of several, such as experts, for every token by scores."""

    name: str
    """The name of the innermost module that ran."""
    tokens: int
    among: int
    chosen: tuple[int, ...]
    """The choices that every token gets, where a difference that is the same for all tokens
    decides; empty where the tokens decide.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CutUnits:
    """A feed-forward whose hidden units carry little."""

    name: str
    """The name of the sub-layer."""
    shared_by: int
    """Units that a softmax over them shares 1 among; 0 where none does."""
    cut: float
    """Share of their values that a bound cuts off; 0 where that is not most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyUsed:
    """All of it."""

    sendings: tuple[Sending, ...] = ()
    """Choices of the experts that tokens are sent to, in the order in which they are made."""
    cut_units: tuple[CutUnits, ...] = ()
    """Feed-forwards whose hidden units carry little."""
    detached_products: tuple[str, ...] = ()
    """Trained parameters that are multiplied with data somewhere as a detached view of them."""
    dropped_products: tuple[str, ...] = ()
    """Trained matrices whose products with data make nothing of the output."""
    growing_along: Mapping[str, float] = field(default_factory=dict)
    """Sub-layers without attention that add many times more at the end of a sequence than in its
    first half, with that number."""
