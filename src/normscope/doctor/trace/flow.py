"""What feeds what in a recorded forward pass: ancestors, dominators, and which products are with weights."""

from collections.abc import Iterator, Sequence

from .operations import Ref, Trace, TracedValue

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "convolution", "_grouped_mm"})
REARRANGING = frozenset(
    {"view", "reshape", "_unsafe_view", "transpose", "t", "permute", "unsqueeze", "squeeze", "clone", "detach"}
    | {"alias", "_to_copy", "expand", "slice", "rewritten"}
)
STACKING = frozenset({"stack", "cat"})
_ADDING = frozenset({"addmm", "baddbmm", "addbmm", "addmv"})
"""Products that add their first argument."""


def dominators(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """For every node its closest dominator, through which all paths from the roots to it pass; -1 where none does.

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


def bits(numbers: int) -> Iterator[int]:
    """The numbers in a set of them as bits, the lowest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


class Flow:
    """A trace with what can be asked of it before any norm is known.

    Only values that depend on the model's input are nodes.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.values = trace, trace.values
        self.predecessors = [
            [n for n in value.inputs if self.values[n].is_data] if value.is_data else [] for value in self.values
        ]
        self.consumers: list[list[int]] = [[] for _ in self.values]
        self.ancestors: list[int] = []
        """Of each value a set of numbers as bits, its own among them."""
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
        """Whether a value is computed from another one, or is it."""
        return bool(self.ancestors[value] >> on & 1)

    def factors(self, value: TracedValue) -> list[int]:
        """The numbers of what a product multiplies, data or not, without what it adds."""
        if value.call is None or value.op not in PRODUCTS:
            return []
        # The first argument of addmm and its likes is a bias or a mask.
        first = value.call.args[value.op in _ADDING :]
        return [argument.number for argument in first[:2] if isinstance(argument, Ref)]

    def is_weight_product(self, value: TracedValue) -> bool:
        """A product of data with a matrix that does not depend on data, and that mixes features."""
        if not self.is_product(value) or self._weighs_stack(value):
            return False
        return any(not self.values[n].is_data and self.values[n].tensor.ndim >= 2 for n in value.inputs)

    def _weighs_stack(self, value: TracedValue) -> bool:
        """Whether it adds up values that were stacked, each times one number: Σ w_i h_i, as DenseFormer writes it."""
        data, given = self.predecessors[value.number], [n for n in self.factors(value) if not self.values[n].is_data]
        if len(data) != 1 or len(given) != 1:
            return False
        stacked, weights = (self.values[self._rearranged(number)] for number in (*data, *given))
        sizes = [self.values[n].tensor.numel() for n in stacked.inputs]
        return stacked.op in STACKING and sizes == [value.tensor.numel()] * weights.tensor.numel()

    def _rearranged(self, number: int) -> int:
        """What a value holds in another order, or several times."""
        while self.values[number].op in REARRANGING and len(self.values[number].inputs) == 1:
            (number,) = self.values[number].inputs
        return number

    def is_data_product(self, value: TracedValue) -> bool:
        """A matrix product of data with data: attention's scores, or its mean of values."""
        return self.is_product(value) and not any(
            self.values[n].tensor.ndim and not self.values[n].is_data for n in value.inputs
        )

    def is_product(self, value: TracedValue) -> bool:
        """A matrix product with data in it."""
        return value.op in PRODUCTS and value.is_data

    def between(self, source: int, target: int) -> list[int]:
        """Numbers of what depends on the source and is needed for the target, in order, both included."""
        return [n for n in range(source, target + 1) if self.depends(target, n) and self.depends(n, source)]


def rearranged(flow: Flow, number: int, *, any_size: bool = False) -> int:
    """The earliest value that this one reorders; with any_size also one that it repeats or takes a part of."""
    while flow.values[number].op in REARRANGING and len(flow.predecessors[number]) == 1:
        (before,) = flow.predecessors[number]
        if not any_size and flow.values[before].tensor.numel() != flow.values[number].tensor.numel():
            break
        number = before
    return number
