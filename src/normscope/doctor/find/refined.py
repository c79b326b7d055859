"""Sub-layers that end in a residual sum of their own, as with a convolution after attention: (z + conv(z)) / √5."""

from collections.abc import Iterator, Sequence

from ..trace.graph import Graph
from .branches import Branch

_ALONE = ("same", "scale")


def refined(graph: Graph, found: Sequence[Branch], values: int, reached: list[int]) -> list[int]:
    """Sums of a branch's output and of what reads it alone, each with what scales it: each is one sub-layer.

    The sum goes into another sum or a mean over depth, and no sub-layer reads it before; what is read by the next
    sub-layer is the stream itself, into which the first branch came without a skip.
    """
    outputs = {branch.output for branch in found}
    leaves = sum(1 << n for n in bits(values) if graph.step(n) is None)
    read = {_root(graph, n) for branch in found for n in branch.reads}
    ends = []
    for branch in found:
        first = _root(graph, branch.reads[0])
        if len(branch.reads) > 1 or first not in outputs:
            continue
        pair = 1 << first | 1 << branch.output
        total = next((n for n in bits(values) if reached[n] & leaves == pair), None)
        if total is None or total in read or any(_goes_past(total, n, first, reached) for n in bits(values)):
            continue
        end = _scaled(graph, total, values)
        if any(step.kind in ("sum", "mix") for n in _after(graph, end, values) if (step := graph.step(n)) is not None):
            ends.append(end)
    return ends


def bits(numbers: int) -> Iterator[int]:
    """The numbers in a set of them as bits, the lowest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def _root(graph: Graph, number: int) -> int:
    """What a value is a multiple or a norm of."""
    while (step := graph.step(number)) is not None and step.kind in (*_ALONE, "norm"):
        (number,) = step.sources
    return number


def _goes_past(total: int, number: int, first: int, reached: list[int]) -> bool:
    """Whether a value is made of the first branch's output on a way that does not pass the sum."""
    return bool(reached[number] >> first & 1) and not (reached[number] >> total & 1 or reached[total] >> number & 1)


def _scaled(graph: Graph, total: int, values: int) -> int:
    """The sum with what multiplies it."""
    while len(after := _after(graph, total, values)) == 1:
        step = graph.step(after[0])
        if step is None or step.kind not in _ALONE:
            break
        (total,) = after
    return total


def _after(graph: Graph, number: int, values: int) -> list[int]:
    """The values of the stream that are made from one at once."""
    found = [n for n in graph.consumers[number] if values >> n & 1]
    means = [n for n in graph.mixtures_of.get(number, ()) if values >> n & 1]
    return list(dict.fromkeys(found + means))
