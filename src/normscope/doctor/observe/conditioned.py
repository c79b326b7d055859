"""Branches that are multiplied by a gate made from a condition, one for all tokens alike."""

from collections.abc import Sequence

from ..record import Stack
from ..trace.graph import Graph
from ..trace.operations import Origin
from .parameters import size_of


def conditioned_gates(graph: Graph, stacks: Sequence[Stack]) -> dict[str, float]:
    """Measures gates that come of a condition: returns their root mean square, the largest of
    several, by the matrix that makes them.

    A gate is no part of the stream, has one value for all tokens, and is read off a product with
    weights as it is; one that a table is added to starts where the table does.
    """
    found: dict[str, float] = {}
    for stack in stacks:
        for sublayer in stack.sublayers:
            place = sublayer.measured.place
            if place is None:
                continue
            value = graph.values[place.addend]
            factors = graph.predecessors[value.number] if value.op == "mul" else []
            for number in factors if len(factors) == 2 else ():
                gate = graph.values[number]
                one_for_all = gate.tensor.ndim > 1 and gate.shape.numel() < value.shape.numel()
                if not one_for_all or graph.depends(number, place.stream):
                    continue
                if name := _made_by(graph, number):
                    found[name] = max(found.get(name, 0.0), size_of(gate.tensor))
    return found


def _made_by(graph: Graph, number: int) -> str:
    """Returns the parameter of the product that a value is read off; "" where more is done to
    it.
    """
    while not graph.is_weight_product(graph.values[number]):
        before = graph.predecessors[number]
        added = [graph.values[n] for n in graph.values[number].inputs if n not in before]
        if len(before) != 1 or any(one.tensor.ndim > 1 for one in added):
            return ""
        (number,) = before
    leaves = [
        leaf
        for n in graph.values[number].inputs
        if not graph.values[n].is_data
        for leaf in graph.trace.leaves(n)
        if leaf.origin == Origin.TRAINABLE and leaf.names and leaf.tensor.ndim > 1
    ]
    return leaves[0].names[-1] if len(leaves) == 1 else ""
