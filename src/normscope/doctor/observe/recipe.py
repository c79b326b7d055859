"""A stream's formula with the numbers that theory reads it with, when what was recorded is gone."""

# B = sequences, T = tokens of each, D = width
from collections.abc import Mapping, Sequence

import torch

from ...theory.mixing import Products
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import in_order
from ..recipe import BranchWeights, RecipeStep, StackRecipe
from ..trace.graph import Graph, GraphStep
from ..trace.operations import Ref
from .sums import Sums, with_gain
from .weights import branch_weights, inner_norm


def recipes(graph: Graph, streams: Sequence[Stream]) -> tuple[StackRecipe | None, ...]:
    """By stream; None where theory has no model of it: sub-layers before the first block, several things that one F
    reads, attention within windows, or an F that is neither softmax attention nor W₂ φ(W₁ x) with ReLU, GELU, SwiGLU
    or GEGLU."""
    with torch.no_grad():
        return tuple(_recipe(graph, stream, streams) for stream in streams)


def _recipe(graph: Graph, stream: Stream, streams: Sequence[Stream]) -> StackRecipe | None:
    branches, sums = in_order(stream), Sums(graph, stream)
    if stream.before or any(len(branch.reads) != 1 for branch in branches):
        return None
    weights = {branch.output: branch_weights(graph, branch) for branch in branches}
    places = tuple(sums.of(branch).stream for branch in branches)
    end = with_gain(graph, stream.end)
    steps = _steps(graph, places[0], [*places, end], {branch.output: branch for branch in branches}, weights)
    memories = {n for branch in branches for n, other in enumerate(streams) if _reads(branch, stream, other)}
    if steps is None or len(memories) > 1:
        return None
    attending = next((branch for branch in branches if branch.kind == "attention"), None)
    x = graph.values[places[0]].tensor
    if x.ndim < 2 or x.shape[-1] != stream.width:
        return None  # still flattened, as what a product with weights over depth gives
    keys = [w.keys for w in weights.values() if w is not None and w.kind == "attention"]
    in_sequence = x.numel() // (len(x) * stream.width) if x.ndim > 2 else 0
    if any(seen < in_sequence for seen in keys):
        return None
    return StackRecipe(
        width=stream.width,
        tokens=max(keys, default=in_sequence or len(x)),
        causal=attending is not None and not _sees_later(graph, attending),
        parts=_parts(x),
        source=places[0],
        steps=steps,
        streams=places,
        end=end,
        memory=min(memories, default=None),
        rows=x.numel() // stream.width,
    )


def _reads(branch: Branch, own: Stream, other: Stream) -> bool:
    return other is not own and any(other.values >> n & 1 for n in branch.memory)


def _steps(
    graph: Graph,
    source: int,
    wanted: Sequence[int],
    branches: Mapping[int, Branch],
    weights: Mapping[int, BranchWeights | None],
) -> dict[int, RecipeStep] | None:
    found: dict[int, RecipeStep] = {}
    todo = list(wanted)
    while todo:
        number = todo.pop()
        if number == source or number in found:
            continue
        made = None
        if number in branches:
            of = weights[number]
            made = RecipeStep(sources=branches[number].reads, factors=(1.0,), branch=of) if of else None
        elif (step := graph.step(number)) and step.kind in ("same", "sum", "scale", "norm"):
            made = _made(graph, number, step)
        if made is None:
            return None
        found[number] = made
        todo += made.sources
    return found


def _made(graph: Graph, number: int, step: GraphStep) -> RecipeStep | None:
    if step.kind == "norm":
        if graph.norms[number].is_curve:
            return None  # theory knows it at the slope that it is published with alone
        return RecipeStep(sources=step.sources, factors=(1.0,), norm=inner_norm(graph, number))
    if step.kind == "scale" and step.factors[0].vector:
        return RecipeStep(sources=step.sources, factors=(_size(graph, number),))
    return RecipeStep(sources=step.sources, factors=tuple(f.value for f in step.factors) or (1.0,))


def _size(graph: Graph, number: int) -> float:
    """Root mean square of the vector that a step multiplies with."""
    value = graph.values[number]
    if value.call is None:
        return 1.0
    (vector,) = [
        graph.values[a.number].tensor
        for a in value.call.args
        if isinstance(a, Ref) and not graph.values[a.number].is_data
    ]
    vector = 1 / vector.double() if value.op == "div" else vector.double()
    return float(vector.square().mean().sqrt())


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
