"""What a model is: its stacks and their sub-layers, how they are wired, what was measured and what theory predicts.

Every stage fills its part. Structure is found, measurements are taken in one forward and one backward pass, and what
was not measured is NaN or None. Squares are means over all tokens, divided by the width d of the stream: 1 is what a
norm gives.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from .find.branches import BranchKind
from .find.formulas import Formula
from .outside import NormGain, OutputMatrix, Table
from .recipe import StackRecipe

_INNER: Mapping[str, Any] = MappingProxyType({"json": False})
"""Of a field that `plain` leaves out: the doctor's own stages alone need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWeights:
    """Weights between several streams."""

    made: Literal["constant", "trained", "token"]
    """From numbers that nothing trains, from trained numbers, or anew for every token."""
    total: float | None
    """What streams that are all equal are multiplied with, the mean over tokens; None on the meta device."""
    by_feature: bool = False
    """Whether every feature has its own."""
    spread: float = field(default=0.0, metadata=_INNER)
    """Their standard deviation over tokens and streams, relative to their mean; NaN on the meta device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConnection:
    """How a sub-layer is connected with several streams that are kept in one tensor."""

    streams: int = field(metadata=_INNER)
    read: StreamWeights | None
    """What the streams are multiplied with in what the sub-layer reads; None where it reads no sum of them."""
    mixing: StreamWeights | None
    """What they are mixed with; None where each goes on as it is."""
    write: StreamWeights
    """What the sub-layer's output is multiplied with where it is added to each."""
    from_doubly_stochastic: float | None
    """The largest difference of a sum of the mixing's rows or columns from 1, or its largest negative weight, over all
    tokens; None where nothing is mixed, and on the meta device."""
    one_side_alone: float | None = None
    """How far rows' sums are from 1 where all columns' are 1, or the other way round; None of any other mixing."""
    unwritten: tuple[int, ...] = ()
    """Which streams, counted from 1, get none of the sub-layer's output: it is multiplied by exactly 0 there, for every
    token, and by no trained number."""
    tokens_off: float | None = field(default=None, metadata=_INNER)
    """The share of tokens at which such a sum differs from 1 by more than `SUMS_TO_ONE`; None likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlace:
    """Where a sub-layer stands in a recorded pass, by the numbers of its values."""

    stream: int
    """What it is added to, before any scale."""
    addend: int
    """F(x) as it is added; what `branch_square` is of but for factors of the sum."""
    sum: int
    """The residual sum in which the two meet; of means over depth the first that F(x) goes into. The terms of the
    sub-layer's formula, norms among them, know their numbers likewise."""
    inputs: tuple[int, ...]
    """What F is computed from beside weights: what it reads, of other streams too, and what else comes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormUse:
    """A norm on a stack's stream or around one of its branches, where it is applied."""

    at: int
    """Number of its value, as the terms of formulas have it."""
    reads: int
    """Number of what it norms."""
    parameters: tuple[str, ...]
    """Names of its gains and shifts."""
    again: int | None = None
    """Number of the norm whose output it norms, where nothing else reads that."""
    shape: tuple[int, ...] = ()
    """Of what it norms."""
    over: tuple[int, ...] = ()
    """The dimensions of that, counted from 0, that it takes statistics over."""
    of_unit_length: bool = False
    """Whether tokens leave it, and its gain, at the length 1, where those of a norm have the length √d."""
    detached: bool = False
    """Whether no gradient passes through its statistics."""
    features: int | None = None
    """The one that holds the features: matrices after it contract that alone; None where that does not show."""


