"""What was found in a model: its stacks, and the placement of every sub-layer."""

from dataclasses import dataclass
from typing import Literal

from ..find.branches import BranchKind
from .connected import Connected
from .formulas import Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSublayer:
    """One sub-layer F and how it is joined to the stream."""

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
    connected: Connected | None = None
    """How it is connected with the streams where x is several of them; None of one stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStack:
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
    sublayers: tuple[FoundSublayer, ...]
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
    """What computes its source there: attention, or feed_forward for all that does not mix positions."""
    streams: int = 1
    """How many streams of that width it is, kept in one tensor."""
    streams_start_equal: bool | None = None
    """Whether these start as copies of each other; None of one stream, and on the meta device."""
