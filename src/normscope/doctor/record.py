"""The description of a model: its stacks and their sub-layers, how they are wired, what was
measured and what theory predicts.

Every stage fills its part; `measured.py` has what is measured. A recipe is what theory predicts a
stack from when what was recorded is gone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal

from ..placement import SublayerKind
from ..theory.kernels import Activation
from ..theory.mixing import Products
from .find.branches import BranchKind
from .find.formulas import Formula
from .find.terms import Term, ordered
from .measured import INNER, UNMEASURED, NormUse, SublayerMeasurements
from .trace.norms import NormFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWeights:
    """Weights between several streams."""

    made: Literal["constant", "trained", "token"]
    """The origin of the weights: numbers that nothing trains, trained numbers, or numbers made anew
    for every token.
    """
    total: float | None
    """The factor of streams that are all equal, its mean over tokens; None on the meta device."""
    by_feature: bool = False
    """True where every feature has its own factor."""
    spread: float = field(default=0.0, metadata=INNER)
    """The standard deviation of the weights over tokens and streams, relative to their mean; NaN on
    the meta device.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConnection:
    """The connection of a sub-layer with several streams that are kept in one tensor."""

    streams: int = field(metadata=INNER)
    read: StreamWeights | None
    """The weights of the streams in the sum that the sub-layer reads; None where it reads no sum of
    them.
    """
    mixing: StreamWeights | None
    """The weights by which the streams are mixed; None where each goes on as it is."""
    write: StreamWeights
    """The weights of the sub-layer's output where it is added to each stream."""
    from_doubly_stochastic: float | None
    """The largest difference of a sum of the mixing's rows or columns from 1, or its largest
    negative weight, over all tokens; None where nothing is mixed, and on the meta device."""
    one_side_alone: float | None = None
    """The largest difference of row sums from 1 where all columns sum to 1, or the other way round;
    None for any other mixing.
    """
    unwritten: tuple[int, ...] = ()
    """The streams, counted from 1, that get none of the sub-layer's output: it is multiplied by
    exactly 0 there, for every token, and by no trained number.
    """
    tokens_off: float | None = field(default=None, metadata=INNER)
    """The share of tokens at which such a sum differs from 1 by more than `SUMS_TO_ONE`; None
    likewise.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """One sub-layer F, how it is joined to the stream, and what was measured in it."""

    name: str
    """Path of the module that computes F, or of the one with its last weight matrix; "" where no
    module does.
    """
    kind: BranchKind
    block: int
    """Counted from 1; 0 for a branch between the embedding and the first block, such as a
    convolution of positions.
    """
    placement: str
    """Name of a registered placement, or "" where none computes this."""
    also: tuple[str, ...]
    """Further registered placements with this formula here: they differ in weights, at other depths
    or at the ends.
    """
    scaled_placement: str = ""
    """The placement that would compute this if nothing multiplied the branch, where none computes
    it as it is; "" where there is none either.
    """
    confidence: Literal["sure", "unsure"]
    """The confidence in the name, `scaled_placement` where that is one. unsure: there is none, or
    no observation distinguishes it from one of those in `also`.
    """
    formula: Formula
    """The observed formula; x is the stream before the sub-layer, or before the block where one
    reaches across it.
    """
    skip_scale: float | None
    """The factor of x in the residual sum, a vector's mean; None where x is not one of its
    addends.
    """
    branch_scale: float | None
    """The same of F(x)."""
    parallel: bool
    """True where it reads the same x as another sub-layer of its block, and both are added at
    once.
    """
    connection: StreamConnection | None = None
    """The connection with several streams that are kept in one tensor; None for one stream."""
    measured: SublayerMeasurements = UNMEASURED

    @property
    def is_closed(self) -> bool:
        """True where the branch adds nothing: exactly 0, or so little that it is lost in any usual
        dtype.
        """
        return self.measured.branch_square <= 1e-14 * self.measured.stream_square

    @property
    def is_shut_by_gate(self) -> bool:
        """True where it adds nothing because it is multiplied by 0."""
        return self.is_closed and self.branch_scale == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWeights:
    """F of one sub-layer as theory sees it."""

    kind: SublayerKind
    gains: Mapping[str, float]
    """The gains of query, key, value and output, or of ffn_in and ffn_out: E‖Wx‖² over E‖x‖², per
    feature, for entries that are independent of x: fan-in times their mean square.
    """
    inside: Mapping[str, NormFunction]
    """The norms within F, by the places that a placement's formula gives them."""
    inner_width: int = 0
    """The hidden width of a feed-forward."""
    activation: Activation = "relu"
    keys: int = 0
    """The number of keys that a query of attention sees at most."""
    angles: tuple[float, ...] = ()
    """The angle by which each feature of a head's queries and keys is turned from one token to the
    next; empty where no rotary positions were read.
    """


