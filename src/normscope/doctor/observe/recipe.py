"""The numbers that theory needs of a stack, kept when the recorded pass is gone: its formula, the
moments of its source and, for each sub-layer, what its matrices make of a mean square, its
activation and the norms inside.
"""

# B = sequences, T = tokens of each, D = width
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from ...placement import SublayerKind
from ...theory.kernels import Activation
from ...theory.mixing import Products
from ..find.branches import Branch
from ..find.streams import Stream
from ..find.terms import Term
from ..identify.stacks import branches_of
from ..record import BranchWeights, Stack, StackRecipe
from ..trace.flow import moved_rows
from ..trace.graph import Graph
from ..trace.norms import NormFunction
from ..trace.operations import BY_NUMBER, RESHAPING, SOFTMAX, UNREPEATABLE
from .rotation import rotary_angles
from .sums import read_once


def recipe_of(
    graph: Graph, number: int, streams: Sequence[Stream], stack: Stack
) -> StackRecipe | None:
    """Returns the recipe of one of the streams, whose sub-layers' places in the recorded pass are
    known.

    None where theory has no model of it: sub-layers before the first block, several things that one
    F reads, attention within windows, or an F that is neither softmax attention nor W₂ φ(W₁ x) with
    ReLU, GELU, SwiGLU or GEGLU.
    """
    stream, branches = streams[number], branches_of(stack, streams[number])
    places = [
        sublayer.measured.place.stream for sublayer in stack.sublayers if sublayer.measured.place
    ]
    if stream.before or any(len(branch.reads) != 1 for branch in branches) or stack.end is None:
        return None
    read = [number for branch in branches for number in branch.memory]
    others = [other for other in streams if other is not stream]
    memories = [other for other in others if any(other.values >> at & 1 for at in read)]
    x = graph.values[places[0]].tensor
    if len(memories) > 1 or x.ndim < 2 or x.shape[-1] != stream.width:
        # One of another width is still flattened, as what a product with weights over depth gives.
        return None
    weights = {
        number: branch_weights(graph, branch) for number, branch in enumerate(stream.branches)
    }
    keys = [w.keys for w in weights.values() if w is not None and w.kind == "attention"]
    in_sequence = x.numel() // (len(x) * stream.width) if x.ndim > 2 else 0
    if any(seen < in_sequence for seen in keys):
        return None
    attending = next((branch for branch in branches if branch.kind == "attention"), None)
    causal = False
    if attending is not None:
        with_last = attending.reads[0], attending.output, -1
        try:
            moved = moved_rows(graph, *with_last, torch.Generator().manual_seed(0))
        except UNREPEATABLE:
            return None
        causal = not bool(moved[:-1].any())
    recipe = StackRecipe(
        width=stream.width,
        tokens=max(keys, default=in_sequence or len(x)),
        causal=causal,
        parts=_parts(x),
        weights=weights,
        source=stream.term(places[0]),
        streams=tuple(map(stream.term, places)),
        end=stream.term(stack.end),
        rows=x.numel() // stream.width,
    )
    # Of a source that a bias is added to for its sum alone, theory has no value before the bias.
    early = any(
        n < places[0]
        for term in recipe.terms
        if recipe.source in term.arguments
        for n in _taken(term, stream)
    )
    return recipe if recipe.is_readable and not early else None


def _taken(term: Term, stream: Stream) -> tuple[int, ...]:
    """Returns the numbers under which a norm or a branch takes its arguments."""
    if term.norm is not None:
        return (term.norm.source,)
    return stream.branches[term.branch].reads if term.kind == "branch" else ()


def _parts(x: torch.Tensor) -> tuple[tuple[Products, bool], ...]:
    x_BTD = x.detach().double().reshape(1 if x.ndim == 2 else len(x), -1, x.shape[-1])
    mean_BT1 = x_BTD.mean(-1, keepdim=True)
    width = x.shape[-1]
    return tuple(
        (_products(part_BTD, width), centred)
        for part_BTD, centred in ((x_BTD - mean_BT1, True), (mean_BT1.expand_as(x_BTD), False))
    )


def _products(x_BTD: torch.Tensor, width: int) -> Products:
    """Returns the product of two tokens from their cosines, which tokens of unlike length do not
    bias.
    """
    batch, tokens = x_BTD.shape[:2]
    one = float(x_BTD.square().sum()) / (batch * tokens * width)
    if tokens < 2:
        return Products(one, one, one)
    total = float(x_BTD.sum(1).square().sum()) / (batch * width)
    two = (total - tokens * one) / (tokens * (tokens - 1))
    return Products(one, two, two)


