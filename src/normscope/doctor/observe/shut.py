"""Branches that a factor of 0 keeps out for ever: a number in the code, or a buffer, which no training changes."""

from collections.abc import Mapping

import torch
from torch import nn

from ..find.branches import Branch
from ..trace.flow import PRODUCTS, REARRANGING
from ..trace.graph import Graph
from ..trace.operations import Origin, TracedValue, memory_of, names_by_memory
from .sums import BranchSum

NOTHING = 1e-12
"""A factor up to which nothing is left of a value beside a stream, nor of its gradient; gates that train start at
1e-6 or above."""
IN_CODE = "a number in the code"


class ShutBranches:
    """What multiplies branches by 0, of one recorded pass."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self._graph = graph
        self._names: Mapping[int, str] = names_by_memory(model.named_buffers())
        self._originals = {id(copy): tensor for tensor, copy in graph.trace.written}

    def by(self, branch: Branch, found: BranchSum) -> tuple[str, ...]:
        """Names of buffers by which what is added does not depend on the model's input, or `IN_CODE`; empty where it
        does, or where a trained number may open it.
        """
        graph, addend = self._graph, found.addend
        sources = {found.stream, *branch.memory}
        between = sorted({n for source in sources for n in graph.between(source, addend)} - sources)
        zero: set[int] = set()
        fixed: set[int] = set()
        killed: dict[str, None] = {}
        for number in between:
            value = graph.values[number]
            before = graph.predecessors[number]
            if names := self._multiplied_by_nothing(value):
                killed |= dict.fromkeys(names)
                zero.add(number)
            elif self._stays_zero(value, zero):
                zero.add(number)
            if number in zero or all(n in fixed for n in before):
                fixed.add(number)
        return tuple(killed) if addend in fixed else self._on_the_way(addend, found.sum)

    def _on_the_way(self, addend: int, total: int) -> tuple[str, ...]:
        """The same of what multiplies the addend before it is added."""
        graph = self._graph
        names: tuple[str, ...] = ()
        at = addend
        while not names and len(after := [n for n in graph.consumers[at] if graph.depends(total, n)]) == 1:
            (at,) = after
            names = self._multiplied_by_nothing(graph.values[at]) if at < total else ()
        return names

    def _multiplied_by_nothing(self, value: TracedValue) -> tuple[str, ...]:
        if value.op not in ("mul", "div") or value.call is None or len(value.call.args) != 2:
            return ()
        if len(self._graph.predecessors[value.number]) != 1:
            return ()
        given = [n for n in value.inputs if not self._graph.values[n].is_data]
        if not given:
            (number,) = [arg for arg in value.call.args if isinstance(arg, int | float)] or [1.0]
            factor = abs(float(number)) if value.op == "mul" else 1 / abs(float(number) or 1.0)
            return (IN_CODE,) if factor <= NOTHING else ()
        tensor = self._graph.values[given[0]].tensor
        if len(given) > 1 or self._graph.values[given[0]].origin >= Origin.TRAINABLE or not tensor.numel():
            return ()
        # Masks of true and false have no absolute value.
        sizes = tensor.detach().float() if tensor.dtype == torch.bool else tensor.detach().abs()
        largest = float(sizes.max() if value.op == "mul" else 1 / sizes.min())
        if not largest <= NOTHING:
            return ()
        leaves = [self._originals.get(id(leaf.tensor), leaf.tensor) for leaf in self._graph.trace.leaves(given[0])]
        names = [self._names[memory_of(leaf)] for leaf in leaves if memory_of(leaf) in self._names]
        return tuple(names) or (IN_CODE,)

    def _stays_zero(self, value: TracedValue, zero: set[int]) -> bool:
        """Whether it is 0 because something that it is made of is, and nothing is added."""
        graph, before = self._graph, self._graph.predecessors[value.number]
        if value.op in PRODUCTS or value.op == "mul":
            factors = graph.factors(value) if value.op in PRODUCTS else before
            added = [n for n in value.inputs if n not in factors] if value.op in PRODUCTS else []
            return any(n in zero for n in factors) and not added
        return value.op in REARRANGING and all(n in zero for n in before)