@dataclass(frozen=True, kw_only=True)
class StackRecipe:
    """The computation of a stack from its source, and the numbers in it."""

    width: int
    tokens: int
    """The tokens of a sequence: all that a token may attend to."""
    causal: bool
    parts: tuple[tuple[Products, bool], ...]
    """The parts of the source: one that differs between features, and their mean."""
    weights: Mapping[int, BranchWeights | None]
    """The weights of each branch by its number in the formula; None where theory has no map for
    it.
    """
    source: Term
    streams: tuple[Term, ...]
    """The stream before each sub-layer, in order."""
    end: Term
    rows: int
    """Tokens of all sequences together."""
    asked_everywhere: bool = False
    """True where the output says something of each token."""

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms that are computed from the source, in the order of the recorded pass."""
        every = ordered(Term("other", (*self.streams, self.end)), self.source)[:-1]
        return tuple(sorted(every, key=attrgetter("at")))

    @property
    def is_readable(self) -> bool:
        """True where theory can predict every term."""
        return all(self._knows(term) for term in self.terms)

    def _knows(self, term: Term) -> bool:
        if term.kind == "branch":
            return self.weights[term.branch] is not None
        if term.kind == "norm":
            # Theory knows a curve at the slope that it is published with alone.
            return term.norm is not None and not term.norm.is_curve
        return term.kind in ("sum", "scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTheory:
    """The mean-field prediction for a stack whose placement was found, with one entry a
    sub-layer.
    """

    stream_square: tuple[float, ...]
    """E‖x‖²/d before each sub-layer."""
    correlation: tuple[float, ...]
    """Mean cosine similarity between different tokens' vectors there."""
    gradient_norm: tuple[float | None, ...]
    """The predicted gradient norm of each sub-layer's weight matrices, up to one factor for the
    whole stack that is fitted to the measurement. None where one of them is frozen, where
    sub-layers share their weights, and where theory has no gradient.
    """
    assumptions: str
    """The assumptions of the prediction, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One residual stream from its source to its last sum or norm."""

    name: str
    """Path of the innermost module around all of its sub-layers; "" where that is the model."""
    blocks: int
    """The number of blocks; where the kinds of its sub-layers do not repeat, a block ends with
    every feed-forward that something else follows.
    """
    placement: str
    """The placement of most of its sub-layers, "" where that is none."""
    scaled_placement: str = ""
    """The commonest `scaled_placement` of its sub-layers, where the placement is ""."""
    norm: str
    """layer-norm, rms-norm, scale-norm, sphere-norm, dyt or derf, the commonest of several; ""
    without any.
    """
    norm_epsilon: float | None
    """Added to the mean square; None where norms guard against small inputs in another way, or
    without norms.
    """
    final_norm: bool
    """True where a norm follows that the placement's blocks do not have: after the last sum, or
    inside the output's.
    """
    embedding_norm: bool
    """True where what enters the first sub-layer comes out of a norm."""
    width: int
    streams: int = 1
    """The number of streams of that width, kept in one tensor."""
    streams_start_equal: bool | None = None
    """True where these start as copies of each other; None for one stream, and on the meta
    device.
    """
    streams_stay_copies: bool | None = field(default=None, metadata=INNER)
    """True where several streams that start as copies of each other stay so to the end, whatever is
    trained; None for one stream, for streams that do not start as copies, and where that cannot be
    told.
    """
    sublayers: tuple[Sublayer, ...]
    end_read_by: Literal["norm", "weights", "output"] = "norm"
    """The reader of the last sum: weights, where a matrix reads the sum, or parts or means of it,
    with no norm between; else a norm, where one reads them or stands in the sum; else nothing but
    the model's output.
    """
    memory: int | None = None
    """Number in the model's stacks, from 0, of the one that its cross-attention reads; None where
    that is none.
    """
    memory_normed: bool = True
    """False where matrices of its cross-attention read another stack's values with no norm
    between.
    """
    continues: int | None = None
    """Number of an earlier stack of the same shape that its source is computed from, by weights and
    without a sum.
    """
    cut_by: BranchKind | None = None
    """The kind of branch that computes its source there: attention, convolution over several
    places, or feed_forward for all others.
    """
    feeds_later: bool = field(default=False, metadata=INNER)
    """True where a later stack's source is computed from its end, as from stage to stage of a
    hierarchical model.
    """
    starts_from_given: bool = field(default=False, metadata=INNER)
    """True where its source is first added to rows that are no data, such as learnt queries."""
    # NaN, which equals nothing, must not make two unmeasured stacks unequal.
    source_square: float = field(default=math.nan, compare=False)
    """E‖x_0‖²/d of what enters the first sub-layer of the first block."""
    end_square: float = field(default=math.nan, compare=False)
    """E‖·‖²/d of the stack's result, a final norm included."""
    recipe: StackRecipe | None = field(default=None, repr=False, compare=False, metadata=INNER)
    """The numbers that theory predicts the stack from; None where theory has no model of it."""
    end: int | None = field(default=None, repr=False, compare=False, metadata=INNER)
    """Number of the stack's result in the recorded pass, a final norm included."""
    norm_uses: tuple[NormUse, ...] = field(default=(), repr=False, compare=False, metadata=INNER)
    """The norms in order, without nonlinearities that stand in the place of norms."""
    predicted: StackTheory | None = None
    """The prediction; None where the placement is not known, theory has no model of it, or the
    weights have been trained.
    """

    @property
    def passes(self) -> int:
        """The number of times that all its blocks are applied in turn, with the same weights each
        time.
        """
        matrices = [tuple(one.measured.matrices) for one in self.sublayers]
        distinct = len(set(matrices)) or 1
        times = len(matrices) // distinct
        again = (
            all(matrices) and matrices == matrices[:distinct] * times and self.blocks % times == 0
        )
        return times if again else 1


def with_measured(stack: Stack, found: Iterable[Mapping[str, Any]]) -> Stack:
    """Returns the stack with further fields measured of each sub-layer, in order."""
    both = zip(stack.sublayers, found, strict=True)
    return replace(
        stack,
        sublayers=tuple(replace(one, measured=replace(one.measured, **new)) for one, new in both),
    )


def norm_over(names: Sequence[str], norms: Mapping[str, float]) -> float | None:
    """Returns the norm of several parameters' gradients as one vector, of those that have one; None
    where none has.
    """
    known = [norms[name] for name in names if name in norms]
    return math.hypot(*known) if known else None


def plain(value: Any) -> Any:
    """Returns a record as JSON has it: mappings, tuples and plain values, formulas as text, without
    what is the stages' own.
    """
    if is_dataclass(value) and not isinstance(value, Formula):
        known = [known for known in fields(value) if known.metadata.get("json", True)]
        return {known.name: plain(getattr(value, known.name)) for known in known}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, Formula):
        return str(value)
    return value.value if isinstance(value, Enum) else value
