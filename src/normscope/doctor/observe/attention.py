"""Attention at work: how its logits vary, where its weights go, along which axis they are a mean,
and what masks hide.

Read from the recorded pass, at the softmax or at the one operation that computes all.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from ..attended import AttentionMeasurements
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..record import Stack, with_measured
from ..trace.forward import Inputs, padding_in
from ..trace.graph import Graph
from ..trace.operations import FUSED, UNREPEATABLE
from .attended import RecordedAttention, attentions_in
from .groups import groups_of
from .logits import after_product, logits_again, multiplied, scores_of
from .norms import places_along
from .parameters import size_of
from .places import places_of, probed
from .reach import seen_keys
from .recipe import matrix_gain
from .softmax_axes import wrong_axis

# B = sequences, H = all between them and queries, mostly heads, Q = queries, K = keys

_HIDDEN = 2000.0
"""The distance below the largest logit of a row from which on a key is hidden: masks add -10,000
and less, or fill in -inf.
"""
_FEW = 8
"""Keys below which a row's weights tell little."""


def with_attention(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack], inputs: Inputs
) -> tuple[Stack, ...]:
    """Returns the stacks with what was measured of the attention in them."""
    found = []
    with torch.no_grad():
        for stream, stack in zip(streams, stacks, strict=True):
            crosses = any(sublayer.kind == "cross_attention" for sublayer in stack.sublayers)
            padding = padding_in(inputs, crosses)
            both = zip(stack.sublayers, branches_of(stack, stream), strict=True)
            seen = [
                _of(graph, branch, padding, places=one.block in probed(stack))
                for one, branch in both
            ]
            found.append(with_measured(stack, [{"attention": attention} for attention in seen]))
    return tuple(found)


def _of(
    graph: Graph, branch: Branch, padding: Mapping[str, Tensor], *, places: bool
) -> AttentionMeasurements | None:
    """Measures the attention of a branch, the first of several; None where it has none that is
    understood.

    padding: by the kind of attention a mask of (sequences, keys), False at tokens without meaning.
    places: whether to look for what it knows of places.
    """
    if branch.kind not in ("attention", "cross_attention"):
        return None
    place = next(attentions_in(graph, branch), None)
    if place is None:
        return None
    try:
        found = _measured(graph, place, branch.kind == "attention", padding.get(branch.kind))
    except UNREPEATABLE:
        return None
    if found is None or found.wrong_axis or not places or branch.kind != "attention":
        return found
    after, operands = after_product(graph, place), (place.queries, place.keys)
    with suppress(*UNREPEATABLE):
        of_places = places_of(
            graph, operands, place.values, lambda given: logits_again(graph, place, after, given)
        )
        found = replace(found, **of_places)
    with suppress(*UNREPEATABLE):
        found = replace(found, **groups_of(graph, place))
    return found


