"""Hidden units of feed-forwards: what a softmax over them shares out, and what a bound cuts off."""

from collections.abc import Iterator, Sequence

from ...find.streams import Stream
from ...identify.stacks import branches_of
from ...partly_used import CutUnits
from ...record import Stack
from ...trace.graph import Graph
from ...trace.operations import SOFTMAX, TracedValue

_LEAST_UNITS = 32
"""The fewest units: of fewer, a softmax may be a choice, as among experts."""
_CUT = 0.75
"""Share of the entries that a bound makes another number."""
_BOUNDS = frozenset({"clamp", "clamp_min", "clamp_max", "hardtanh", "minimum", "maximum"})


def cut_units(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[CutUnits, ...]:
    """Returns the feed-forwards of which a softmax shares one sum out among the units, or a bound
    cuts most entries off.
    """
    found = []
    for stream, stack in zip(streams, stacks, strict=True):
        for one, branch in zip(stack.sublayers, branches_of(stack, stream), strict=True):
            if one.kind != "feed_forward" or not branch.reads:
                continue
            inside = [graph.values[n] for n in graph.between(branch.reads[0], branch.output)]
            shared = max(_shared_out(graph, inside), default=0)
            share = max(_shares_cut(graph, inside), default=0.0)
            if shared or share > _CUT:
                found.append(
                    CutUnits(name=one.name, shared_by=shared, cut=share if share > _CUT else 0.0)
                )
    return tuple(found)


def _shared_out(graph: Graph, inside: Sequence[TracedValue]) -> Iterator[int]:
    """Among how many units a softmax is taken that multiplies as many, entry by entry, before a
    matrix reads the product.
    """
    for value in inside:
        if not graph.is_weight_product(value):
            continue
        for number in graph.predecessors[value.number]:
            product = graph.values[graph.rearranged(number)]
            for factor in graph.predecessors[product.number] if product.op == "mul" else ():
                curve = graph.values[factor]
                units = curve.shape[-1] if curve.shape else 0
                if curve.op in SOFTMAX and curve.shape == product.shape and units >= _LEAST_UNITS:
                    yield units


def _shares_cut(graph: Graph, inside: Sequence[TracedValue]) -> Iterator[float]:
    for value in inside:
        before = [graph.values[n] for n in graph.predecessors[value.number]]
        if value.op not in _BOUNDS or len(before) != 1 or before[0].shape != value.shape:
            continue
        # A bound at 0 alone is a ReLU.
        is_relu = bool((value.tensor >= 0).all()) and bool((value.tensor == 0).any())
        if value.tensor.numel() and not value.tensor.is_meta and not is_relu:
            yield float((value.tensor != before[0].tensor).double().mean())
