"""What stands beside a stream: dropouts of logits, and places that are read of it at its end."""

from collections.abc import Iterator, Sequence

from ..find.streams import Stream
from ..measured import ReadPlaces
from ..trace.graph import Graph
from ..trace.operations import REARRANGING, SOFTMAX, Origin, TracedValue

_ENTRY_BY_ENTRY = frozenset(
    {"masked_fill", "where", "add", "sub", "mul", "div", "clone", "_to_copy", "to", *REARRANGING}
)


def dropped_logits(graph: Graph) -> tuple[str, ...]:
    """The innermost modules that run where a softmax is taken of what training takes a dropout
    of."""
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


def read_places(graph: Graph, streams: Sequence[Stream]) -> ReadPlaces | None:
    """Where tokens that are trained stand in the last stream, and at which single places it is read
    at its end; None without either."""
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
    """Of what picks one place of (A, C, D), which; None of all else."""
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
        at = 0
        for number in value.inputs:
            given = graph.values[number]
            if given.origin == Origin.TRAINABLE and given.shape[1] == 1:
                names = graph.parameters(number)
                yield at, next(iter(names), "")
            at += given.shape[1]