PlaceLogits = Literal["", "none", "queries", "sums", "farther", "heads", "apart"]
"""What logits depend on: nothing, the query's place alone, the sum of both places, the distance, with which they grow,
no place but the head, by which queries are turned, places in any other way; "" where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMeasurements:
    """Attention of one sub-layer at work; means are over queries, those with few keys apart."""

    head_width: int
    keys: float = math.nan
    """How many a query may look at."""
    all_keys: int = 0
    """How many there are, those that masks hide among them."""
    deviation: float = math.nan
    """Of a query's logits over its keys, biases and masks apart."""
    entropy: float = math.nan
    """Of its weights over ln(keys): 1 is a plain mean, near 0 it copies one token."""
    largest: float = math.nan
    """Of its weights."""
    scale: float | None = None
    """The number that products of queries and keys are multiplied with; None where it is trained, or not known."""
    normed: tuple[str, ...] = ()
    """Which of queries and keys have a norm after the matrix that makes them."""
    normed_wrong: tuple[str, ...] = ()
    """Those of them whose norm takes its statistics over other dimensions than a head's features."""
    unnormed: tuple[str, ...] = ()
    """Which of queries, keys and values are made from what others of them are made from a norm of."""
    query_size: float = math.nan
    """Root mean square of an entry, without what `scale` holds."""
    key_size: float = math.nan
    drawn: float | None = None
    """What the matrices of queries and keys make of a logit over what two like that of values would; None where these
    are not known."""
    wrong_axis: str = ""
    """Along which dimension its softmax sums to 1, where that is not the one that values are weighed along."""
    sees_later: float | None = None
    """Share of the queries that look at a later token, of those that have one; None where keys are no such tokens."""
    sees_earlier: float | None = None
    sees_itself: float | None = None
    on_padding: float | None = None
    """Mean weight on tokens that the batch's mask says are none; None without a mask with any such token."""
    place_logits: PlaceLogits | None = None
    """By tokens that are all alike; None where that was not looked for, or is not understood."""
    places_in_values: bool = False
    """Whether what is weighed depends on its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SublayerMeasurements:
    """One sub-layer F at work."""

    stream_square: float = math.nan
    """E‖x‖²/d of the stream that F is added to, before any scale."""
    branch_square: float = math.nan
    """E‖F(x)‖²/d as it is added, scales and norms of the branch included."""
    sum_square: float = math.nan
    """E‖·‖²/d of the residual sum, before a norm that follows it."""
    correlation: float | None = None
    """Mean cosine of the stream's vectors at different tokens of one sequence, before the sub-layer; None for one."""
    share: float = math.nan
    """Squared norm of what is added over that plus that of the scaled skip: near 0 the sub-layer is diluted."""
    parameters: tuple[str, ...] = ()
    """Names of the model's parameters that F is computed with, in the order of use; norms around it are not among
    them. A parameter that several sub-layers use is named in each."""
    matrices: tuple[str, ...] = field(default=(), metadata=_INNER)
    """Those of `parameters` that data is multiplied with in products and convolutions, and those that such a matrix is
    made from. Biases and the gains of norms are not among them: theory's gradients are those of matrices."""
    gradient_norm: float | None = None
    """Frobenius norm of the loss's gradient with respect to those of `matrices` that are trained; None without a loss
    or any such matrix."""
    reaches_output: bool = True
    """Whether the model's output is computed from the branch's output."""
    outputs: tuple[int, ...] = field(default=(), metadata=_INNER)
    """Places, among the tensors of the model's output in order, of those that are."""
    reaches_loss: bool = field(default=True, metadata=_INNER)
    """False where the loss is known to depend on none of those tensors."""
    shut_by: tuple[str, ...] = field(default=(), metadata=_INNER)
    """Buffers, or "a number in the code", that multiply by 0 what all of it goes through; empty where none does."""
    skip_stopped: bool = field(default=False, metadata=_INNER)
    """Whether a `detach` stands on every way that its skip comes from earlier sub-layers."""
    rounded_by: str = field(default="", metadata=_INNER)
    """An operation that rounds what is computed from its sum, such as ceil, whose gradient is 0; "" without any."""
    precision: str = field(default="", metadata=_INNER)
    """The narrowest dtype that its matrix products are made in, such as float32; "" without any."""
    place: RecordedPlace | None = field(default=None, repr=False, compare=False, metadata=_INNER)
    """None where it was not recorded."""
    attention: AttentionMeasurements | None = field(default=None, repr=False, compare=False, metadata=_INNER)
    """None of what is no attention, or none that is understood."""
    curves: Literal["", "none", "last"] = field(default="", metadata=_INNER)
    """Where a feed-forward has no curve at all, or one behind its last matrix."""
    reads_later: bool = field(default=False, metadata=_INNER)
    """Whether what it makes of a token depends on later ones."""
    mixes: tuple[int, ...] = field(default=(), metadata=_INNER)
    """Along which of the first two dimensions of (A, C, D) an output depends on other tokens."""


