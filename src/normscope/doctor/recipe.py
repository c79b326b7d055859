"""A stack as theory reads it: its formula with numbers in it, when what was recorded is gone."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..placement import SublayerKind
from ..theory.kernels import Activation
from ..theory.mixing import Products


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerNorm:
    """A norm within F; what it comes out with is multiplied with `gain`."""

    epsilon: float
    centres: bool
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWeights:
    """F of one sub-layer as theory sees it."""

    kind: SublayerKind
    gains: Mapping[str, float]
    """Of query, key, value and output, or of ffn_in and ffn_out: E‖Wx‖² over E‖x‖², per feature, for entries that are
    independent of x: fan-in times their mean square."""
    inside: Mapping[str, InnerNorm]
    """By the places that a placement's formula gives them."""
    inner_width: int = 0
    """Of a feed-forward."""
    activation: Activation = "relu"
    keys: int = 0
    """That a query of attention sees at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep:
    """A sum, or a multiple, of values; or the norm of one, or a sub-layer of one."""

    sources: tuple[int, ...]
    factors: tuple[float, ...]
    norm: InnerNorm | None = None
    branch: BranchWeights | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRecipe:
    """What a stack computes from its source, number by number as in the recorded pass."""

    width: int
    tokens: int
    """Of a sequence: all that a token may attend to."""
    causal: bool
    parts: tuple[tuple[Products, bool], ...]
    """Of the source: what differs between features, and their mean."""
    source: int
    steps: Mapping[int, RecipeStep]
    streams: tuple[int, ...]
    """The stream before each sub-layer, in order."""
    end: int
    memory: int | None
    """Number of the stack whose end cross-attention reads."""
    rows: int
    """Tokens of all sequences together."""
    asked_everywhere: bool = False
    """Whether the output says something of each of them."""