_CLOSE = 0.02
"""Largest difference of an activation from the one it is taken for: GELU by way of tanh lies within
0.0005.
"""
_POINTS = 1 << 14
"""The number of points at which the two are compared, or more; as many as the recorded pass has
where more than curves stands between.
"""


def branch_weights(graph: Graph, branch: Branch) -> BranchWeights | None:
    """Returns the weights of a branch for theory; None where theory has no map for its F."""
    products = [n for n in branch.computed if graph.is_weight_product(graph.values[n])]
    try:
        if branch.kind in ("attention", "cross_attention"):
            return _attention(graph, branch, branch.kind, products)
        return _feed_forward(graph, branch, products) if branch.kind == "feed_forward" else None
    except UNREPEATABLE:
        return None


def matrix_gain(graph: Graph, number: int) -> float:
    """Returns the factor by which a product with a matrix multiplies the mean square of its input:
    ‖W‖² over the number of outputs.
    """
    value = graph.values[number]
    given = (n for n in value.inputs if not graph.values[n].is_data)
    number = next(n for n in given if graph.values[n].tensor.ndim >= 2)
    weight = graph.values[number].tensor
    if not weight.numel():
        return 0.0
    inputs = weight.shape[-2 if weight.shape[-1] == value.shape[-1] else -1]
    outputs = weight.shape[0] if value.op == "convolution" else weight.numel() // inputs
    return graph.magnitude_of(number) ** 2 / outputs


def _attention(
    graph: Graph, branch: Branch, kind: SublayerKind, products: list[int]
) -> BranchWeights | None:
    softmaxes = [n for n in branch.computed if graph.values[n].op in SOFTMAX]
    meetings = [n for n in branch.computed if graph.is_data_product(graph.values[n])]
    mixing = [n for n in meetings if any(graph.depends(n, softmax) for softmax in softmaxes)]
    if len(softmaxes) != 1 or len(mixing) != 1:
        return None
    ((softmax,), (mixed,)) = softmaxes, mixing
    scores = [n for n in meetings if graph.depends(softmax, n)]
    (values,) = [n for n in graph.predecessors[mixed] if not graph.depends(n, softmax)][:1] or [
        mixed
    ]
    of_scores = [n for n in products if graph.depends(softmax, n)]
    of_values = [n for n in products if graph.depends(values, n)]
    last = [n for n in products if graph.depends(n, mixed)]
    if not (len(last) == len(of_values) == 1 and len(of_scores) in (1, 2) and len(scores) == 1):
        return None
    factors = graph.predecessors[scores[0]]
    # Logits vary by this times what queries and keys do: 1 where they are divided by the root of a
    # head's width.
    sharpness = graph.values[factors[0]].shape[-1] * _scale_from(graph, softmax, scores[0]) ** 2
    for factor in factors:
        sharpness *= _scale_from(graph, factor, -1) ** 2
    inside = _inside(
        graph, branch, {"score": ("query", "key"), "value": ("value",), "output": ("output",)}
    )
    if inside is None:
        return None
    gains = {
        "query": matrix_gain(graph, of_scores[0]) * sharpness,
        "key": matrix_gain(graph, of_scores[-1]),
        "value": matrix_gain(graph, of_values[0]),
        "output": matrix_gain(graph, last[0]),
    }
    if "query" in inside:
        # A norm takes off what multiplied its input, but not what multiplies its output.
        gains["query"] = gains["key"] = 1.0
        inside["query"] = replace(inside["query"], gain=inside["query"].gain * sharpness**0.5)
    keys = graph.values[softmax].shape[-1]
    angles = rotary_angles(graph, branch.computed, of_scores[0], scores[0])
    return BranchWeights(kind=kind, gains=gains, inside=inside, keys=keys, angles=angles)


def _scale_from(graph: Graph, number: int, until: int) -> float:
    """Returns the factor of a value on the way from `until`, masks aside; or, without `until`,
    since the last step that is more than a scale.
    """
    found = 1.0
    while number != until:
        step, value = graph.step(number), graph.values[number]
        by = [graph.values[n].tensor for n in value.inputs if not graph.values[n].is_data]
        if step is not None and step.kind == "scale" and not step.factors[0].vector:
            found *= step.factors[0].value
        elif value.op in ("mul", "div") and len(by) == 1 and until >= 0:
            # One number a head.
            size = float(by[0].double().square().mean().sqrt())
            found *= size if value.op == "mul" else 1 / size
        elif until < 0 and (step is None or step.kind != "same"):
            break
        number = next(n for n in graph.predecessors[number] if until < 0 or graph.depends(n, until))
    return found


