"""The measurements of a model at work: of each sub-layer, norm and attention, outside of them, and
of the whole.

Measurements are taken in one forward and one backward pass, and what was not measured is NaN or
None. Squares are means over all tokens, divided by the width d of the stream: 1 is what a norm
gives.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from .attended import AttentionMeasurements
from .loss_targets import LossTargets
from .partly_used import PartlyUsed

INNER: Mapping[str, Any] = MappingProxyType({"json": False})
"""The metadata of a field that `record.plain` leaves out: only the doctor's own stages need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlace:
    """The place of a sub-layer in a recorded pass, by the numbers of its values; terms of formulas
    have such numbers too.
    """

    stream: int
    """The value that it is added to, before any scale; for means over depth the one that it
    reads.
    """
    addend: int
    """F(x) as it is added; what `branch_square` is of but for factors of the sum."""
    sum: int
    """The residual sum in which the two meet; of means over depth the first that F(x) goes into."""
    addends: tuple[int, ...]
    """All that the sum adds up."""
    skips: tuple[int, ...]
    """The addends that belong to the stream: those without a branch, if there are any."""
    inputs: tuple[int, ...] = ()
    """The values that F is computed from beside weights: those that it reads, of other streams too,
    and any others.
    """


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
    """The shape of its input."""
    over: tuple[int, ...] = ()
    """The dimensions of that, counted from 0, that it takes statistics over."""
    of_unit_length: bool = False
    """True where tokens leave it, and its gain, at length 1, where other norms give them the length
    √d.
    """
    detached: bool = False
    """True where no gradient passes through its statistics."""
    keeps_mean: bool = False
    """True where it divides by the deviation about a mean that it does not subtract."""
    features: int | None = None
    """The one that holds the features: matrices after it contract that alone; None where that does
    not show.
    """

    @property
    def module(self) -> str:
        """Path of the module that its parameters stand in; "" without any."""
        return self.parameters[0].rpartition(".")[0] if self.parameters else ""


MatrixPart = Literal["", "query", "key", "value", "output", "ffn_in", "ffn_out"]
"""The use of a weight matrix, in the words of initialisation; "" where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUse:
    """A plain weight matrix of a sub-layer, (out, in) or one for each expert, or some of its rows:
    data is multiplied with its entries as they are.
    """

    parameter: str
    """The parameter's name in the model."""
    part: MatrixPart
    rows: tuple[int, ...] = ()
    """The rows, of its outputs, that this use has; empty where it has all."""
    outputs_last: bool = False
    """True where its last dimension is that of its outputs, as transformers' Conv1D keeps it."""


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
    """Mean cosine of the stream's vectors at different tokens of one sequence, before the
    sub-layer; None for one.
    """
    share: float = math.nan
    """Squared norm of what is added over that plus that of the scaled skip: near 0 the sub-layer is
    diluted.
    """
    parameters: tuple[str, ...] = ()
    """Names of the model's parameters that F is computed with, in the order of use; norms around it
    are not among them. A parameter that several sub-layers use is named in each."""
    matrices: tuple[str, ...] = field(default=(), metadata=INNER)
    """The names of `parameters` that are multiplied with data in products and convolutions, or from
    which such a matrix is made. Biases and the gains of norms are not among them: theory's
    gradients are those of matrices.
    """
    uses: tuple[MatrixUse, ...] = field(default=(), metadata=INNER)
    """The plain ones among `matrices`, in their order; none where that was not looked for."""
    gradient_norm: float | None = None
    """Frobenius norm of the loss's gradient with respect to those of `matrices` that are trained;
    None without a loss or any such matrix."""
    reaches_output: bool = True
    """True where the model's output is computed from the branch's output."""
    outputs: tuple[int, ...] = field(default=(), metadata=INNER)
    """Places, among the tensors of the model's output in order, of those that are."""
    reaches_loss: bool = field(default=True, metadata=INNER)
    """False where the loss is known to depend on none of those tensors."""
    shut_by: tuple[str, ...] = field(default=(), metadata=INNER)
    """Buffers, or "a number in the code", that multiply by 0 what all of it goes through; empty
    where none does.
    """
    gates: tuple[str, ...] = field(default=(), metadata=INNER)
    """Names of the parameters that make what its output is multiplied with before it is added;
    empty where none is known to.
    """
    skip_stopped: bool = field(default=False, metadata=INNER)
    """True where a `detach` stands on every way that its skip comes from earlier sub-layers."""
    rounded_by: str = field(default="", metadata=INNER)
    """An operation that rounds what is computed from its sum, such as ceil, whose gradient is 0; ""
    without any.
    """
    precision: str = field(default="", metadata=INNER)
    """The narrowest dtype that its matrix products are made in, such as float32; "" without any."""
    place: RecordedPlace | None = field(default=None, repr=False, compare=False, metadata=INNER)
    """The place in the recorded pass; None where it was not recorded."""
    attention: AttentionMeasurements | None = field(
        default=None, repr=False, compare=False, metadata=INNER
    )
    """The measurements of attention; None for other kinds, and where it is not understood."""
    curves: Literal["", "none", "last", "twice"] = field(default="", metadata=INNER)
    """The nonlinearities of a feed-forward: none at all, one behind its last matrix, or one of
    another's result; "" otherwise.
    """
    reads_later: bool = field(default=False, metadata=INNER)
    """True where its output at a token depends on later tokens."""
    mixes: tuple[int, ...] = field(default=(), metadata=INNER)
    """Along which of the first two dimensions of (A, C, D) an output depends on other tokens."""
    misses_itself: bool = field(default=False, metadata=INNER)
    """True where a token changes other outputs but not the one at its own place."""
    mirrored: bool = field(default=False, metadata=INNER)
    """True where a token that stands later first influences an earlier output."""


