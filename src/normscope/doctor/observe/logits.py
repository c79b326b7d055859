"""The logits of attention with what multiplies, hides and adds to them: as they were recorded, or
computed again from queries and keys.
"""

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ..trace.graph import Graph
from ..trace.operations import FUSED, Origin, Ref, TracedValue
from .attended import RecordedAttention

# Q = queries, K = keys

_ROWS = 32
"""Queries that are looked at, spread evenly over the sequence."""


@dataclass(slots=True)
class Multiplied:
    """The factors on the way to a value."""

    constant: float = 1.0
    trained: bool = False
    """True where a trained number is among the factors."""
    product: int | None = None
    """The product with weights that the value was made by, with no norm after it."""
    normed: bool = False
    over_others: bool = False
    """True where that norm's statistics leave out the dimension of features."""


def logits_again(
    graph: Graph, place: RecordedAttention, after: Multiplied, given: dict[int, Tensor]
) -> Tensor:
    """(..., Q, K), masks and biases included, with other values for some of those that queries and
    keys are made of.
    """
    if FUSED not in graph.values[place.softmax].op:
        return graph.trace.again(given, graph.values[place.softmax].inputs[0])
    query, key = (graph.trace.again(given, n) for n in (place.queries, place.keys))
    return _fused_logits(
        graph, place, query, key, torch.arange(query.shape[-2]).to(query.device), after
    )[1]


def multiplied(graph: Graph, number: int, until: int | None) -> Multiplied:
    """Finds the numbers that multiply a value since `until`, or else since the last norm or product
    with weights.
    """
    found = Multiplied()
    while number != until:
        value = graph.values[number]
        if until is None and number in graph.norms:
            found.normed, found.over_others = True, -1 not in graph.norms[number].over
            return found
        if until is None and graph.is_weight_product(value):
            found.product = number
            return found
        before = [n for n in graph.predecessors[number] if until is None or graph.depends(n, until)]
        if not before:
            return found
        # Positions that are rotated into a value come with tables, which are smaller.
        through = max(before, key=lambda n: graph.values[n].tensor.numel())
        _multiply(graph, found, value, through)
        number = through
    return found


def _multiply(graph: Graph, found: Multiplied, value: TracedValue, through: int) -> None:
    if value.op not in ("mul", "div") or len(value.args) != 2:
        return
    others = [a for a in value.args if not (isinstance(a, Ref) and a.number == through)]
    if len(others) != 1:
        return
    (other,) = others
    number = nan
    if isinstance(other, int | float):
        number = float(other)
    elif isinstance(other, Ref) and not graph.values[other.number].is_data:
        given = graph.values[other.number]
        found.trained |= (
            given.origin == Origin.TRAINABLE
            and given.tensor.numel() < graph.values[through].shape[-1]
        )
        is_number = given.tensor.numel() == 1 and not given.tensor.is_complex()
        number = float(given.tensor) if is_number else nan
    if number == number and number:
        found.constant *= number if value.op == "mul" else 1 / number


def after_product(graph: Graph, place: RecordedAttention) -> Multiplied:
    """Finds the factors of the product of queries and keys; sets `product` where they are not
    known.
    """
    value = graph.values[place.softmax]
    if place.scores is not None:
        found = multiplied(graph, value.inputs[0], place.scores)
        found.constant *= float(graph.values[place.scores].kwargs.get("alpha", 1))
        return found
    if FUSED in value.op:
        given = _arguments(value).get("scale")
        return Multiplied(
            graph.values[place.queries].shape[-1] ** -0.5 if given is None else float(given)
        )
    return Multiplied(product=place.softmax)


def _arguments(value: TracedValue) -> dict[str, Any]:
    names = [argument.name for argument in value.function._schema.arguments]
    return dict(zip(names, value.args, strict=False)) | value.kwargs


def scores_of(
    graph: Graph, place: RecordedAttention, after: Multiplied
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns indices of the queries, products of queries and keys with their scale, and logits
    with biases and masks.
    """
    value = graph.values[place.softmax]
    if FUSED not in value.op:
        whole = graph.values[value.inputs[0]].tensor
        if whole.ndim < 2 or int(value.args[1]) % whole.ndim != whole.ndim - 1:
            return None
        rows = _rows(whole.shape[-2], whole)
        raw = logits = whole.index_select(-2, rows).float()
        scores = None if place.scores is None else graph.values[place.scores].tensor
        known = scores is not None and has_arithmetic(scores)
        if known and scores is not None and scores.numel() == whole.numel():
            raw = scores.reshape(whole.shape).index_select(-2, rows).float() * after.constant
        return rows, raw, logits
    query, key = (graph.values[n].tensor for n in (place.queries, place.keys))
    rows = _rows(query.shape[-2], query)
    return rows, *_fused_logits(graph, place, query, key, rows, after)


def _fused_logits(
    graph: Graph,
    place: RecordedAttention,
    query: Tensor,
    key: Tensor,
    rows: Tensor,
    after: Multiplied,
) -> tuple[Tensor, Tensor]:
    """Computes, for one operation that computes all of attention, the scaled products and the
    logits with biases and masks.
    """
    arguments = _arguments(graph.values[place.softmax])
    if key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    raw = (query.index_select(-2, rows) @ key.mT).float() * after.constant
    logits = raw
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    if isinstance(mask, Ref):
        given = graph.values[mask.number].tensor
        given = given if given.shape[-2] == 1 else given.index_select(-2, rows)
        logits = raw.masked_fill(~given, -inf) if given.dtype == torch.bool else raw + given.float()
    if arguments.get("is_causal"):
        logits = logits.masked_fill(torch.arange(key.shape[-2]).to(rows) > rows[:, None], -inf)
    return raw, logits


def _rows(queries: int, like: Tensor) -> Tensor:
    return torch.linspace(0, queries - 1, min(queries, _ROWS)).round().long().to(like.device)
