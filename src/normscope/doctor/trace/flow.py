"""The flow in a recorded forward pass: ancestors and dominators, products with weights, and which
token reaches which.
"""

from collections.abc import Sequence

import torch

from .operations import (
    BY_NUMBER,
    FUSED,
    PRODUCTS,
    REARRANGING,
    RESHAPING,
    STACKING,
    Ref,
    Trace,
    TracedValue,
)

_ADDING = frozenset({"addmm", "baddbmm", "addbmm", "addmv"})
"""Products that add their first argument."""


def dominators(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """For every node its closest dominator, through which all paths from the roots to it pass; -1
    where none does.

    predecessors: of nodes in an order in which each comes after its own.
    """
    found: list[int] = []
    depth: list[int] = []
    for before in predecessors:
        meeting = before[0] if before else -1
        for other in before[1:]:
            while meeting != other:
                if meeting >= 0 and (other < 0 or depth[meeting] >= depth[other]):
                    meeting = found[meeting]
                else:
                    other = found[other]
        found.append(meeting)
        depth.append(depth[meeting] + 1 if meeting >= 0 else 0)
    return found


class Flow:
    """A trace with what can be asked of it before any norm is known.

    Only values that depend on the model's input are nodes.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.values = trace.values
        self.predecessors: list[list[int]] = []
        for value in self.values:
            inputs = value.inputs if value.is_data else ()
            self.predecessors.append([n for n in inputs if self.values[n].is_data])
        self.consumers: list[list[int]] = [[] for _ in self.values]
        self.ancestors: list[int] = []
        """The ancestors of each value as bits, its own number included."""
        self.through_weights: list[int] = []
        """The ancestors from which a path runs through a product with a weight matrix."""
        for value, before in zip(self.values, self.predecessors, strict=True):
            ancestors, through = 1 << value.number, 0
            for number in before:
                self.consumers[number].append(value.number)
                ancestors |= self.ancestors[number]
                through |= self.through_weights[number]
            if self.is_weight_product(value):
                through |= ancestors & ~(1 << value.number)
            self.ancestors.append(ancestors)
            self.through_weights.append(through)
        self.dominators = dominators(self.predecessors)

    def depends(self, value: int, on: int) -> bool:
        """Tells whether a value is computed from another one, or is that one."""
        return bool(self.ancestors[value] >> on & 1)

    def factors(self, value: TracedValue) -> list[int]:
        """Returns the numbers of what a product multiplies, data or not, without what it adds."""
        if value.op not in PRODUCTS:
            return []
        # The first argument of addmm and its likes is a bias or a mask.
        first = value.args[value.op in _ADDING :]
        return [argument.number for argument in first[:2] if isinstance(argument, Ref)]

    def is_weight_product(self, value: TracedValue) -> bool:
        """Tells whether a value is a product of data with a matrix that does not depend on data,
        and that mixes features.
        """
        if not self.is_product(value) or self._weighs_stack(value):
            return False
        return any(
            not self.values[n].is_data and self.values[n].tensor.ndim >= 2 for n in value.inputs
        )

    def _weighs_stack(self, value: TracedValue) -> bool:
        """Tells whether a value adds up values that were stacked, each times one number: Σ w_i h_i,
        as DenseFormer writes it.
        """
        data, given = (
            self.predecessors[value.number],
            [n for n in self.factors(value) if not self.values[n].is_data],
        )
        if len(data) != 1 or len(given) != 1:
            return False
        stacked, weights = (
            self.values[self.rearranged(number, any_size=True)] for number in (*data, *given)
        )
        sizes = [self.values[n].tensor.numel() for n in stacked.inputs]
        return stacked.op in STACKING and sizes == [value.tensor.numel()] * weights.tensor.numel()

    def rearranged(self, number: int, *, any_size: bool = False) -> int:
        """Returns the earliest value that this one reorders; with any_size also one that it repeats
        or takes a part of.
        """
        while (value := self.values[number]).op in REARRANGING:
            before = self.predecessors[number] if value.is_data else value.inputs
            if len(before) != 1 or not (
                any_size or self.values[before[0]].tensor.numel() == value.tensor.numel()
            ):
                break
            (number,) = before
        return number

    def is_data_product(self, value: TracedValue) -> bool:
        """Tells whether a value is a matrix product of data with data: attention's scores, or its
        mean of values.
        """
        return self.is_product(value) and not any(
            self.values[n].tensor.ndim and not self.values[n].is_data for n in value.inputs
        )

    def is_product(self, value: TracedValue) -> bool:
        """Tells whether a value is a matrix product with data in it."""
        return value.op in PRODUCTS and value.is_data

    def between(self, source: int, target: int) -> list[int]:
        """Returns the numbers of what depends on the source and is needed for the target, in order,
        both included.
        """
        return [
            n
            for n in range(source, target + 1)
            if self.depends(target, n) and self.depends(n, source)
        ]

    def passed(self, source: int, target: int) -> list[int]:
        """Returns the values that all ways from the source to the target pass, from the target,
        which is the first, back to the source.
        """
        inside = self.between(source, target)
        place = {number: n for n, number in enumerate(inside)}
        predecessors = []
        for number in inside:
            predecessors.append([place[n] for n in self.predecessors[number] if n in place])
        before = dominators(predecessors)
        at, found = len(inside) - 1, list[int]()
        while at > 0:
            found.append(inside[at])
            at = before[at]
        return found


_CUTTING = frozenset({"slice", "split", "split_with_sizes", "chunk", "narrow"})


def mixes_positions(graph: Flow, read: int, output: int) -> bool | None:
    """Tells whether a change of one token changes the output at another one; None where no change
    shows anywhere.

    Raises what computing again raises.
    """
    tokens = graph.values[read].rows
    if graph.values[output].tensor.numel() % tokens or keeps_rows(graph, read, output):
        return False
    generator = torch.Generator().manual_seed(0)
    changes = False
    asked = [0, tokens // 2, tokens - 1]
    if any(
        graph.is_data_product(graph.values[n]) or FUSED in graph.values[n].op
        for n in graph.between(read, output)
    ):
        # Where a sequence starts with padding, and later tokens are hidden, the first and the last
        # tell nothing.
        asked += range(tokens // 8, tokens, max(tokens // 8, 1))
    for token in dict.fromkeys(asked):
        rows = int(moved_rows(graph, read, output, token, generator).sum())
        if rows > 1:
            return True
        changes = changes or rows > 0
    # A last matrix that starts at zero hides what comes before it.
    return False if changes else None


def moved_rows(
    graph: Flow, read: int, output: int, token: int, generator: torch.Generator
) -> torch.Tensor:
    """Tells, for every token, whether the output there changes with one token of the value that is
    read.
    """
    changed = graph.values[read].tensor.clone().contiguous()
    rows = changed.view(-1, changed.shape[-1])
    disturb(rows[token], generator)
    given = {read: changed, **_products_with(graph, read, output, token, rows[token])}
    before, after = (
        y.reshape(len(rows), -1)
        for y in (graph.values[output].tensor, graph.trace.again(given, output))
    )
    return (after - before).abs().amax(-1) > 1e-6 * before.abs().amax()


def disturb(row: torch.Tensor, generator: torch.Generator) -> None:
    """Add noise to a vector that is larger than what it holds."""
    row += torch.randn(row.shape, generator=generator).to(row) * (1 + row.abs().mean())


def _products_with(
    graph: Flow, read: int, output: int, token: int, row: torch.Tensor
) -> dict[int, torch.Tensor]:
    """Returns the products of a value as it is with matrices, with another row of it: no other row
    of theirs changes.
    """
    found = {}
    for number in graph.between(read, output):
        value = graph.values[number]
        left = graph.factors(value)[0] if value.op in ("mm", "addmm") else None
        if (
            left is not None
            and graph.rearranged(left) == graph.rearranged(read)
            and keeps_rows(graph, read, number)
        ):
            found[number] = value.tensor.clone()
            # A product may read it in another precision.
            read_row = row[None].to(graph.values[left].tensor.dtype)
            found[number][token] = graph.trace.again({left: read_row}, number)[0]
    return found


def keeps_rows(graph: Flow, read: int, output: int) -> bool:
    """Tells whether every step on the way is known to compute each token from that token alone.

    That is what multiplies rows with a matrix from the right, works on each number alone, or cuts
    the last dimension. False says nothing: there are other ways to do so.
    """
    inside, tokens = graph.between(read, output), graph.values[read].rows
    return all(_by_row(graph, graph.values[n], set(inside), tokens) for n in inside[1:])


def _by_row(graph: Flow, value: TracedValue, inside: set[int], tokens: int) -> bool:
    given = [graph.values[n] for n in graph.predecessors[value.number] if n in inside]
    if (
        value.function is None
        or not value.shape
        or any(one.rows != tokens for one in (value, *given))
    ):
        return False
    if value.op in PRODUCTS:
        return (
            value.op in ("mm", "addmm")
            and [one.number for one in given] == graph.factors(value)[:1]
        )
    if value.op in RESHAPING:
        return True
    if value.op in _CUTTING:
        return all(one.shape[:-1] == value.shape[:-1] for one in given)
    return value.op in BY_NUMBER and all(one.shape == value.shape for one in given)
