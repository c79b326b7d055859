"""A stack as theory reads it: its formula, evaluated with moments when what was recorded is gone."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from ..placement import Placement, Site, StackShape, SublayerKind
from ..theory.differing import RANDOM
from ..theory.kernels import Activation
from ..theory.mixing import Products
from ..theory.moments import Moments
from ..theory.operations import MomentNorms
from ..theory.stream import MomentStack, StreamSetting
from .find.terms import Term, ordered
from .trace.norms import NormFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWeights:
    """F of one sub-layer as theory sees it."""

    kind: SublayerKind
    gains: Mapping[str, float]
    """Of query, key, value and output, or of ffn_in and ffn_out: E‖Wx‖² over E‖x‖², per feature, for entries that are
    independent of x: fan-in times their mean square."""
    inside: Mapping[str, NormFunction]
    """By the places that a placement's formula gives them."""
    inner_width: int = 0
    """Of a feed-forward."""
    activation: Activation = "relu"
    keys: int = 0
    """That a query of attention sees at most."""


@dataclass(frozen=True, kw_only=True)
class StackRecipe:
    """What a stack computes from its source, and with which numbers."""

    width: int
    tokens: int
    """Of a sequence: all that a token may attend to."""
    causal: bool
    parts: tuple[tuple[Products, bool], ...]
    """Of the source: what differs between features, and their mean."""
    weights: Mapping[int, BranchWeights | None]
    """By the number that a branch has in the formula; None where theory has no map for it."""
    source: Term
    streams: tuple[Term, ...]
    """The stream before each sub-layer, in order."""
    end: Term
    rows: int
    """Tokens of all sequences together."""
    asked_everywhere: bool = False
    """Whether the output says something of each of them."""

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """What is computed from the source, in the order of the recorded pass."""
        every = ordered(Term("other", (*self.streams, self.end)), self.source)[:-1]
        return tuple(sorted(every, key=attrgetter("at")))

    @property
    def is_readable(self) -> bool:
        """Whether theory knows all that it computes."""
        return all(self._knows(term) for term in self.terms)

    def _knows(self, term: Term) -> bool:
        if term.kind == "branch":
            return self.weights[term.branch] is not None
        if term.kind == "norm":
            # Theory knows a curve at the slope that it is published with alone.
            return term.norm is not None and not term.norm.is_curve
        return term.kind in ("sum", "scale")


@dataclass(slots=True)
class RecipeReading:
    """A recipe read with moments: of its terms, one by one, what they are."""

    recipe: StackRecipe
    memory: "RecipeReading | None"
    """Of the stack that cross-attention reads."""
    stack: MomentStack = field(init=False)
    values: dict[Term, Moments] = field(default_factory=dict)
    _applied: list[BranchWeights] = field(default_factory=list)

    def __post_init__(self) -> None:
        recipe, memory = self.recipe, self.memory
        self.stack = MomentStack(
            Placement(
                StackShape(
                    kind="decoder" if recipe.causal else "encoder",
                    width=recipe.width,
                    encoder_blocks=1,
                    decoder_blocks=1,
                )
            ),
            StreamSetting(
                tokens=recipe.tokens,
                weight_std=self._std,
                memory=memory.end.mean if memory else None,
                memory_tokens=memory.recipe.tokens if memory else 0,
                memory_differing=memory.end.differing if memory else RANDOM,
            ),
        )
        for products, centred in recipe.parts:
            self.stack.atoms.add(*products, centred=centred)
        self.values[recipe.source] = Moments.sum_of(self.stack.atoms)
        for term in recipe.terms:
            self.values[term] = self._read(term, *(self.values[argument] for argument in term.arguments))
        self.stack.output = self.end

    @property
    def end(self) -> Moments:
        return self.values[self.recipe.end]

    def _read(self, term: Term, x: Moments, *others: Moments) -> Moments:
        if term.kind == "branch":
            return self._apply(self.recipe.weights[term.branch], x)
        if term.norm is not None:
            x = _norm(term.norm)(x)
            for gain in term.gains:
                x = x * gain.size
        elif term.factor is not None:
            x = x * term.factor.size
        for other in others:
            x = x + other
        return x

    def _std(self, name: str, site: Site) -> float:
        of = self._applied[site.block - 1]
        fan_in = of.inner_width if name == "ffn_out" else self.recipe.width
        return math.sqrt(of.gains[name] / fan_in)

    def _apply(self, weights: BranchWeights | None, x: Moments) -> Moments:
        """F as the next sub-layer of the stack, with a shape and an activation of its own."""
        assert weights is not None
        self._applied.append(weights)
        causal = self.recipe.causal and weights.kind == "attention"
        shape = StackShape(
            kind="decoder" if causal else "encoder",
            width=self.recipe.width,
            ffn_width=weights.inner_width,
            encoder_blocks=1,
            decoder_blocks=1,
        )
        self.stack.setting = replace(self.stack.setting, activation=weights.activation)
        site = Site(kind=weights.kind, block=len(self._applied), stack=shape)
        return self.stack.apply(site, x, {place: _norm(norm) for place, norm in weights.inside.items()})


def _norm(norm: NormFunction) -> Callable[[Moments], Moments]:
    divided = MomentNorms(0.0 if math.isnan(norm.epsilon) else norm.epsilon, centres=norm.kind == "layer")
    return lambda x: divided(x) * norm.gain
