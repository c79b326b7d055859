"""Which parameters of the model a part of its recorded forward pass uses."""

from collections.abc import Iterator

from torch import Tensor, nn

from ..find.branches import Branch
from ..trace.graph import Graph
from .sums import LIGHT


class Uses:
    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self._graph = graph
        self._names: dict[int, list[tuple[str, Tensor]]] = {}
        for name, parameter in model.named_parameters():
            self._names.setdefault(_memory(parameter), []).append((name, parameter))
        # What the pass wrote over stands in the trace as a copy.
        self._originals = {id(copy): tensor for tensor, copy in graph.trace.written}
        self._found: dict[int, tuple[str, ...]] = {}

    def of(self, branch: Branch, addend: int) -> tuple[str, ...]:
        """Names of what F is computed with, and of biases added to its output, in order of use."""
        numbers = [*branch.computed, *self._biased(branch.output, addend)]
        return tuple(dict.fromkeys(name for number in numbers for name in self._directly(number)))

    def matrices(self, branch: Branch) -> tuple[str, ...]:
        """Names of what F multiplies data with in products and convolutions, or makes such matrices from, in order.

        Biases, gains of norms and tables that are looked up are not among them.
        """
        graph = self._graph
        factors = [n for number in branch.computed for n in graph.factors(graph.values[number])]
        given = [n for n in factors if not graph.values[n].is_data]
        return tuple(dict.fromkeys(name for n in given for name in (*self._directly(n), *self._named(n))))

    def _biased(self, output: int, addend: int) -> Iterator[int]:
        """Numbers of the steps from the output to the addend that leave it the same, but for what is added."""
        graph, found = self._graph, []
        number = addend
        while number != output and (step := graph.step(number)) is not None and step.kind in LIGHT:
            if step.kind == "same" and graph.values[number].op in ("add", "sub"):
                found.append(number)
            (number,) = step.sources
        yield from reversed(found)

    def _directly(self, number: int) -> tuple[str, ...]:
        """The parameters that a step uses beside data, made into something else first or not."""
        if number not in self._found:
            inputs = [n for n in self._graph.values[number].inputs if not self._graph.values[n].is_data]
            names = dict.fromkeys(name for n in inputs for name in (*self._directly(n), *self._named(n)))
            self._found[number] = tuple(names)
        return self._found[number]

    def _named(self, number: int) -> tuple[str, ...]:
        value = self._graph.values[number]
        if value.op != "leaf":
            return ()
        tensor = self._originals.get(id(value.tensor), value.tensor)
        same_memory = self._names.get(_memory(tensor), [])
        # Parameters may be parts of one piece of memory.
        exact = [name for name, p in same_memory if p.storage_offset() == tensor.storage_offset()]
        return tuple(exact or (name for name, _ in same_memory))


def _memory(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