UNMEASURED = SublayerMeasurements()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """One sub-layer F, how it is joined to the stream, and what was measured in it."""

    name: str
    """Path of the module that computes F, or of the one with its last weight matrix; "" where no module does."""
    kind: BranchKind
    block: int
    """Counted from 1; 0 for a branch between the embedding and the first block, such as a convolution of positions."""
    placement: str
    """Name of a registered placement, or "" where none computes this."""
    also: tuple[str, ...]
    """Further registered placements with this formula here: they differ in weights, at other depths or at the ends."""
    scaled_placement: str = ""
    """Where none computes this, the one that would if nothing multiplied the branch; "" where there is none either."""
    confidence: Literal["sure", "unsure"]
    """Of the name, `scaled_placement` where that is one. unsure: there is none, or nothing that is observed tells it
    from one of those in `also`."""
    formula: Formula
    """What was observed; x is the stream before the sub-layer, or before the block where one reaches across it."""
    skip_scale: float | None
    """What x is multiplied with in the residual sum, a vector's mean; None where x is not one of its addends."""
    branch_scale: float | None
    """The same of F(x)."""
    parallel: bool
    """Whether it reads the same x as another sub-layer of its block, and both are added at once."""
    connection: StreamConnection | None = None
    """With several streams that are kept in one tensor; None of one stream."""
    measured: SublayerMeasurements = UNMEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTheory:
    """The mean-field prediction for a stack whose placement was found, with one entry a sub-layer."""

    stream_square: tuple[float, ...]
    """E‖x‖²/d before each sub-layer."""
    correlation: tuple[float, ...]
    """Mean cosine similarity between different tokens' vectors there."""
    gradient_norm: tuple[float | None, ...]
    """Of each sub-layer's weight matrices, up to one factor for the whole stack that is fitted to what was measured.
    None where one of them is frozen, where sub-layers share their weights, and where theory has no gradient."""
    assumptions: str
    """What the prediction takes for granted, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One residual stream from its source to its last sum or norm."""

    name: str
    """Path of the innermost module around all of its sub-layers; "" where that is the model."""
    blocks: int
    """Where the kinds of its sub-layers do not repeat, one ends with every feed-forward that something else follows."""
    placement: str
    """The placement of most of its sub-layers, "" where that is none."""
    scaled_placement: str = ""
    """Where that is "", the commonest `scaled_placement` of its sub-layers."""
    norm: str
    """layer-norm, rms-norm, scale-norm, sphere-norm, dyt or derf, the commonest of several; "" without any."""
    norm_epsilon: float | None
    """Added to the mean square; None where norms guard against small inputs in another way, or without norms."""
    final_norm: bool
    """Whether a norm follows that the placement's blocks do not have: after the last sum, or inside the output's."""
    embedding_norm: bool
    """Whether what enters the first sub-layer comes out of a norm."""
    width: int
    streams: int = 1
    """How many streams of that width it is, kept in one tensor."""
    streams_start_equal: bool | None = None
    """Whether these start as copies of each other; None of one stream, and on the meta device."""
    streams_stay_copies: bool | None = field(default=None, metadata=_INNER)
    """Whether several streams that start as copies of each other stay so to the end, whatever is trained; None of one
    stream, of streams that do not start as copies, and where that cannot be told."""
    sublayers: tuple[Sublayer, ...]
    end_read_by: Literal["norm", "weights", "output"] = "norm"
    """What comes after the last sum: weights, where a matrix reads the sum, or parts or means of it, with no norm
    between; else a norm, where one reads them or stands in the sum; else nothing but the model's output."""
    memory: int | None = None
    """Number in the model's stacks, from 0, of the one that its cross-attention reads; None where that is none."""
    memory_normed: bool = True
    """False where matrices of its cross-attention read another stack's values with no norm between."""
    continues: int | None = None
    """Number of an earlier stack of the same shape that its source is computed from, by weights and without a sum."""
    cut_by: BranchKind | None = None
    """What computes its source there: attention, convolution over several places, or feed_forward for all others."""
    feeds_later: bool = field(default=False, metadata=_INNER)
    """Whether a later stack's source is computed from its end, as from stage to stage of a hierarchical model."""
    starts_from_given: bool = field(default=False, metadata=_INNER)
    """Whether its source is first added to rows that are no data, such as learnt queries."""
    # NaN, which equals nothing, must not make two unmeasured stacks unequal.
    source_square: float = field(default=math.nan, compare=False)
    """E‖x_0‖²/d of what enters the first sub-layer of the first block."""
    end_square: float = field(default=math.nan, compare=False)
    """E‖·‖²/d of the stack's result, a final norm included."""
    recipe: StackRecipe | None = field(default=None, repr=False, compare=False, metadata=_INNER)
    """What theory predicts the stack from; None where it has no model of it."""
    end: int | None = field(default=None, repr=False, compare=False, metadata=_INNER)
    """Number of the stack's result in the recorded pass, a final norm included."""
    norm_uses: tuple[NormUse, ...] = field(default=(), repr=False, compare=False, metadata=_INNER)
    """In order; without curves in the place of norms."""
    predicted: StackTheory | None = None
    """None where the placement is not known, theory has no model of it, or the weights have been trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurements:
    """What one forward and one backward pass in evaluation mode showed of the whole model."""

    loss_nats: float | None = None
    """Mean loss per token; None where no loss was given and the output is no floating-point tensor to take one of."""
    loss_is_stand_in: bool = False
    """Whether it is the doctor's own, on random targets, because none was given."""
    classes: int | None = None
    """Size of the output's last dimension where it is logits: what ln V is taken of; None where that is not known."""
    logit_deviation: float | None = None
    """Standard deviation of the logits about each token's mean, root mean square over tokens; None without logits."""
    gradient_norms: Mapping[str, float] = field(default_factory=dict)
    """Frobenius norm by parameter; empty without a loss, 0 where nothing reaches it."""
    unused_parameters: tuple[str, ...] = ()
    """Names of the parameters that no operation of the forward pass read, and no pass in training mode goes through."""
    unregistered: int = field(default=0, metadata=_INNER)
    """How many tensors that ask for a gradient the pass read that are no parameters of the model."""
    opening: frozenset[str] = field(default=frozenset(), metadata=_INNER)
    """Names of trained parameters whose gradient is 0 at first, and is not once others have moved by a few updates:
    behind an output matrix of zeros, or a gate or a gain that starts at 0. Looked for where no parameter of a whole
    sub-layer gets a gradient."""
    rewired_loss_nats: float | None = field(default=None, metadata=_INNER)
    """The loss on the same batch were the stacks that are wired as Pre-LN wired as Post-LN, or the other way round;
    None where that was not looked for, or is not known."""
    flat_gates: Mapping[str, float] = field(default_factory=dict, metadata=_INNER)
    """Parameters whose σ or tanh has next to no slope left, with the share of their entries of which that holds."""
    positions_along: int | None = field(default=None, metadata=_INNER)
    """The dimension of (A, C, D) along which what is added to the stream for every input alike differs."""
    target_places: int | None = field(default=None, metadata=_INNER)
    """How many places later than a token the model is given its target, 0 to 2; None where that is not known."""
    scores_are: Literal["", "probabilities", "cut"] = field(default="", metadata=_INNER)
    """What the loss takes for logits, where they sum to 1, or are cut off at 0."""
    powers: tuple[tuple[str, int], ...] = field(default=(), metadata=_INNER)
    """Modules that compute what is built as a norm, and the power of a token's size that is left in what comes out."""
    norm_gains: tuple[NormGain, ...] = field(default=(), metadata=_INNER)
    """Of norms with a trained gain a feature, in the order in which they are computed."""
    tables: tuple[Table, ...] = field(default=(), metadata=_INNER)
    """Embeddings in the order in which they are looked up."""
    output_matrices: tuple[OutputMatrix, ...] = field(default=(), metadata=_INNER)
    """Of outputs that a parameter makes, in the outputs' order."""
    added_again: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=_INNER)
    """What is the same for every input, other for every token, and added to a stream several times, as positions may
    be: the name of what it is read from, "" where it is computed, and the numbers of the sums in the recorded pass."""
    altered: tuple[tuple[str, str, int], ...] = field(default=(), metadata=_INNER)
    """What a stream goes through on every way, between its sums: an operation, the innermost module that runs, and the
    number of the stack from 0."""
    random_factors: tuple[tuple[str, int], ...] = field(default=(), metadata=_INNER)
    """Where data is multiplied, or masked, with numbers that a pass in evaluation mode draws: the innermost module that
    runs, and the number of the product."""
    writers: tuple[tuple[str, int], ...] = field(default=(), metadata=_INNER)
    """The innermost modules that write into data in place, each with the number of what it is then."""

    @property
    def predicts_next(self) -> bool:
        """Whether the loss's targets are known to be the tokens that the model is given one place later."""
        return self.target_places == 1


def with_measured(stack: Stack, found: Iterable[Mapping[str, Any]]) -> Stack:
    """The stack with further fields measured of each sub-layer, in order."""
    both = zip(stack.sublayers, found, strict=True)
    return replace(stack, sublayers=tuple(replace(one, measured=replace(one.measured, **new)) for one, new in both))


def norm_over(names: Sequence[str], norms: Mapping[str, float]) -> float | None:
    """The norm of several parameters' gradients as one vector, of those that have one; None where none has."""
    known = [norms[name] for name in names if name in norms]
    return math.hypot(*known) if known else None


def plain(value: Any) -> Any:
    """A record as JSON has it: mappings, tuples and plain values, formulas as text, without what is the stages' own."""
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
