"""Weights that a pass computes with, and that no loss of its output can teach."""

from collections.abc import Iterator

from torch import nn

from ...trace.graph import Graph
from ...trace.operations import REARRANGING, TracedValue


def detached_products(model: nn.Module, graph: Graph) -> tuple[str, ...]:
    """Returns the trained parameters that are multiplied with data as a detached view of them,
    rearranged at most.
    """
    weights = dict(model.named_parameters())
    found: dict[str, None] = {}
    for value in graph.values:
        if not graph.is_weight_product(value):
            continue
        for number in value.inputs:
            if not graph.values[number].is_data and _is_detached(graph, number):
                names = _names(graph, number)
                found |= {name: None for name in names if _is_trained(weights, name)}
    return tuple(found)


def _is_detached(graph: Graph, number: int) -> bool:
    while (value := graph.values[number]).op in REARRANGING and value.op != "detach":
        number = value.inputs[0]
    return value.op == "detach"


def dropped_products(model: nn.Module, graph: Graph) -> tuple[str, ...]:
    """Returns the trained matrices whose products with data make nothing of what the pass
    returns.
    """
    weights = dict(model.named_parameters())
    results = set(graph.trace.results)
    read, dropped = set[str](), dict[str, None]()
    for value in graph.values:
        if not graph.is_weight_product(value):
            continue
        matrices = [n for n in value.inputs if not graph.values[n].is_data]
        names = [name for n in matrices for name in _names(graph, n)]
        if _makes(graph, value, results):
            read.update(names)
        else:
            dropped |= {name: None for name in names if _is_trained(weights, name)}
    return tuple(name for name in dropped if name not in read)


def _makes(graph: Graph, value: TracedValue, results: set[int]) -> bool:
    return value.number in results or any(graph.depends(one, value.number) for one in results)


def _names(graph: Graph, number: int) -> Iterator[str]:
    return (leaf.names[-1] for leaf in graph.trace.leaves(number) if leaf.names)


def _is_trained(weights: dict[str, nn.Parameter], name: str) -> bool:
    return name in weights and weights[name].requires_grad
