"""A stream's formula with the numbers that theory reads it with, when what was recorded is gone."""

# B = sequences, T = tokens of each, D = width
from collections.abc import Sequence

import torch

from ...theory.mixing import Products
from ..find.branches import Branch
from ..find.streams import Stream
from ..find.terms import Term
from ..identify.stacks import branches_of
from ..recipe import StackRecipe
from ..record import Stack
from ..trace.graph import Graph
from .weights import branch_weights


def recipe_of(graph: Graph, number: int, streams: Sequence[Stream], stack: Stack) -> StackRecipe | None:
    """Of one of the streams, whose sub-layers' places in the recorded pass are known.

    None where theory has no model of it: sub-layers before the first block, several things that one F reads, attention
    within windows, or an F that is neither softmax attention nor W₂ φ(W₁ x) with ReLU, GELU, SwiGLU or GEGLU.
    """
    stream, branches = streams[number], branches_of(stack, streams[number])
    places = [sublayer.measured.place.stream for sublayer in stack.sublayers if sublayer.measured.place]
    if stream.before or any(len(branch.reads) != 1 for branch in branches) or stack.end is None:
        return None
    memories = {n for branch in branches for n, other in enumerate(streams) if _reads(branch, stream, other)}
    x = graph.values[places[0]].tensor
    if len(memories) > 1 or x.ndim < 2 or x.shape[-1] != stream.width:
        return None  # one of another width is still flattened, as what a product with weights over depth gives
    weights = {number: branch_weights(graph, branch) for number, branch in enumerate(stream.branches)}
    keys = [w.keys for w in weights.values() if w is not None and w.kind == "attention"]
    in_sequence = x.numel() // (len(x) * stream.width) if x.ndim > 2 else 0
    if any(seen < in_sequence for seen in keys):
        return None
    attending = next((branch for branch in branches if branch.kind == "attention"), None)
    recipe = StackRecipe(
        width=stream.width,
        tokens=max(keys, default=in_sequence or len(x)),
        causal=attending is not None and not _sees_later(graph, attending),
        parts=_parts(x),
        weights=weights,
        source=stream.term(places[0]),
        streams=tuple(map(stream.term, places)),
        end=stream.term(stack.end),
        rows=x.numel() // stream.width,
    )
    # Of a source that a bias is added to for its sum alone, theory has no value before the bias.
    early = any(n < places[0] for term in recipe.terms if recipe.source in term.arguments for n in _taken(term, stream))
    return recipe if recipe.is_readable and not early else None


def _taken(term: Term, stream: Stream) -> tuple[int, ...]:
    """The numbers under which a norm or a branch takes its arguments."""
    if term.norm is not None:
        return (term.norm.source,)
    return stream.branches[term.branch].reads if term.kind == "branch" else ()


def _reads(branch: Branch, own: Stream, other: Stream) -> bool:
    return other is not own and any(other.values >> n & 1 for n in branch.memory)


def _sees_later(graph: Graph, branch: Branch) -> bool:
    """Whether a change of the last token changes the branch at another one."""
    x, y = graph.values[branch.reads[0]].tensor, graph.values[branch.output].tensor
    changed = x.clone().contiguous()
    changed.view(-1, x.shape[-1])[-1] += 1 + x.abs().mean()
    changed.view(-1, x.shape[-1])[-1, ::2] *= -1
    after = graph.trace.again({branch.reads[0]: changed}, branch.output).reshape(-1, y.shape[-1])
    before = y.reshape(-1, y.shape[-1])
    return bool(((after - before)[:-1].abs().amax() > 1e-6 * before.abs().amax()).item())


def _parts(x: torch.Tensor) -> tuple[tuple[Products, bool], ...]:
    x_BTD = x.detach().double().reshape(1 if x.ndim == 2 else len(x), -1, x.shape[-1])
    mean_BT1 = x_BTD.mean(-1, keepdim=True)
    width = x.shape[-1]
    return tuple(
        (_products(part_BTD, width), centred)
        for part_BTD, centred in ((x_BTD - mean_BT1, True), (mean_BT1.expand_as(x_BTD), False))
    )


def _products(x_BTD: torch.Tensor, width: int) -> Products:
    """The product of two tokens from their cosines, which tokens of unlike length do not bias."""
    batch, tokens = x_BTD.shape[:2]
    one = float(x_BTD.square().sum()) / (batch * tokens * width)
    if tokens < 2:
        return Products(one, one, one)
    total = float(x_BTD.sum(1).square().sum()) / (batch * width)
    two = (total - tokens * one) / (tokens * (tokens - 1))
    return Products(one, two, two)
