"""Observations on how a pass reads parameters: gates where their curve is flat, tables that are
looked up, and the matrices that make the output.

A table is an embedding: its rows are looked up by tokens or by places. What is added to its rows
before anything else reads them may come of another table.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from ...measure.passes import euclidean_norm, has_arithmetic
from ..measured import OutputMatrix, Table
from ..trace.graph import Graph
from ..trace.operations import Origin, Ref, Trace, TracedValue, memory_of


def size_of(tensor: Tensor) -> float:
    """Returns the root mean square of its entries, in float64; NaN of none, and on the meta
    device.
    """
    if tensor.is_meta or not tensor.numel() or tensor.is_sparse:
        return math.nan
    return euclidean_norm(tensor) / math.sqrt(tensor.numel())


_LONGEST = 24
"""Steps between a product and what it is for, such as those of a cap on logits."""
FLAT = 0.01
"""The slope, as a share of the greatest, below which a curve is flat: σ beyond 6.0 and tanh beyond
3.0.
"""


def flat_gates(trace: Trace) -> dict[str, float]:
    """Returns the parameters whose σ or tanh is flat for half of the entries or more, with that
    share, in the order of reading.

    What depends on the model's input is no gate of this kind: there the slope is another for every
    token.
    """
    found: dict[str, float] = {}
    for value in trace.values:
        is_curve = value.op in _SLOPES and has_arithmetic(value.tensor)
        if is_curve and value.origin == Origin.TRAINABLE and not value.tensor.is_meta:
            slope = _SLOPES[value.op](value.tensor.double())
            share = float((slope < FLAT).double().mean()) if slope.numel() else 0.0
            for leaf in trace.leaves(value.number):
                if leaf.names and leaf.origin != Origin.BUFFER and share >= 0.5:
                    found[leaf.names[-1]] = max(share, found.get(leaf.names[-1], 0.0))
    return found


_SHUT = 0.99
"""Share of the entries, over all tokens."""


def shut_gates(trace: Trace) -> dict[str, float]:
    """Finds gates, a σ or a softplus of data, of which nearly all values are flat near 0: returns
    the mean of each, by the parameter that shifts it or makes its argument.
    """
    found: dict[str, float] = {}
    for value in trace.values:
        is_gate = value.op in _LEAST and value.is_data and value.tensor.ndim > 1
        if not is_gate or value.tensor.is_meta or not value.tensor.numel():
            continue
        y = value.tensor.double()
        if float((y < _LEAST[value.op]).double().mean()) < _SHUT:
            continue
        before = trace.values[value.inputs[0]]
        for _ in range(_LONGEST):
            own = [n for n in before.inputs if not trace.values[n].is_data]
            names = [leaf.names[-1] for n in own for leaf in trace.leaves(n) if leaf.names]
            if names or not before.inputs:
                break
            before = trace.values[before.inputs[0]]
        if names:
            found[names[-1]] = float(y.mean())
    return found


_LEAST = {"sigmoid": FLAT / 4, "softplus": 1e-5}
"""The value of a curve near 0 below which it is flat: the slope of σ is that value, and the step of
a state space starts at 1e-4 and above (Gu and Dao 2023).
"""

_SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda y: 4 * y * (1 - y),
    "tanh": lambda y: 1 - y * y,
}
"""The slope of a curve as a function of its value, over the greatest slope."""


def tables_and_outputs(graph: Graph) -> tuple[tuple[Table, ...], tuple[OutputMatrix, ...]]:
    """Returns the tables that a recorded pass looks up, and the matrices that make the model's
    outputs.
    """
    ends = _Ends(graph)
    return ends.tables(), ends.output_matrices()


class _Ends:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made_from: defaultdict[int, set[int]] = defaultdict(set)
        """The values made from each value, whether they depend on the model's input or not."""
        for value in graph.values:
            for number in value.inputs:
                self._made_from[number].add(value.number)

    def tables(self) -> tuple[Table, ...]:
        """Returns every table that is looked up, and every trained tensor that is added to rows of
        a table as it is.
        """
        found = list(self._tables())
        joined = {table.joined_at for table in found} - {-1}
        added = (*self._added(), *self._fixed())
        return (*found, *(table for table in added if table.joined_at in joined))

    def _added(self) -> Iterator[Table]:
        """Trained tensors of two dimensions or more that a sum takes as they are, such as learnt
        positions.
        """
        for value in self._graph.values:
            if (
                value.op != "leaf"
                or value.origin != Origin.TRAINABLE
                or value.tensor.ndim < 2
                or value.tensor.is_meta
            ):
                continue
            joined, name = self._joined(value.number), self._name(value.number)
            if joined >= 0 and name is not None:
                yield self._as_it_is(name, value, joined)

    def _fixed(self) -> Iterator[Table]:
        """Rows that are the same for every input and are not trained, such as sinusoids."""
        values = self._graph.values
        for value in values:
            adds = value.op == "add" and value.is_data and has_arithmetic(value.tensor)
            for number in value.inputs if adds else ():
                given = values[number]
                rows = given.shape[-2:]
                if (
                    given.origin >= Origin.TRAINABLE
                    or given.tensor.is_meta
                    or rows != value.shape[-2:]
                    or rows[0] < 2
                ):
                    continue
                yield self._as_it_is("", given, self._joined(number))

    def _as_it_is(self, name: str, rows: TracedValue, joined: int) -> Table:
        size, width = size_of(rows.tensor), rows.shape[-1]
        return Table(
            name=name,
            size=size,
            width=width,
            factor=1.0,
            rows_size=size,
            by_place=True,
            joined_at=joined,
        )

    def _tables(self) -> Iterator[Table]:
        values = self._graph.values
        for value in values:
            if value.op != "embedding" or value.tensor.is_meta:
                continue
            weight, places = value.args[:2]
            name = self._name(weight.number) if isinstance(weight, Ref) else None
            if (
                name is None
                or not isinstance(places, Ref)
                or values[weight.number].origin != Origin.TRAINABLE
            ):
                continue
            factor, end = self._scaled(value.number)
            shape = values[end].rows, values[end].tensor.shape[-1]
            rows = values[end].tensor.detach().reshape(shape)
            looked_up = rows[rows.any(dim=1)]  # rows of padding are 0
            yield Table(
                name=name,
                size=self._size(weight.number),
                width=value.shape[-1],
                factor=factor,
                rows_size=size_of(looked_up) if len(looked_up) else 0.0,
                by_place=_counts(values[places.number].tensor),
                joined_at=self._joined(end),
            )

    def _scaled(self, number: int) -> tuple[float, int]:
        """Returns the factor that a value is multiplied by before anything else is done with it,
        and the number of the product.
        """
        factor = 1.0
        while len(consumers := self._made_from[number]) == 1:
            (after,) = consumers
            value = self._graph.values[after]
            by = [self._graph.values[n].tensor for n in value.inputs if n != number]
            given = [a for a in value.args if isinstance(a, int | float)]
            if value.tensor.numel() != self._graph.values[number].tensor.numel():
                break
            if (
                value.op in ("mul", "div")
                and len(by) + len(given) == 1
                and all(t.numel() == 1 for t in by)
            ):
                size = complex(by[0] if by else given[0])
                if size.imag or (value.op == "div" and not size):
                    break
                factor *= size.real if value.op == "mul" else 1 / size.real
            elif value.op not in ("clone", "detach", "_to_copy", "alias", "view"):
                break
            number = after
        return factor, number

    def _joined(self, number: int) -> int:
        """Returns the last of the sums in a row that a value goes into alone; -1 where it goes into
        none.
        """
        last = -1
        while len(consumers := self._made_from[number]) == 1:
            (after,) = consumers
            op = self._graph.values[after].op
            if op not in ("add", "view", "unsqueeze", "expand", "_to_copy", "clone", "slice"):
                break
            last, number = (after if op == "add" else last), after
        return last

    def output_matrices(self) -> tuple[OutputMatrix, ...]:
        """Returns the matrices that make the model's outputs, in the outputs' order, where a
        parameter is one.
        """
        return tuple(
            found for result in self._graph.trace.results if (found := self._output_matrix(result))
        )

    def _output_matrix(self, number: int) -> OutputMatrix | None:
        for _ in range(_LONGEST):
            value, before = self._graph.values[number], self._graph.predecessors[number]
            if self._graph.is_weight_product(value):
                break
            if len(before) != 1:
                return None
            (number,) = before
        else:
            return None
        given = [n for n in value.inputs if not self._graph.values[n].is_data]
        matrix = next((n for n in given if self._graph.values[n].tensor.ndim == 2), None)
        name = None if matrix is None else self._name(matrix)
        is_empty = value.tensor.is_meta or not value.tensor.numel()
        if matrix is None or name is None or is_empty or not before:
            return None
        weight = self._graph.values[matrix].tensor
        outputs = value.shape[-1]
        return OutputMatrix(
            name=name,
            size=self._size(matrix),
            inputs=weight.numel() // outputs,
            outputs=outputs,
            reads_size=size_of(self._graph.values[before[0]].tensor),
        )

    def _size(self, number: int) -> float:
        """Returns the size of a recorded value, as `size_of` defines it."""
        tensor = self._graph.values[number].tensor
        if tensor.is_sparse or not tensor.numel():
            return math.nan
        return self._graph.magnitude_of(number) / math.sqrt(tensor.numel())

    def _name(self, number: int) -> str | None:
        leaves = [
            leaf for leaf in self._graph.trace.leaves(number) if leaf.origin == Origin.TRAINABLE
        ]
        return leaves[0].names[-1] if len(leaves) == 1 else None


