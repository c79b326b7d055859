"""The places of attention in a recorded pass: its queries, keys and values, and its softmax.

It is the softmax between a product of queries and keys and one with values, or the one operation
that computes all three.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..find.branches import Branch
from ..measured import MatrixPart
from ..trace.graph import Graph
from ..trace.operations import FUSED, SENDING, SOFTMAX, Ref, TracedValue, walked


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAttention:
    """Attention in a recorded pass, by numbers."""

    queries: int
    keys: int
    values: int | None
    scores: int | None
    """The product of queries and keys; None where one operation computes all, or there are
    several.
    """
    softmax: int


def attentions_in(
    graph: Graph, branch: Branch, is_score: Callable[[TracedValue], bool] | None = None
) -> Iterator[RecordedAttention]:
    """is_score: of a product, whether it is one of queries and keys; without it, one that adds
    nothing else.
    """
    is_score = is_score or graph.is_data_product
    for number in branch.computed:
        value = graph.values[number]
        if FUSED in value.op and value.output == 0:
            given = [argument.number for argument in value.args[:3] if isinstance(argument, Ref)]
            if len(given) == 3:
                yield RecordedAttention(
                    queries=given[0], keys=given[1], values=given[2], scores=None, softmax=number
                )
        elif value.op in SOFTMAX:
            scores = [n for n in _summed_into(graph, branch, number) if is_score(graph.values[n])]
            if scores and len(factors := graph.factors(graph.values[scores[0]])) == 2:
                weighed = weighed_values(graph, number)
                yield RecordedAttention(
                    queries=factors[0],
                    keys=factors[1],
                    values=None if weighed is None else weighed[2],
                    scores=scores[0] if len(scores) == 1 else None,
                    softmax=number,
                )


def _summed_into(graph: Graph, branch: Branch, softmax: int) -> list[int]:
    """Returns the values that a softmax's logits are computed from, without those that only choose
    the keys: an indexer has queries and keys of its own.
    """
    computed = set(branch.computed)

    def before(number: int) -> list[int]:
        chosen = graph.values[number].op in SENDING
        return [] if chosen else [n for n in graph.predecessors[number] if n in computed]

    return sorted({*walked(softmax, before)} - {softmax})


def operands_of(graph: Graph, branch: Branch) -> Iterator[tuple[int, MatrixPart]]:
    """The numbers of the queries, keys and values of a branch's attention, each with the part that
    makes it.
    """

    def is_score(value: TracedValue) -> bool:
        # BLOOM's adds its biases at once.
        factors = graph.factors(value)
        return len(factors) == 2 and all(graph.values[n].is_data for n in factors)

    for place in attentions_in(graph, branch, is_score):
        yield place.queries, "query"
        yield place.keys, "key"
        if place.values is not None:
            yield place.values, "value"


def weighed_values(graph: Graph, softmax: int) -> tuple[int, int, int] | None:
    """Finds the product in which a softmax weights values: returns the weights as it reads them,
    their position among the factors, and the values.

    None where anything but rearrangement comes between.
    """
    todo, seen = [softmax], set[int]()
    while todo:
        for number in graph.consumers[todo.pop()]:
            factors = graph.factors(graph.values[number])
            mine = [n for n in factors if graph.rearranged(n) == softmax]
            if len(factors) == 2 and len(mine) == 1:
                place = factors.index(mine[0])
                # A matrix that is no data mixes heads with each other, and weighs no tokens.
                return (
                    (mine[0], place, factors[1 - place])
                    if graph.values[factors[1 - place]].is_data
                    else None
                )
            if number not in seen and graph.rearranged(number) == softmax:
                seen.add(number)
                todo.append(number)
    return None