def _measured(
    graph: Graph, place: RecordedAttention, itself: bool, padding_BK: Tensor | None
) -> AttentionMeasurements | None:
    values = graph.values
    width = values[place.queries].shape[-1]
    wrong = wrong_axis(graph, place) if FUSED not in values[place.softmax].op else ""
    query, key = multiplied(graph, place.queries, None), multiplied(graph, place.keys, None)
    after = after_product(graph, place)
    if wrong or (scores := scores_of(graph, place, after)) is None:
        return AttentionMeasurements(head_width=width, wrong_axis=wrong) if wrong else None
    rows, raw_BHQK, logits_BHQK = scores
    weights = logits_BHQK.softmax(-1)
    hidden = logits_BHQK <= logits_BHQK.amax(-1, keepdim=True) - _HIDDEN
    shown = (~hidden & ~logits_BHQK.isneginf()).to(weights)
    count = shown.sum(-1)
    enough = count >= min(_FEW, float(count.max()))
    finite = raw_BHQK.nan_to_num(0, 0, 0)
    mean = (finite * shown).sum(-1) / count.clamp(min=1)
    square = ((finite - mean[..., None]).square() * shown).sum(-1) / count.clamp(min=1)
    entropy = -torch.xlogy(weights, weights).sum(-1) / count.clamp(min=2).log()
    scale = query.constant * key.constant * after.constant
    made = {"queries": query, "keys": key}
    if place.values is not None:
        made["values"] = multiplied(graph, place.values, None)
    return AttentionMeasurements(
        head_width=width,
        keys=float(count[enough].mean()),
        all_keys=logits_BHQK.shape[-1],
        deviation=float(square[enough].mean().sqrt()),
        entropy=float(entropy[enough].mean()),
        largest=float(weights.amax(-1)[enough].mean()),
        scale=None
        if query.trained or key.trained or after.trained or after.product is not None
        else scale,
        normed=tuple(side for side in ("queries", "keys") if made[side].normed),
        normed_wrong=tuple(side for side in ("queries", "keys") if made[side].over_others),
        of_many_lengths=tuple(
            side
            for side, n in (("queries", place.queries), ("keys", place.keys))
            if _has_many_lengths(values[n].tensor, width)
        ),
        unnormed=_unnormed(
            graph, {side: one.product for side, one in made.items() if one.product is not None}
        ),
        query_size=size_of(values[place.queries].tensor) / abs(query.constant or 1),
        key_size=size_of(values[place.keys].tensor) / abs(key.constant or 1),
        drawn=_drawn(
            graph, [made[side].product for side in ("queries", "keys", "values") if side in made]
        ),
        **seen_keys(
            _in_sequences(graph, place, query.product, weights, padding_BK),
            rows,
            itself,
            padding_BK,
        ),
    )


def _has_many_lengths(x: Tensor, width: int) -> bool:
    """Tells whether more than half of the vectors of a head's width deviate from their median
    length by 1 % or more; keys that were transposed for the product have them in the last dimension
    but one.
    """
    if x.is_meta or not x.numel():
        return False
    for axis in (-1, -2):
        if x.ndim >= -axis and x.shape[axis] == width:
            length = x.detach().float().norm(dim=axis)
            middle = length.median()
            off = (length - middle).abs() >= 0.01 * middle
            if float(off.float().mean()) <= 0.5:
                return False
    return True


def _in_sequences(
    graph: Graph,
    place: RecordedAttention,
    product: int | None,
    weights: Tensor,
    padding_BK: Tensor | None,
) -> Tensor:
    """Returns the weights whose heads stand in one dimension with sequences, with those of a
    sequence beside each other.
    """
    if (
        padding_BK is None
        or product is None
        or weights.ndim != 3
        or len(weights) == len(padding_BK)
    ):
        return weights
    made = graph.values[product].tensor
    rows = graph.trace.again({product: places_along(made.shape, 0).to(made)}, place.queries)[
        :, 0, 0
    ]
    return weights if len(made) % len(padding_BK) else weights[rows.argsort(stable=True)]


def _drawn(graph: Graph, products: Sequence[int | None]) -> float | None:
    """Returns the logits' size as the matrices of queries and keys make it, over its size with two
    matrices like the values'; None where unknown.
    """
    gains = [matrix_gain(graph, n) for n in products if n is not None]
    return (gains[0] * gains[1]) ** 0.5 / gains[2] if len(gains) == 3 and gains[2] else None


def _unnormed(graph: Graph, products: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the sides, of queries, keys and values, whose product reads a value bare while the
    product of another side reads a norm of it.
    """
    sources: dict[str, int] = {}
    bare: dict[str, int] = {}
    for side, product in products.items():
        bare[side] = number = graph.under(graph.predecessors[product][0], "same", "scale")
        if (step := graph.step(number)) is not None and step.kind == "norm":
            sources[side] = graph.under(step.sources[0], "same", "scale")
    return tuple(
        side for side, number in bare.items() if side not in sources and number in sources.values()
    )
