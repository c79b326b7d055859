"""Norms where they are applied: what they norm, over which dimensions, and what their output is
multiplied with.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ..find.streams import Stream
from ..find.terms import Term, ordered
from ..measured import NormGain, NormUse
from ..trace.graph import Graph
from ..trace.norms import NormFunction, power_of
from ..trace.operations import PRODUCTS, REARRANGING, UNREPEATABLE, Origin, Ref, TracedValue
from .parameters import size_of
from .sums import with_gain


def norm_uses(graph: Graph, stream: Stream) -> tuple[NormUse, ...]:
    """Returns every norm of a stream's formula that takes statistics."""
    terms = ordered(stream.formula)
    norms = [
        term
        for term in terms
        if term.kind == "norm" and term.norm is not None and not term.norm.is_curve
    ]
    readers = Counter(id(argument) for term in terms for argument in term.arguments)
    end = with_gain(graph, stream.end)
    uses = [
        _use(graph, term, readers, end if term is stream.formula else term.at) for term in norms
    ]
    # What shows of some norms holds for those of one shape whose output no matrix reads.
    known = {
        use.shape: {other.features for other in uses if other.shape == use.shape} - {None}
        for use in uses
    }
    return tuple(
        replace(use, features=next(iter(known[use.shape])) if len(known[use.shape]) == 1 else None)
        for use in uses
    )


def over_features(use: NormUse) -> bool:
    """Tells whether a norm is taken over each token's features, as far as it shows."""
    return use.features is None or not use.over or use.over == (use.features,)


def _use(graph: Graph, term: Term, readers: Counter[int], end: int) -> NormUse:
    """Returns the norm of a term, which ends at a value: the term's own, or that with a gain that
    the formula leaves out.
    """
    number = term.at
    while number not in graph.norms:
        step = graph.step(number)
        if step is None or len(step.sources) != 1:
            break
        (number,) = step.sources
    norm = graph.norms.get(number)
    reads = number if norm is None else norm.source
    steps = [n for n in graph.between(reads, end) if n != reads]
    inner = term.arguments[0]
    while inner.kind == "scale" and readers[id(inner)] == 1:
        (inner,) = inner.arguments
    doubled = (
        inner.kind == "norm"
        and inner.norm is not None
        and not inner.norm.is_curve
        and readers[id(inner)] == 1
    )
    shape = tuple(graph.values[number].shape)
    return NormUse(
        at=term.at,
        reads=reads,
        parameters=tuple(dict.fromkeys(name for n in steps for name in graph.parameters(n))),
        again=inner.at if doubled else None,
        shape=shape,
        over=() if norm is None else tuple(len(shape) + at for at in norm.over),
        of_unit_length=norm is not None
        and bool(graph.parameters(number) or steps)
        and _is_unit(graph, norm, with_gain(graph, number)),
        detached=norm is not None
        and any(graph.values[n].op == "detach" for n in graph.between(reads, number)),
        keeps_mean=norm is not None and norm.keeps_mean,
        features=_features(graph, number),
    )


def _is_unit(graph: Graph, norm: NormFunction, end: int) -> bool:
    """Tells whether a norm by x / ‖x‖ keeps its length of 1 through the factors that follow it."""
    x = graph.values[end].tensor
    length = math.sqrt(x.shape[-1])
    return not x.is_meta and abs(norm.size * length - 1) < 0.01 and 0.8 < size_of(x) * length < 1.25


def _features(graph: Graph, number: int) -> int | None:
    """Returns the dimension of a value that every matrix contracts which reads it; None where they
    differ, or there is none.
    """
    found = {dimension for operand in _operands(graph, number) for dimension in operand}
    return next(iter(found)) if len(found) == 1 else None


def _operands(graph: Graph, number: int) -> Iterator[tuple[int, ...]]:
    """For each product with a matrix that reads a value as it is, scaled or rearranged: the
    dimensions it contracts.
    """
    shape = graph.values[number].shape
    todo: list[tuple[int, list[Tensor]]] = [
        (number, [places_along(shape, at) for at in range(len(shape))])
    ]
    while todo:
        at, places = todo.pop()
        for consumer in graph.consumers[at]:
            value, step = graph.values[consumer], graph.step(consumer)
            if graph.is_weight_product(value):
                yield _contracted(graph, at, consumer, places)
            elif value.op in REARRANGING and len(graph.predecessors[consumer]) == 1:
                with suppress(*UNREPEATABLE):
                    todo.append(
                        (consumer, [graph.trace.again({at: place}, consumer) for place in places])
                    )
            elif (
                step is not None
                and step.kind in ("same", "scale")
                and value.shape == graph.values[at].shape
            ):
                todo.append((consumer, places))


