"""Doubts: where a prediction is known to be off, or was never compared with models. They come with
the prediction, as data.

Errors are predicted over measured, less 1: the least and the greatest over blocks of models that
were drawn (26 settings of placement, norm, activation and initial weights, widths of 128 and 384, 6
to 36 blocks, 6 to 80 draws of each). One error of gradients of queries and keys follows from how
much the tokens that keys are made of have in common, whatever the placement; up to 95 % of their
square it is below 10 %.

The equations are T3, T8, T9, T14 to T16 and T19 of docs/theory.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ..placement import StackShape
from .mixing import Array
from .stream import Applied, MomentStack

_ALIKE = (
    (0.95, (-0.3, 0.4), "tokens have more than 0.95 of their square in common"),
    (
        1 - 1e-7,
        (-1.0, 0.4),
        "tokens differ by so little that models in float32 measure their rounding",
    ),
)
"""Beyond that share of their square that tokens have in common, the error of gradients of queries
and keys, and why. The last was drawn in float64 too, where the error is as before it."""
_STRONG = 2.0
"""The largest variance of logits that draws of gradients had, 1.7, and a little beyond."""
_UNLIKE = (1.5, (-0.05, 0.2))
"""Beyond that variance of logits, the error of gradients of queries and keys in an encoder below a
decoder, whose tokens get gradients that have much in common. Of two queries theory knows the
softmax of what their logits have in common alone, which lets through up to a third more than the
two softmaxes do together (T9). First blocks that read an embedding without a norm have a variance
of 1.66 with Xavier's weights: DeepNorm's was 12 % off, and 2 % with a variance of 0.4.
"""
_WEIGHED = (-0.18, 0.18)
"""Above the first block and beyond that variance, the error of what softmaxes make of logits."""
_BENT = (0.005, (-0.2, -0.05))
"""Beyond that share of a norm's input that another norm has squashed, the error of the stream's
q.
"""
_NARROW = 96
"""The smallest width that was drawn."""
_DEEP = 0.3
"""Blocks for each feature of the width, beyond what was drawn: norms of gradients scatter by
e^(blocks / width).
"""

_OWN = 0.5
"""Beyond that share of the softmax for its own row, a token's gradients lie along the output for a
large part.
"""
_OWN_IN_LOOPS = (-0.1, 0.15)
"""The error of gradients where it does in blocks that are run several times: one block of width 256
and two of 512, run two to four times.
"""
_FEW_HEADS = 2
"""Heads of which queries are doubted where a token's own row has much of the softmax (T15)."""
_FEW_BLOCKS = 2
"""Blocks up to which they are; three were 5 % off, and six not at all."""
_OF_FEW_HEADS = (-0.25, 0.0)
"""The error of gradients of queries and keys where it does with so few heads: 20 % with one, 11 %
with two, 5 % with four and 3 % with eight, of one block; positions add few directions, along which
tokens lie that all have them in common. Three blocks of one head are 5 % off, and six not at all.
"""
_ENCODERS_MOVE_LESS = {"muon": (-0.1, 0.2), "sgd": (-0.1, 0.35), "radam": (-0.1, 0.35)}
"""The error of what an update of that optimiser moves, streams and outputs of encoders: Pre-LN,
DeepNorm and x0 residuals of 6 and 12 blocks, width 128, 12 draws each. Adam's and Lion's were
surely nowhere more than 7 % off.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A region of curves that is not to be trusted as the rest is."""

    of: tuple[str, ...]
    """Curves: q, attention, change, or matrices whose gradients are meant."""
    first: int
    last: int
    """Blocks, both of them included."""
    error: tuple[float, float] | None
    """Predicted over measured, less 1, at the least and the most; None where nothing was
    measured.
    """
    reason: str


def doubts_of(
    stack: MomentStack, matrices: tuple[str, ...], own_share: float = 0.0
) -> tuple[Doubt, ...]:
    """Returns the doubts of a stack that was predicted, with gradients of these matrices.

    own_share: p(own token), of the softmax over a tied output projection.

    Equations T3, T8, T9, T15 and T16.
    """
    return (
        *_of_the_shape(stack, matrices),
        *_of_the_own_row(stack, matrices, own_share),
        *_of_attention(stack, matrices),
    )


def doubts_of_change(stack: MomentStack, optimizer: str) -> tuple[Doubt, ...]:
    """Returns the doubts of what an update of that optimiser moves. Equation T19."""
    if stack.atoms.places is not None or optimizer not in _ENCODERS_MOVE_LESS:
        return ()
    reason = (
        f"encoders that were drawn moved less under {optimizer}, most of all where a formula adds "
        "its input again in every block or multiplies its skip"
    )
    error = _ENCODERS_MOVE_LESS[optimizer]
    last = stack.placement.stack.blocks
    return (Doubt(of=("change",), first=1, last=last, error=error, reason=reason),)


