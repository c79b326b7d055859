"""What was measured in a model in one forward and one backward pass, sub-layer by sub-layer."""

# d = width of the stream
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .flat_gates import FlatGate
from .recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sub-layer stands in a recorded pass, by the numbers of its values."""

    stream: int
    """What it is added to, before any scale."""
    addend: int
    """F(x) as it is added; what `branch_square` is of but for factors of the sum."""
    inputs: tuple[int, ...]
    """What F is computed from beside weights: what it reads, of other streams too, and what else comes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSublayer:
    """One sub-layer F at work. Squares are means over all tokens, divided by the width d: 1 is what a norm gives."""

    stream_square: float
    """E‖x‖²/d of the stream that it is added to, before any scale."""
    branch_square: float
    """E‖F(x)‖²/d as it is added, scales and norms of the branch included."""
    sum_square: float
    """E‖·‖²/d of the residual sum, before a norm that follows it."""
    correlation: float | None
    """Mean cosine of the stream's vectors at different tokens of one sequence, before the sub-layer; None for one."""
    share: float
    """Squared norm of what is added over that plus that of the scaled skip: near 0 the sub-layer is diluted."""
    parameters: tuple[str, ...]
    """Names of the model's parameters that F is computed with, in the order of use; norms around it are not among
    them. A parameter that several sub-layers use is named in each."""
    matrices: tuple[str, ...]
    """Those of `parameters` that data is multiplied with in products and convolutions, and those that such a matrix is
    made from. Biases and the gains of norms are not among them: theory's gradients are those of matrices."""
    gradient_norm: float | None
    """Frobenius norm of the loss's gradient with respect to those of `matrices` that are trained; None without a loss
    or any such matrix."""
    reaches_output: bool
    """Whether the model's output is computed from the branch's output."""
    outputs: tuple[int, ...] = ()
    """Places, among the tensors of the model's output in order, of those that are."""
    reaches_loss: bool = True
    """False where the loss is known to depend on none of those tensors."""
    place: Place | None = field(default=None, repr=False, compare=False)
    """None where it was not recorded."""


def norm_over(names: Sequence[str], norms: Mapping[str, float]) -> float | None:
    """The norm of several parameters' gradients as one vector, of those that have one; None where none has."""
    known = [norms[name] for name in names if name in norms]
    return math.hypot(*known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStack:
    """In the order of `FoundStack.sublayers`."""

    source_square: float
    """E‖x_0‖²/d of what enters the first sub-layer of the first block."""
    end_square: float
    """E‖·‖²/d of the stack's result, a final norm included."""
    sublayers: tuple[ObservedSublayer, ...]
    streams_stay_copies: bool | None = None
    """Whether several streams that start as copies of each other stay so to the end, whatever is trained; None of one
    stream, of streams that do not start as copies, and where that cannot be told."""
    recipe: Recipe | None = field(default=None, repr=False, compare=False)
    """What theory predicts the stack from; None where it has no model of it."""
    end: int | None = field(default=None, repr=False, compare=False)
    """Number of the stack's result in the recorded pass, a final norm included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All that one forward and backward pass showed, in evaluation mode."""

    stacks: tuple[ObservedStack, ...]
    """In the order of the found stacks."""
    loss_nats: float | None
    """Mean loss per token; None where no loss was given and the output is no floating-point tensor to take one of."""
    loss_is_stand_in: bool
    """Whether it is the doctor's own, because none was given."""
    classes: int | None
    """Size of the output's last dimension where it is logits: what ln V is taken of; None where that is not known."""
    logit_deviation: float | None
    """Standard deviation of the logits about each token's mean, root mean square over tokens; None without logits."""
    gradient_norms: Mapping[str, float]
    """Frobenius norm by parameter; empty without a loss, 0 where nothing reaches it."""
    opening: frozenset[str] = frozenset()
    """Names of trained parameters whose gradient is 0 at first, and is not once others have moved by a few updates:
    behind an output matrix of zeros, or a gate or a gain that starts at 0. Looked for where no parameter of a whole
    sub-layer gets a gradient."""
    rewired_loss_nats: float | None = None
    """The loss on the same batch were the stacks that are wired as Pre-LN wired as Post-LN, or the other way round;
    None where that was not looked for, or is not known."""
    unused_parameters: tuple[str, ...] = ()
    """Names of the parameters that no operation of the forward pass read."""
    flat_gates: tuple[FlatGate, ...] = ()
    """Parameters whose σ or tanh has next to no slope left."""
