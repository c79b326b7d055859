"""The use of each weight matrix of a sub-layer, found by where its products go in the recorded
pass: never by its name, and seldom by its shape.

A plain matrix is a parameter whose entries data is multiplied with as they are. Convolutions,
weights that are computed from several parameters, and what is multiplied number by number are none.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch

from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..measured import MatrixPart, MatrixUse
from ..record import Stack, with_measured
from ..trace.graph import Graph
from ..trace.operations import (
    BY_NUMBER,
    REARRANGING,
    SENDING,
    SOFTMAX,
    UNREPEATABLE,
    TracedValue,
    walked,
)
from .attended import operands_of

_LINEAR = frozenset({"add", "sub", "rsub", "mul", "div", "neg"}) | REARRANGING
_CURVES = (BY_NUMBER - _LINEAR) | SOFTMAX | SENDING
"""Operations behind which a product is what gates or routes an output, and does not make it."""
_CHOOSING = SOFTMAX | SENDING
_TAKING = REARRANGING | {
    "split",
    "split_with_sizes",
    "chunk",
    "narrow",
    "select",
    "unbind",
    "index",
}
"""Operations that rearrange a weight, or take a part of it."""
_TURNING = frozenset({"t", "transpose", "permute"})
_PARTS: tuple[MatrixPart, ...] = ("query", "key", "value", "output", "ffn_in", "ffn_out")


def with_uses(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[Stack, ...]:
    """Returns the stacks with what the plain matrices of their sub-layers are for."""
    found = []
    for stream, stack in zip(streams, stacks, strict=True):
        uses = [_Uses(graph, branch).found() for branch in branches_of(stack, stream)]
        found.append(with_measured(stack, [{"uses": one} for one in uses]))
    return tuple(found)


class _Uses:
    """One branch."""

    def __init__(self, graph: Graph, branch: Branch) -> None:
        self.graph, self.branch = graph, branch
        self.inside = frozenset(branch.computed)
        products = [n for n in branch.computed if graph.is_weight_product(graph.values[n])]
        self.products = [n for n in products if self._names([n])]
        """The products with plain matrices."""

    def found(self) -> tuple[MatrixUse, ...]:
        """Returns the use of every plain matrix, in the order of use; a packed matrix has a use for
        each of its parts.
        """
        parts: dict[str, dict[MatrixPart, list[int]]] = {}
        """The values whose features a parameter makes, by the parameter and its part."""
        for part, value, products in self._told():
            for name in self._names(products):
                parts.setdefault(name, {}).setdefault(part, []).append(value)
        plain = {name: product for product in self.products for name in self._names([product])}
        made = []
        for name, product in plain.items():
            turned = self._outputs_last(product)
            known = parts.get(name, {"": []})
            for part in sorted(known, key=lambda part: ("", *_PARTS).index(part)):
                rows = self._rows(name, known[part], turned) if part in _PARTS[:3] else ()
                if rows is not None:
                    made.append(
                        MatrixUse(parameter=name, part=part, rows=rows, outputs_last=turned)
                    )
        return tuple(made)

    def _told(self) -> Iterator[tuple[MatrixPart, int, list[int]]]:
        """Yields every part with a value that it makes and the products that make it."""
        graph, branch = self.graph, self.branch
        attends = branch.kind in ("attention", "cross_attention")
        if attends:
            for value, part in operands_of(graph, branch):
                yield part, value, self._direct(value, _CHOOSING)
        elif branch.kind != "feed_forward":
            return
        width = graph.values[branch.output].shape[-1:]
        last = [
            n for n in self._direct(branch.output, _CURVES) if graph.values[n].shape[-1:] == width
        ]
        yield "output" if attends else "ffn_out", branch.output, last
        if not attends:
            yield from self._before(last)

    def _before(self, products: Sequence[int]) -> Iterator[tuple[MatrixPart, int, list[int]]]:
        """All that makes what those products read, back to what the feed-forward reads."""

        def onwards(product: int) -> list[int]:
            data = self._read_by(product)
            return self._direct(data, _CHOOSING) if data is not None else []

        for product in products:
            for n in walked(product, onwards):
                if n not in products:
                    yield "ffn_in", n, [n]

    def _direct(self, value: int, until: Iterable[str]) -> list[int]:
        """Returns the products with plain matrices that make a value's features, with no other such
        product after them, and none of the operations `until`; convolutions may come between.

        A product of what is a product already, as the second factor of LoRA's, is left out where it
        is added to others.
        """
        stops, values = frozenset(until), self.graph.values

        def onwards(number: int) -> list[int]:
            at = values[number]
            if number in self.products or at.op in stops or self.graph.is_data_product(at):
                return []
            # What has one feature weighs others.
            return [
                n
                for n in self.graph.predecessors[number]
                if n in self.inside and values[n].shape[-1:] != (1,)
            ]

        found = sorted(n for n in walked(value, onwards) if n in self.products)
        first = [n for n in found if not self._reads_product(n)]
        return first or found

    def _reads_product(self, product: int) -> bool:
        data = self._read_by(product)
        return data is not None and self.graph.under(data, "same", "scale") in self.products

    def _read_by(self, product: int) -> int | None:
        """Returns the data that a product multiplies with weights."""
        factors = self.graph.factors(self.graph.values[product])
        return next((n for n in factors if self.graph.values[n].is_data), None)

    def _names(self, products: Iterable[int]) -> list[str]:
        """Returns the names of the plain matrices in these products."""
        found = []
        for product in products:
            leaf = self._leaf(product)
            if leaf is not None and leaf.tensor.ndim in (2, 3) and len(leaf.names) == 1:
                found.append(leaf.names[0])
        return list(dict.fromkeys(found))

    def _leaf(self, product: int) -> TracedValue | None:
        """Returns the weight of a product; None where it is made of several values, or of no
        parameter.
        """
        way = self._weight(product)
        return way[-1] if way and way[-1].op == "leaf" else None

    def _weight(self, product: int) -> list[TracedValue]:
        """Returns the weight as data is multiplied with it, and what that was taken from, step by
        step; none for a convolution, or where it comes before data.
        """
        value = self.graph.values[product]
        factors = self.graph.factors(value)
        if value.op == "convolution" or len(factors) != 2:
            return []
        before, after = (self.graph.values[n] for n in factors)
        if not before.is_data or after.is_data:
            return []
        way = [after]
        while way[-1].op in _TAKING and way[-1].inputs:
            way.append(self.graph.values[way[-1].inputs[0]])
        return way

    def _outputs_last(self, product: int) -> bool:
        """Tells whether the parameter's last dimension is that of the product's outputs."""
        turns = sum(step.op in _TURNING for step in self._weight(product))
        return turns % 2 == 0

    def _rows(self, name: str, made: Sequence[int], turned: bool) -> tuple[int, ...] | None:
        """Returns the rows of a matrix that make these values: () for all of them, None for
        none.
        """
        leaves = (self._leaf(product) for product in self.products)
        leaf = next(one for one in leaves if one is not None and one.names == (name,))
        weight = leaf.tensor.detach().clone().requires_grad_(True)
        if weight.ndim != 2:
            return ()
        outputs = 1 if turned else 0
        touched = torch.zeros(weight.shape[outputs], dtype=torch.bool)
        try:
            for value in made:
                gradient = self._gradient(leaf, weight, value)
                touched |= (gradient != 0).any(dim=1 - outputs).cpu()
        except UNREPEATABLE:
            return ()
        rows = tuple(touched.nonzero().flatten().tolist())
        if not rows:
            return None
        return () if len(rows) == len(touched) else rows

    def _gradient(self, leaf: TracedValue, weight: torch.Tensor, value: int) -> torch.Tensor:
        """Computes the gradient of a value's entries, each weighted at random, with respect to a
        weight whose product is the last on the way there.
        """
        others = [n for n in self.products if self._names([n]) != [*leaf.names]]
        known = {n: self.graph.values[n].tensor for n in others}
        with torch.enable_grad():
            again = self.graph.trace.again({**known, leaf.number: weight}, value).float()
            noise = torch.randn(again.shape, generator=torch.Generator().manual_seed(0))
            (gradient,) = torch.autograd.grad((again * noise.to(again)).sum(), weight)
        return gradient