UNMEASURED = SublayerMeasurements()


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGain:
    """The trained vector that a norm's output is multiplied with."""

    name: str
    total: float
    """Mean of what the output is multiplied with."""
    own: float
    """Mean of the parameter's entries, which are 1 less where the forward pass adds 1."""
    constant: bool
    """True where all entries are the same, as at the start of any training."""
    adds_one: bool
    total_size: float
    """Root mean square of what the output is multiplied with."""
    total_negative: float
    """The share of that below 0."""


class AlteredSkip(NamedTuple):
    """An operation that a stream goes through on every way between its sums."""

    operation: str
    module: str
    """The innermost that runs."""
    stack: int
    """The number of the stack, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An embedding that was looked up, or what is added to its rows."""

    name: str
    """"" of what is computed, as sinusoids are."""
    size: float
    """Root mean square of its entries."""
    width: int
    factor: float
    """The factor of its rows before anything else is done with them."""
    rows_size: float
    """Root mean square of the rows that were looked up, times the factor."""
    by_place: bool
    """True where rows are looked up one after another, as those of positions are."""
    joined_at: int
    """Number of the sum in the recorded pass in which its rows meet those of others; -1 where they
    meet none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlaces:
    """Places of tokens that a stream is read at, one by one, and of those that are trained."""

    read: tuple[int, ...]
    trained: Mapping[int, str]
    """The trained places, each with the parameter's name."""
    tokens: int
    """The number of places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMatrix:
    """The matrix that makes an output of the model."""

    name: str
    size: float
    """Root mean square of its entries."""
    inputs: int
    outputs: int
    reads_size: float
    """Root mean square of what it is multiplied with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurements:
    """The measurements of the whole model in one forward and one backward pass in evaluation
    mode.
    """

    loss_nats: float | None = None
    """Mean loss per token; None where no loss was given and the output is no floating-point tensor
    to take one of.
    """
    loss_is_stand_in: bool = False
    """True where the loss is the doctor's own, on random targets, because none was given."""
    classes: int | None = None
    """Size of the output's last dimension where it is logits: what ln V is taken of; None where
    that is not known.
    """
    labels_examples: bool = False
    """True where the classes are labels of whole examples, one each, as of a sentence or an image,
    and not of tokens.
    """
    logit_deviation: float | None = None
    """Standard deviation of the logits about each token's mean, root mean square over tokens; None
    without logits.
    """
    gradient_norms: Mapping[str, float] = field(default_factory=dict)
    """Frobenius norm by parameter; empty without a loss, 0 where nothing reaches it."""
    unused_parameters: tuple[str, ...] = ()
    """Names of the parameters that no operation of the forward pass read, and no pass in training
    mode goes through.
    """
    takes_more: bool = field(default=True, metadata=INNER)
    """True where the model takes inputs that it was not given, which parts of it may need, or where
    that is not known.
    """
    unregistered: int = field(default=0, metadata=INNER)
    """The number of tensors that ask for a gradient, that the pass read, and that are no parameters
    of the model.
    """
    opening: frozenset[str] = field(default=frozenset(), metadata=INNER)
    """Names of trained parameters whose gradient is 0 at first, and is not once others have moved
    by a few updates: behind an output matrix of zeros, or a gate or a gain that starts at 0. Looked
    for where no parameter of a whole sub-layer gets a gradient."""
    rewired_loss_nats: float | None = field(default=None, metadata=INNER)
    """The loss on the same batch were the stacks that are wired as Pre-LN wired as Post-LN, or the
    other way round; None where that was not looked for, or is not known."""
    shifted_loss_nats: Mapping[int, float] = field(default_factory=dict, metadata=INNER)
    """The loss on the same batch with 1 added to every gain of a norm, under 1, and with 1 taken
    away, under -1; empty where that was not looked for.
    """
    flat_gates: Mapping[str, float] = field(default_factory=dict, metadata=INNER)
    """Parameters whose σ or tanh has next to no slope left, with the share of their entries of
    which that holds.
    """
    shut_gates: Mapping[str, float] = field(default_factory=dict, metadata=INNER)
    """Parameters behind a σ of data that is flat near 0 for nearly every token and entry, with its
    mean value.
    """
    partly: PartlyUsed = field(default=PartlyUsed(), metadata=INNER)
    """The measurements of parts that not all of the model goes through, and of those that no loss
    trains.
    """
    conditioned_gates: Mapping[str, float] = field(default_factory=dict, metadata=INNER)
    """Matrices that make gates of branches from a condition, with the root mean square of these."""
    positions_along: int | None = field(default=None, metadata=INNER)
    """The dimension of (A, C, D) along which what is added to the stream for every input alike
    differs.
    """
    places_shared: int = field(default=0, metadata=INNER)
    """The number of places along that dimension that get the same as an earlier one."""
    fast_turns: float = field(default=0.0, metadata=INNER)
    """The share of pairs, in a sinusoid that is added, that turn by more than 1.2 radians a
    place.
    """
    target_places: int | None = field(default=None, metadata=INNER)
    """The distance in places from a token to its target in the model's input, -1 to 2; None where
    that is not known.
    """
    targets: LossTargets | None = field(default=None, metadata=INNER)
    """The targets of the user's loss; None for losses of other kinds, and where that is not
    known.
    """
    scores_are: Literal["", "probabilities", "cut"] = field(default="", metadata=INNER)
    """The kind of scores that the loss wrongly takes for logits: they sum to 1, or are cut off at
    0; "" otherwise.
    """
    powers: tuple[tuple[str, int], ...] = field(default=(), metadata=INNER)
    """Modules that compute what is built as a norm, and the power of a token's size that is left in
    what comes out.
    """
    norm_gains: tuple[NormGain, ...] = field(default=(), metadata=INNER)
    """The gains of norms that have a trained gain for each feature, in the order in which they are
    computed.
    """
    tables: tuple[Table, ...] = field(default=(), metadata=INNER)
    """Embeddings in the order in which they are looked up."""
    output_matrices: tuple[OutputMatrix, ...] = field(default=(), metadata=INNER)
    """The matrices of outputs that a parameter makes, in the outputs' order."""
    dropped_logits: tuple[str, ...] = field(default=(), metadata=INNER)
    """Modules that take a softmax of what training takes a dropout of."""
    large_dropouts: Mapping[str, float] = field(default_factory=dict, metadata=INNER)
    """Modules that hand most of what they have to a dropout, with the share that it drops."""
    token_channels: tuple[str, ...] = field(default=(), metadata=INNER)
    """Modules that norm the batch for each token, as if it were a channel."""
    softmax_elsewhere: bool = field(default=False, metadata=INNER)
    """True where the loss's gradient sums to 0 over a sequence's scores but not over each
    token's.
    """
    read_places: ReadPlaces | None = field(default=None, metadata=INNER)
    """The single places that are read; None where there are none, or no token is trained."""
    added_again: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=INNER)
    """The tensors that are the same for every input, differ from token to token, and are added to a
    stream several times, as positions may be: the name of each, "" where it is computed, and the
    numbers of the sums in the recorded pass.
    """
    altered: tuple[AlteredSkip, ...] = field(default=(), metadata=INNER)
    random_factors: tuple[tuple[str, int], ...] = field(default=(), metadata=INNER)
    """The products of data, or masks on it, with numbers that a pass in evaluation mode draws: the
    innermost module that runs, and the number of the product.
    """
    writers: tuple[tuple[str, int], ...] = field(default=(), metadata=INNER)
    """The innermost modules that write into data in place, each with the number of what it is
    then.
    """

    @property
    def gain_names(self) -> set[str]:
        """Names of the parameters that norms are multiplied with."""
        return {gain.name for gain in self.norm_gains}

    @property
    def predicts_next(self) -> bool:
        """True where the loss's targets are known to be the tokens that the model is given one
        place later.
        """
        return self.target_places == 1