def _of_the_own_row(
    stack: MomentStack, matrices: tuple[str, ...], own_share: float
) -> Iterator[Doubt]:
    """Yields the doubts of gradients where a token's own row has more than half of the softmax.
    Equations T14 and T15.
    """
    shape = stack.placement.stack
    if own_share <= _OWN:
        return
    queries = tuple(name for name in ("query", "key") if name in matrices)
    if queries and shape.heads <= _FEW_HEADS and shape.blocks <= _FEW_BLOCKS:
        reason = (
            f"the tied output projection gives {own_share:.2f} of the probability to the token "
            "that was read, and positions align what few heads make of it"
        )
        yield Doubt(of=queries, first=1, last=shape.blocks, error=_OF_FEW_HEADS, reason=reason)
    if shape.loops > 1:
        reason = (
            f"the tied output projection gives {own_share:.2f} of the probability to the token "
            "that was read, which is followed less closely through blocks that are run in loops"
        )
        yield Doubt(of=matrices, first=1, last=shape.blocks, error=_OWN_IN_LOOPS, reason=reason)


def _of_the_shape(stack: MomentStack, matrices: tuple[str, ...]) -> Iterator[Doubt]:
    """Yields the doubts of stacks that are narrower or deeper than any that was drawn, or that
    squash what was squashed. Equations T3 and T16.
    """
    blocks, width = stack.placement.stack.blocks, stack.atoms.width
    if width < _NARROW:
        reason = (
            f"no models narrower than {_NARROW} were drawn beside predictions, and this one is "
            f"{width} wide"
        )
        yield Doubt(of=("q", *matrices), first=1, last=blocks, error=None, reason=reason)
    if blocks > _DEEP * stack.atoms.scatter_width:
        reason = (
            f"norms of gradients differ much from draw to draw with {blocks:,} blocks at a width "
            f"of {width:,}"
        )
        yield Doubt(of=matrices, first=1, last=blocks, error=None, reason=reason)
    if stack.atoms.bent > _BENT[0]:
        reason = "what a norm reads is bent by another one before it, and not Gaussian"
        yield Doubt(of=("q",), first=1, last=blocks, error=_BENT[1], reason=reason)


def _of_attention(stack: MomentStack, matrices: tuple[str, ...]) -> Iterator[Doubt]:
    """Yields the doubts of tokens that have nearly all in common, and of logits that are stronger
    than any that was drawn. Equations T8 and T9.
    """
    for kind, prefix in (("attention", ""), ("cross_attention", "cross_")):
        attends = [applied for applied in stack.applied if applied.site.kind == kind]
        of = tuple(name for name in (f"{prefix}query", f"{prefix}key") if name in matrices)
        if not attends or not of:
            continue
        loops = stack.placement.stack.loops
        shared = (
            np.array([_in_common(stack, applied) for applied in attends]).reshape(loops, -1).max(0)
        )
        # Region 0 is below all bounds, and not doubted.
        regions = np.searchsorted([least for least, *_ in _ALIKE], shared)
        for region, first, last in _runs(regions):
            if region:
                _, error, reason = _ALIKE[region - 1]
                yield Doubt(of=of, first=first, last=last, error=error, reason=reason)
        logits = (
            np.array([np.max(applied.map.variance) for applied in attends])
            .reshape(loops, -1)
            .max(0)
        )
        yield from _of_two_queries(stack.placement.stack, of, logits)
        strong = np.flatnonzero(logits > _STRONG)
        if len(strong):
            # All gradients below come through those softmaxes.
            reason = (
                f"logits have a variance above {_STRONG:g}, and had less where models were drawn"
            )
            yield Doubt(of=matrices, first=1, last=int(strong[-1]) + 1, error=None, reason=reason)
        if (above := strong[strong > 0]).size:
            reason = f"logits above the first block have a variance above {_STRONG:g}"
            first, last = int(above[0]) + 1, int(above[-1]) + 1
            yield Doubt(of=("attention",), first=first, last=last, error=_WEIGHED, reason=reason)


def _of_two_queries(shape: StackShape, of: tuple[str, ...], logits: Array) -> Iterator[Doubt]:
    """Yields the doubts of strong logits where gradients of two queries have much in common.
    Equation T9.

    logits: (L,) their variance, block by block.
    """
    if shape.kind != "encoder" or not shape.decoder_blocks:
        return
    least, error = _UNLIKE
    for is_strong, first, last in _runs(logits > least):
        if is_strong:
            reason = (
                f"logits have a variance above {least:g} below a decoder, and what two queries "
                "make of theirs is followed less closely"
            )
            yield Doubt(of=of, first=first, last=last, error=error, reason=reason)


def _in_common(stack: MomentStack, applied: Applied) -> float:
    """Returns p / q of the tokens that keys are made of. Equation T9."""
    memory = stack.setting.memory
    one, two, _ = (
        memory if applied.site.kind == "cross_attention" and memory else applied.input.mean
    )
    return float(two / one) if one else 0.0


def _runs(regions: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yields each region with its first and its last block: of the regions 0, 1, 1 it yields (0, 1,
    1) and (1, 2, 3).
    """
    for region, group in groupby(enumerate(regions.tolist()), key=lambda pair: pair[1]):
        blocks = [place + 1 for place, _ in group]
        yield region, blocks[0], blocks[-1]
