"""The surroundings of a stream: what reads its end, what its cross-attention reads, and what a lost
sum cut it from; and sums on it that end a sub-layer, as with a convolution after attention: (z +
conv(z)) / √5.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Literal

from ..trace.graph import Graph
from ..trace.operations import FUSED, SOFTMAX, bits, walked
from .branches import Branch, BranchKind

_Reader = Literal["norm", "weights", "output"]


def surroundings(
    graph: Graph,
    ends: Sequence[int],
    values: Sequence[int],
    sources: int,
    memories: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    """Returns the surroundings of one stream, by the names of the fields of `Stack`.

    ends: the last residual sum of every stream up to this one, whose own is the last. values: of
    each of them its values, as bits. sources: the values that this stream starts from, as bits.
    memories: (value of another stream, branch of this one that reads it) for every cross-attention.
    """
    continues, cut_by = _cut(graph, ends[:-1], values[:-1], sources, ends[-1])
    return {
        "end_read_by": "norm" if _is_normed(graph, ends[-1]) else _reader(graph, ends[-1], -1),
        "memory_normed": all(
            _is_normed(graph, value) or _reader(graph, value, graph.ancestors[branch]) != "weights"
            for value, branch in memories
        ),
        "continues": continues,
        "cut_by": cut_by,
        "starts_from_given": any(_joins_given(graph, n) for n in bits(sources)),
    }


def _joins_given(graph: Graph, source: int) -> bool:
    """Tells whether a source is first added to rows that are no data, such as learnt queries: that
    sum is a residual one.
    """
    return any(
        given.tensor.ndim > 1 and given.shape[-2:] == graph.values[number].shape[-2:]
        for number in graph.after(source, "same", "scale")
        for given in (graph.values[n] for n in graph.values[number].inputs)
        if not given.is_data
    )


def _is_normed(graph: Graph, number: int) -> bool:
    """Tells whether a value is made of norms' outputs by sums, scales and rearrangement alone."""

    def under(at: int) -> Sequence[int]:
        step = graph.step(at)
        return () if step is None or step.kind == "norm" else step.sources

    return all(graph.step(at) is not None for at in walked(number, under))


def _reader(graph: Graph, number: int, among: int) -> _Reader:
    """Returns what a value goes into, looking no further than norms.

    among: the values through which to look, as bits; -1 for all of them.
    """

    def onwards(at: int) -> Sequence[int]:
        ends = at != number and (at in graph.norms or graph.is_weight_product(graph.values[at]))
        return [] if ends else [n for n in graph.consumers[at] if among >> n & 1]

    readers = list(walked(number, onwards))[1:]
    products = [
        n for n in readers if n not in graph.norms and graph.is_weight_product(graph.values[n])
    ]
    if not all(_is_normed_at_once(graph, n) for n in products):
        return "weights"
    return "norm" if products or any(n in graph.norms for n in readers) else "output"


def _is_normed_at_once(graph: Graph, product: int) -> bool:
    """Whether a norm reads a product with weights before anything else is made of it: however large
    what the weights read is, it is lost there. So begin the necks of pictures' pyramids.
    """
    after = (product, *graph.after(product, "same", "scale"))
    return any(n in graph.norms for at in after for n in graph.consumers[at])


def _cut(
    graph: Graph, ends: Sequence[int], values: Sequence[int], sources: int, own_end: int
) -> tuple[int | None, BranchKind | None]:
    """Returns the nearest earlier stream of the same shape that a source is made from by way of
    weights, and by what.
    """
    if any(_carries(graph, source, values) for source in bits(sources)):
        # What is added to it holds earlier streams, though in parts, as where some tokens go
        # another way.
        return None, None
    for number in range(len(ends) - 1, -1, -1):
        end = ends[number]
        if graph.values[end].shape != graph.values[own_end].shape or sources & values[number]:
            continue
        for source in range(sources.bit_length()):
            if (
                sources >> source & 1
                and graph.through_weights[source] >> end & 1
                and graph.values[source].tensor.numel() == graph.values[end].tensor.numel()
            ):
                between = graph.between(end, source)
                if any(other >> n & 1 for other in values[number + 1 :] for n in between):
                    # What lies between is no sub-layer, but a stack of its own.
                    continue
                # What cross-attention reads beside the stream is another one, and no way around it.
                crosses = _crosses(graph, source, end)
                if crosses or not _goes_around(graph, source, end):
                    attends = any(graph.is_data_product(graph.values[n]) for n in between)
                    if not crosses and not attends and _convolves(graph, between):
                        return number, "convolution"
                    return (
                        number,
                        "cross_attention"
                        if crosses
                        else "attention"
                        if attends
                        else "feed_forward",
                    )
    return None, None