def places_along(shape: torch.Size, dimension: int) -> Tensor:
    """Returns, for every entry of a tensor of this shape, its place along a dimension."""
    along = [1] * len(shape)
    along[dimension] = -1
    return torch.arange(float(shape[dimension])).reshape(along).expand(shape).contiguous()


def _contracted(graph: Graph, at: int, product: int, places: list[Tensor]) -> tuple[int, ...]:
    value = graph.values[product]
    refs = [argument.number for argument in value.args if isinstance(argument, Ref)]
    if value.op not in PRODUCTS or at not in refs:
        return ()
    # Of a product's two factors the left one has the contracted dimension at its end.
    inner = 1 if value.op == "convolution" else -1 if refs.index(at) < len(refs) - 1 else -2
    deep = abs(inner) - (inner > 0)
    return tuple(
        dimension
        for dimension, place in enumerate(places)
        if place.ndim > deep
        and place.shape[inner] > 1
        and not torch.equal(place.narrow(inner, 0, 1).expand_as(place), place)
    )


def powers(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Finds values that are built like norms and are none: returns the innermost module around
    each, and the power that `power_of` finds.
    """
    found: dict[str, int] = {}
    for value in graph.values:
        if value.tensor.ndim > 1 and not value.tensor.is_meta and value.number not in graph.norms:
            power = power_of(graph, value)
            if power is not None:
                found.setdefault(value.module, power)
    return tuple(found.items())


def norm_gains(graph: Graph) -> tuple[NormGain, ...]:
    """Returns the trained gains of all norms that have one for each feature, in the order in which
    the norms are computed; each parameter once.
    """
    found: dict[str, NormGain] = {}
    for number, norm in graph.norms.items():
        if norm.is_curve:
            continue
        for factor in (*_within(graph, number), *_after(graph, number)):
            gain = _gain(graph, factor)
            if gain is not None:
                found.setdefault(gain.name, gain)
    return tuple(found.values())


def _gain(graph: Graph, number: int) -> NormGain | None:
    value = graph.values[number]
    leaves = [leaf for leaf in graph.trace.leaves(number) if leaf.origin == Origin.TRAINABLE]
    if len(leaves) != 1 or leaves[0].tensor.numel() != value.tensor.numel() or value.tensor.is_meta:
        return None
    if not (has_arithmetic(value.tensor) and has_arithmetic(leaves[0].tensor)):
        return None
    total, own = (tensor.detach().double().flatten() for tensor in (value.tensor, leaves[0].tensor))
    return NormGain(
        name=leaves[0].names[-1],
        total=float(total.mean()),
        own=float(own.mean()),
        constant=bool((own == own[0]).all()),
        # In bfloat16, 1 + w keeps three digits.
        adds_one=float((total - own - 1).abs().max()) < 0.01,
        total_size=float(total.square().mean().sqrt()),
        total_negative=float((total < 0).double().mean()),
    )


def _within(graph: Graph, number: int) -> list[int]:
    """Returns the vectors that the norm's own arithmetic multiplies with, as in w · x / ‖x‖."""
    value = graph.values[number]
    if value.op == "native_layer_norm":
        weight = value.args[2]
        return [weight.number] if isinstance(weight, Ref) else []
    inside = graph.between(graph.norms[number].source, number)[1:]
    return [n for at in inside for n in _vectors(graph, graph.values[at])]


def _after(graph: Graph, number: int) -> list[int]:
    """Returns the vector that alone reads the norm's value."""
    while len(consumers := set(graph.consumers[number])) == 1:
        (number,) = consumers
        step = graph.step(number)
        if step is None or step.kind not in ("same", "scale"):
            return []
        if vectors := _vectors(graph, graph.values[number]):
            return vectors
    return []


def _vectors(graph: Graph, value: TracedValue) -> list[int]:
    if value.op != "mul":
        return []
    return [
        n
        for n in value.inputs
        if graph.values[n].origin == Origin.TRAINABLE
        and graph.values[n].shape[-1:] == value.shape[-1:] > (1,)
        and graph.values[n].tensor.numel() == value.shape[-1]
    ]
