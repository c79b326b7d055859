"""The end of a stream computed by its formula: branches from what they read, all else by the
formula's numbers.
"""

import torch
from torch import Tensor

from normscope.doctor.find.streams import Stream
from normscope.doctor.trace.graph import Graph
from normscope.doctor.trace.operations import apart


def evaluated(graph: Graph, stream: Stream) -> Tensor:
    """The value of `stream.end`, from the stream's sources alone; the recorded one is what it
    should be.
    """
    branches = {branch.output: branch.reads for branch in stream.branches}
    known: dict[int, Tensor] = {}
    for number in _needed(graph, stream.end, branches):
        step, recorded = graph.step(number), graph.values[number].tensor
        if number in branches:
            known[number] = graph.trace.again({n: known[n] for n in branches[number]}, number)
        elif step is None:
            known[number] = recorded
        elif connection := graph.connections.made.get(number):
            weights = connection.weights
            read = 1 if connection.kind == "expand" else weights.streams
            lanes = apart(known[connection.source], read, weights.width)
            assert lanes is not None
            known[number] = weights.applied(lanes).reshape(recorded.shape)
        elif step.kind == "sum":
            parts = [
                _like(known[n], recorded) * f.value
                for n, f in zip(step.sources, step.factors, strict=True)
            ]
            known[number] = parts[0] + parts[1]
        else:
            known[number] = graph.trace.again({n: known[n] for n in step.sources}, number)
    return known[stream.end]


def _like(x: Tensor, recorded: Tensor) -> Tensor:
    """In the shape of the sum that it is added in; one vector for all streams stays as it is."""
    return x.reshape(recorded.shape) if x.numel() == recorded.numel() else x


def _needed(graph: Graph, end: int, branches: dict[int, tuple[int, ...]]) -> list[int]:
    found, todo = {end}, [end]
    while todo:
        number = todo.pop()
        step = graph.step(number)
        sources = branches.get(number, step.sources if step is not None else ())
        todo += [n for n in sources if n not in found]
        found.update(sources)
    return sorted(found)


def off_by(graph: Graph, stream: Stream) -> float:
    """The largest difference of the formula's end from the recorded one, relative to the largest
    entry.
    """
    recorded = graph.values[stream.end].tensor
    with torch.no_grad():
        return float((evaluated(graph, stream) - recorded).abs().max() / recorded.abs().max())