def _inside(
    graph: Graph, branch: Branch, places: Mapping[str, tuple[str, ...]]
) -> dict[str, NormFunction] | None:
    """Returns the norms within F by the places of a formula; None where there are others than
    theory knows.
    """
    names = [place.name for place in branch.inside]
    if any(names.count(name) != len(places.get(name, ())) for name in names):
        return None
    norms = [graph.norms[n] for n in branch.computed if n in graph.norms]
    if (
        len(norms) != len(names)
        or len({norm.kind for norm in norms}) > 1
        or any(norm.is_curve for norm in norms)
    ):
        return None
    return {place: norms[0] for name in names for place in places[name]}


def _feed_forward(graph: Graph, branch: Branch, products: list[int]) -> BranchWeights | None:
    *first, last = products if products else [branch.output]
    if len(first) not in (1, 2) or any(graph.depends(b, a) for a in first for b in first if a < b):
        return None
    (hidden,) = graph.predecessors[last][:1] or [last]
    norms = [n for n in branch.computed if n in graph.norms]
    starts, end, inside = [_with_bias(graph, n) for n in first], hidden, {}
    if len(norms) > 1 or (norms and len(first) > 1) or any(graph.norms[n].is_curve for n in norms):
        return None
    if norms:
        early = graph.norms[norms[0]].source == starts[0]
        inside = {"hidden" if early else "output": graph.norms[norms[0]]}
        starts, end = (norms, end) if early else (starts, graph.norms[norms[0]].source)
    activation = _activation(graph, starts, end)
    if activation is None:
        return None
    into = matrix_gain(graph, first[0])
    if len(first) == 2:
        into = (into * matrix_gain(graph, first[1])) ** 0.5
    return BranchWeights(
        kind="feed_forward",
        gains={"ffn_in": into, "ffn_out": matrix_gain(graph, last)},
        inside=inside,
        inner_width=graph.values[hidden].shape[-1],
        activation=activation,
    )


def _with_bias(graph: Graph, number: int) -> int:
    """Returns a product, or the same after what is added to it alone."""
    while read_once(graph, number):
        following = graph.consumers[number][0]
        step = graph.step(following)
        if step is None or step.kind != "same":
            break
        number = following
    return number


def _is_by_number(graph: Graph, starts: list[int], end: int) -> bool:
    """Tells whether a value is computed from others entry by entry, so that fewer tokens than were
    recorded go through alike.
    """
    shape = graph.values[end].shape
    inside = {n for start in starts for n in graph.between(start, end)} - set(starts)
    beside = [
        graph.values[n]
        for at in inside
        for n in graph.values[at].inputs
        if n not in inside.union(starts)
    ]
    by_number = all(
        graph.values[n].op in BY_NUMBER and graph.values[n].shape == shape for n in inside
    )
    same = all(graph.values[n].shape == shape for n in starts)
    return (
        by_number
        and same
        and len(shape) > 1
        and all(not one.is_data and one.shape.numel() == 1 for one in beside)
    )


def _activation(graph: Graph, starts: list[int], end: int) -> Activation | None:
    """Known by its values, however it is computed."""
    while graph.values[end].op in RESHAPING and end not in starts:
        (end,) = graph.predecessors[end]
    shape, alone = graph.values[end].shape, _is_by_number(graph, starts, end)
    if not shape.numel():
        return None
    if alone:
        rows = min(-(-_POINTS // shape[-1]), shape[:-1].numel())
        shape = torch.Size((*(1 for _ in shape[:-2]), rows, shape[-1]))
    gate = torch.linspace(-3, 3, shape.numel()).reshape(shape)
    if len(starts) == 1 and graph.values[starts[0]].shape[-1] != 2 * shape[-1]:
        orders: list[tuple[Tensor, ...]] = [(gate,)]
        u = None
    else:
        u = torch.linspace(-1, 2, shape.numel()).flip(0).reshape(shape)
        both = (gate, u), (u, gate)
        orders = list(both) if len(starts) == 2 else [(torch.cat(pair, -1),) for pair in both]
    like = [graph.values[n].tensor for n in starts]
    expected: dict[Activation, Tensor] = {
        "relu": functional.relu(gate),
        "gelu": functional.gelu(gate),
    }
    if u is not None:
        expected = {"swiglu": functional.silu(gate) * u, "geglu": expected["gelu"] * u}
    for given in orders:
        shapes = [shape if alone else t.shape for t in like]
        replaced = {
            n: z.reshape(s).to(t) for n, z, s, t in zip(starts, given, shapes, like, strict=True)
        }
        made = graph.trace.again(replaced, end).float().cpu()
        for name, values in expected.items():
            if bool((made - values).abs().max() < _CLOSE):
                return name
    return None