def _convolves(graph: Graph, between: Sequence[int]) -> bool:
    """Tells whether all products with weights among the values are convolutions, and one of them
    spans several places.
    """
    products = [graph.values[n] for n in between if graph.is_weight_product(graph.values[n])]
    kernels = [graph.values[n].shape[2:] for one in products for n in graph.factors(one)[1:2]]
    return all(one.op == "convolution" for one in products) and any(
        size > 1 for kernel in kernels for size in kernel
    )


def _crosses(graph: Graph, source: int, end: int) -> bool:
    """Tells whether a value is made by attention of queries that are made from a stream's end, to
    keys that are not.
    """
    for number in graph.between(end, source):
        value = graph.values[number]
        if not (graph.is_data_product(value) or FUSED in value.op):
            continue
        given = [n for n in value.inputs if graph.values[n].is_data]
        if (
            len(given) > 1
            and graph.depends(given[0], end)
            and not any(graph.depends(n, end) for n in given[1:])
        ):
            # Of scores, not of what they weigh, which depends on the queries too.
            weighs = any(graph.values[n].op in SOFTMAX for n in graph.between(end, given[0]))
            return not weighs
    return False


def _carries(graph: Graph, source: int, values: Sequence[int]) -> bool:
    """Tells whether values of streams reach a value without passing weights: they are added in a
    way not seen as a sum.
    """
    everything = reduce(or_, values, 0)
    without_weights = walked(
        source, lambda n: () if graph.is_weight_product(graph.values[n]) else graph.predecessors[n]
    )
    return any(everything >> at & 1 for at in without_weights)


def _goes_around(graph: Graph, source: int, end: int) -> bool:
    """Tells whether a value is also made from others of the stream's shape, on ways that do not
    pass the stream's end.
    """
    shape = graph.values[end].shape
    for at in walked(
        source, lambda n: [before for before in graph.predecessors[n] if before != end]
    ):
        value = graph.values[at]
        alike = at != source and value.shape == shape and value.tensor.is_floating_point()
        # Learnt queries, as many as there are tokens, come from elsewhere too.
        learnt = any(
            graph.values[n].shape == shape and not graph.values[n].is_data for n in value.inputs
        )
        if learnt or (alike and not graph.depends(at, end)):
            return True
    return False


_ALONE = ("same", "scale")


def refined(graph: Graph, found: Sequence[Branch], values: int, reached: list[int]) -> list[int]:
    """Sums of a branch's output and of what reads it alone, each with what scales it: each is one
    sub-layer.

    The sum goes into another sum or a mean over depth, and no sub-layer reads it before; what is
    read by the next sub-layer is the stream itself, into which the first branch came without a
    skip.
    """
    outputs = {branch.output for branch in found}
    leaves = sum(1 << n for n in bits(values) if graph.step(n) is None)
    read = {graph.under(n, *_ALONE, "norm") for branch in found for n in branch.reads}
    ends = []
    for branch in found:
        first = graph.under(branch.reads[0], *_ALONE, "norm")
        if len(branch.reads) > 1 or first not in outputs:
            continue
        pair = 1 << first | 1 << branch.output
        total = next((n for n in bits(values) if reached[n] & leaves == pair), None)
        if (
            total is None
            or total in read
            or any(_goes_past(total, n, first, reached) for n in bits(values))
        ):
            continue
        end = _scaled(graph, total, values)
        if any(
            step.kind in ("sum", "mix")
            for n in _after(graph, end, values)
            if (step := graph.step(n)) is not None
        ):
            ends.append(end)
    return ends


def _goes_past(total: int, number: int, first: int, reached: list[int]) -> bool:
    """Tells whether a value is made of the first branch's output on a way that does not pass the
    sum.
    """
    return bool(reached[number] >> first & 1) and not (
        reached[number] >> total & 1 or reached[total] >> number & 1
    )


def _scaled(graph: Graph, total: int, values: int) -> int:
    """Returns the sum with what multiplies it."""
    while len(after := _after(graph, total, values)) == 1:
        step = graph.step(after[0])
        if step is None or step.kind not in _ALONE:
            break
        (total,) = after
    return total


def _after(graph: Graph, number: int, values: int) -> list[int]:
    """Returns the values of the stream that are made from one at once."""
    found = [n for n in graph.consumers[number] if values >> n & 1]
    means = [n for n in graph.mixtures_of.get(number, ()) if values >> n & 1]
    return list(dict.fromkeys(found + means))
