"""Observations beside a stream: dropouts, batch norms that take tokens for channels, and the places
that are read at its end.
"""

from collections.abc import Iterator, Sequence

from ...find.streams import Stream
from ...measured import ReadPlaces
from ...trace.graph import Graph
from ...trace.operations import REARRANGING, SOFTMAX, Origin, TracedValue

_ENTRY_BY_ENTRY = frozenset(
    {"masked_fill", "where", "add", "sub", "mul", "div", "clone", "_to_copy", "to", *REARRANGING}
)


def dropped_logits(graph: Graph) -> tuple[str, ...]:
    """Returns the innermost modules that run where a softmax is taken of what training takes a
    dropout of.
    """
    found: dict[str, None] = {}
    for dropped in graph.trace.dropped:
        ahead, seen = [dropped], {dropped}
        while ahead:
            for number in graph.consumers[ahead.pop()]:
                value = graph.values[number]
                if value.op in SOFTMAX:
                    found[value.module] = None
                elif value.op in _ENTRY_BY_ENTRY and number not in seen:
                    seen.add(number)
                    ahead.append(number)
    return tuple(found)


def large_dropouts(graph: Graph) -> dict[str, float]:
    """Returns the modules that run where training drops most of what there is, with the share."""
    return {
        graph.values[number].module: share
        for number, share in graph.trace.dropped.items()
        if share >= _MOST
    }


_MOST = 0.7


def token_channels(graph: Graph, streams: Sequence[Stream]) -> tuple[str, ...]:
    """Returns the modules that norm the batch of a stream (A, C, D) for each of C, where D are the
    features that matrices read.
    """
    shapes = {graph.values[stream.last].shape for stream in streams}
    features = {shape[-1] for shape in shapes if len(shape) == 3 and shape[1] != shape[2]}
    read = {
        graph.values[number].shape[-1]
        for value in graph.values
        if graph.is_weight_product(value)
        for number in graph.predecessors[value.number]
    }
    found = {
        value.module: None
        for value in graph.values
        if "batch_norm" in value.op
        and value.inputs
        and (given := graph.values[value.inputs[0]].shape) in shapes
        and len(given) == 3
        and given[-1] in features & read
        and given[1] not in read
    }
    return tuple(found)


def read_places(graph: Graph, streams: Sequence[Stream]) -> ReadPlaces | None:
    """Finds the places of trained tokens in the last stream, and the single places at which it is
    read at its end; None without either.
    """
    if not streams:
        return None
    stream = streams[-1]
    shape = graph.values[stream.last].shape
    if len(shape) != 3:
        return None
    trained = dict(_trained_places(graph, stream, shape[1]))
    read = {
        place
        for value in graph.values
        if graph.depends(value.number, stream.last)
        and (place := _place_of(graph, value, shape[1])) is not None
    }
    if not trained or not read:
        return None
    return ReadPlaces(read=tuple(sorted(read)), trained=trained, tokens=shape[1])


def _place_of(graph: Graph, value: TracedValue, tokens: int) -> int | None:
    """Returns the place that a selection picks out of (A, C, D); None for any other operation."""
    before = graph.predecessors[value.number]
    if value.op != "select" or len(before) != 1 or len(value.args) < 3:
        return None
    given = graph.values[before[0]].shape
    dimension, place = value.args[1], value.args[2]
    if len(given) != 3 or dimension != 1 or given[1] != tokens or not isinstance(place, int):
        return None
    return place % tokens


def _trained_places(graph: Graph, stream: Stream, tokens: int) -> Iterator[tuple[int, str]]:
    """Places of single trained tokens that are put beside others, with their names."""
    for value in graph.values:
        if value.op != "cat" or len(value.shape) != 3 or value.shape[1] != tokens:
            continue
        if not graph.depends(stream.last, value.number) or value.args[1:2] != (1,):
            continue
        # torch puts an empty row of one dimension beside others too, as of a cache.
        beside = [graph.values[n] for n in value.inputs if len(graph.values[n].shape) == 3]
        at = 0
        for given in beside:
            if given.origin == Origin.TRAINABLE and given.shape[1] == 1:
                names = graph.parameters(given.number)
                yield at, next(iter(names), "")
            at += given.shape[1]