def _counts(places: Tensor) -> bool:
    """Tells whether rows are looked up one after another, as those of positions are."""
    if not places.ndim or not places.numel():
        return False
    steps = places.detach().reshape(-1, places.shape[-1]).diff(dim=-1)
    return steps.numel() > 0 and bool((steps == 1).all())


def unused_parameters(model: nn.Module, trace: Trace) -> tuple[str, ...]:
    """Names of the parameters that no operation of a forward pass read, in the model's order."""
    # What a pass writes into, as RWKV does into matrices that it rescales, stands in it as a copy.
    read = {memory_of(value.tensor) for value in trace.values if value.op == "leaf"}
    read |= {memory_of(tensor) for tensor, _ in trace.written}
    return tuple(name for name, weight in model.named_parameters() if memory_of(weight) not in read)


def unregistered_parameters(model: nn.Module, trace: Trace) -> int:
    """Counts the parameters that a forward pass read and the model does not have, such as those of
    modules in a plain list.
    """
    own = {memory_of(weight) for weight in [*model.parameters(), *model.buffers()]}
    read = {
        memory_of(value.tensor)
        for value in trace.values
        if value.op == "leaf"
        and isinstance(value.tensor, nn.Parameter)
        and value.tensor.requires_grad
    }
    return len(read - own)
