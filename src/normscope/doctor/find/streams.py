"""The residual streams of a recorded forward pass: sums x + F(x), the branches F in them, and the
formula they make.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations, takewhile
from operator import or_
from typing import Any

import torch

from ..trace.graph import Factor, Graph
from ..trace.norms import NormFunction
from ..trace.operations import SOFTMAX, apart, bits, walked
from .branches import Branch, find_branch
from .formulas import FormulaOfStream
from .surroundings import refined, surroundings
from .terms import Term, ordered

_MASKING = frozenset({"masked_fill", "where"})


@dataclass(slots=True, kw_only=True)
class Stream:
    """One residual stream: every sum of it reaches the others through sums, scales and norms
    alone.
    """

    joins: list[int]
    """Numbers of the residual sums, in order."""
    end: int
    """Number of the last sum, or of the last norm after it."""
    last: int
    """Number of the last sum; of several streams in one tensor, of the one value that is made of
    them after it.
    """
    values: int
    """Numbers of all that the sums add up, back to the stream's source, as bits."""
    branches: list[Branch]
    before: int
    """The number of them that come before the first block: convolutions that never come again."""
    formula: Term
    """The formula of its end, over terms for its branches; those of blocks count from 0, earlier
    ones end at -1.
    """
    term: Callable[[int], Term]
    """Makes, of the number of any of its values, or of a gain on its end, what that is over the
    same terms.
    """
    norms: list[tuple[str, float]]
    """Names and epsilons of the norms on the stream and around its branches, in order."""
    width: int
    sources: int
    """Numbers of the values that it starts from, as bits."""
    streams: int = 1
    """The number of streams of that width that its values hold."""
    start_equal: bool | None = None
    """True where these start as copies of each other; None for one stream, and on the meta
    device.
    """
    around: dict[str, Any] = field(default_factory=dict)
    """The surroundings of the stream, as fields of `Stack`."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Residual sums that belong together, and all that they reach back, as bits."""

    joins: int
    values: int

    def with_(self, other: "_Group") -> "_Group":
        return _Group(self.joins | other.joins, self.values | other.values)


def find_streams(graph: Graph) -> list[Stream]:
    """Returns all residual streams in the order of the forward pass.

    A sum is residual where one of its sides reaches, through sums, scales and norms alone, a value
    that the other side is computed from by way of a weight matrix. So is a mean over depth.
    """
    # All that each value reaches back through light steps, itself among them, as bits.
    reached: list[int] = []
    for value in graph.values:
        reached.append(
            reduce(
                or_, (reached[source] for source in graph.sources(value.number)), 1 << value.number
            )
        )
    groups = _sharing_branches(graph, _groups(graph, reached))
    streams = _streams(graph, groups, reached)
    outer = [group for group in groups if not _is_inside(graph, group, streams)]
    if len(outer) < len(groups):
        streams = _streams(graph, outer, reached)
    for number, stream in enumerate(streams, 1):
        stream.around = surroundings(
            graph,
            ends=[some.last for some in streams[:number]],
            values=[some.values for some in streams[:number]],
            sources=stream.sources,
            memories=[
                (value, branch.output) for branch in stream.branches for value in branch.memory
            ],
        )
        later = reduce(or_, (other.sources for other in streams[number:]), 0)
        stream.around["feeds_later"] = any(
            graph.depends(source, stream.last) for source in bits(later)
        )
    return streams


def _groups(graph: Graph, reached: list[int]) -> list[_Group]:
    """Returns the residual sums, those together that are of one stream."""
    groups: list[_Group] = []
    for value in graph.values:
        step = graph.step(value.number)
        of_vectors = bool(value.tensor.numel()) and value.shape[-1:] > (1,)
        if step is None or step.kind not in ("sum", "mix") or not of_vectors:
            continue
        sides = [reached[source] for source in step.sources]
        if not any(_joins(graph, *pair) for pair in permutations(sides, 2)) or _weighs(
            graph, value.number
        ):
            continue
        own = _Group(1 << value.number, reached[value.number])
        # Means over depth have no sum in common, but what they are taken of.
        shared = own.values if step.kind == "mix" else 0
        mine = [group for group in groups if own.values & group.joins or group.values & shared]
        groups = [group for group in groups if group not in mine]
        groups.append(reduce(_Group.with_, mine, own))
    return groups


def _sharing_branches(graph: Graph, groups: Sequence[_Group]) -> list[_Group]:
    """Groups to which the same branch is added as one: streams that only what they are read with
    brings together.
    """
    found: list[_Group] = []
    for group in groups:
        joined = group
        for other in list(found):
            shared = joined.values & other.values
            if any(
                graph.step(n) is None and graph.through_weights[n] & joined.values & ~shared
                for n in bits(shared)
            ):
                found.remove(other)
                joined = other.with_(joined)
        found.append(joined)
    return found


def _streams(graph: Graph, groups: Sequence[_Group], reached: list[int]) -> list[Stream]:
    everything = reduce(or_, (group.values for group in groups), 0)
    found = [_stream(graph, group, everything, reached) for group in groups]
    return [stream for stream in found if stream.branches]


def _is_inside(graph: Graph, group: _Group, streams: Sequence[Stream]) -> bool:
    """Tells whether a group is a single sum between what a sub-layer of another stream reads and
    its output.

    A short convolution beside its own input is such, on the way to keys and values.
    """
    join = group.joins.bit_length() - 1
    return group.joins.bit_count() == 1 and any(
        graph.ancestors[join] & stream.values
        and any(graph.depends(b.output, join) for b in stream.branches)
        for stream in streams
        if not stream.values & group.joins
    )


def _joins(graph: Graph, skip: int, branch: int) -> bool:
    leaves = [
        leaf
        for leaf in bits(branch)
        if graph.step(leaf) is None and graph.through_weights[leaf] & skip
    ]
    return any(graph.through_weights[leaf] & skip & ~_already(graph, leaf, skip) for leaf in leaves)


def _already(graph: Graph, leaf: int, skip: int) -> int:
    """Collects, as bits, the values through whose weights the skip's values have come that a leaf
    is made from without weights of its own.

    Of a leaf that only shifts the tokens of such a value that is all, and it is no branch.
    """

    def is_skip(number: int) -> bool:
        return number != leaf and bool(skip >> number & 1)

    made_of = walked(
        leaf,
        lambda n: (
            () if is_skip(n) or graph.is_weight_product(graph.values[n]) else graph.predecessors[n]
        ),
    )
    return reduce(or_, (graph.through_weights[n] for n in made_of if is_skip(n)), 0)


def _weighs(graph: Graph, number: int) -> bool:
    """Tells whether a value only serves to weight others: queries or scores on their way to a
    softmax, or a gated part.
    """
    todo, seen, weighs = [number], {number}, False
    while todo:
        at = todo.pop()
        norms = graph.norms_of.get(at, [])
        # A norm's own arithmetic, which follows its input, leads nowhere else.
        for consumer in norms + [
            n for n in graph.consumers[at] if not any(graph.depends(norm, n) for norm in norms)
        ]:
            value, before = graph.values[consumer], graph.predecessors[consumer]
            gates = value.op == "mul" and len(
                {graph.values[n].tensor.numel() for n in before}
            ) < len(before)
            if value.op in SOFTMAX or gates:
                weighs = True
            elif (
                graph.step(consumer) is None
                and value.op not in _MASKING
                and not graph.is_data_product(value)
            ):
                return False
            elif consumer not in seen:
                seen.add(consumer)
                todo.append(consumer)
    return weighs


def _stream(graph: Graph, group: _Group, everything: int, reached: list[int]) -> Stream:
    values, joins = group.values, list(bits(group.joins))
    last = graph.connections.ends.get(joins[-1], joins[-1])
    end = _end(graph, last)
    leaves = [n for n in bits(values) if graph.step(n) is None]
    light = values & ~sum(1 << n for n in leaves)
    # The leaves that no other leaf leads to come first.
    first = sum(1 << n for n in leaves if not graph.through_weights[n] & values & ~light)
    sources = [n for n in leaves if not graph.through_weights[n] & (light | first)]
    outputs = [n for n in leaves if n not in sources]
    found = _find_branches(graph, outputs, values, everything & ~values)
    if together := _computed_together(graph, found, values, reached) or refined(
        graph, found, values, reached
    ):
        inside = reduce(or_, (reached[n] & ~(1 << n) for n in together))
        values &= ~inside
        joins = [n for n in joins if values >> n & 1 and n not in together]
        outputs = sorted([*(n for n in outputs if not inside >> n & 1), *together])
        found = _find_branches(graph, outputs, values, everything & ~group.values)
    # A projection of one part of the sum onto another one is no sub-layer.
    branches = [branch for branch in found if branch.weighed or len(branch.reads) == 1]
    combinations = {branch.output: branch.reads for branch in found if branch not in branches}
    early = len(list(takewhile(lambda branch: branch.kind == "convolution", branches)))
    before = (
        0
        if any(branch.kind == "convolution" for branch in branches[early:])
        or early == len(branches)
        else early
    )
    shape = graph.connections.shapes.get(joins[-1])
    builder = FormulaOfStream(graph, branches, before, combinations)
    formula = builder.term(end)
    # What multiplies the last norm belongs to what comes after the stack, unless it multiplies all
    # norms before too.
    while (
        formula.kind == "scale"
        and formula.arguments[0].kind in ("norm", "scale")
        and not _scales_earlier_norms(formula)
    ):
        formula = formula.arguments[0]
    return Stream(
        joins=joins,
        end=end,
        values=values,
        branches=branches,
        before=before,
        formula=formula,
        term=builder.term,
        norms=[_named(graph.norms[n], builder.normed[n]) for n in sorted(builder.normed)],
        width=shape[1] if shape else graph.values[last].shape[-1],
        streams=shape[0] if shape else 1,
        start_equal=_start_equal(graph, sources, shape) if shape else None,
        last=last,
        sources=sum(1 << n for n in sources),
    )


def _scales_earlier_norms(end: Term) -> bool:
    """Tells whether norms of sums before the last are multiplied with the same number as the last,
    as where vectors are unit.
    """
    scaled = [
        term for term in ordered(end) if term.kind == "scale" and term.arguments[0].kind == "norm"
    ]
    return any(
        term is not end
        and term.factor == end.factor
        and term.arguments[0].arguments[0].kind == "sum"
        for term in scaled
    )


def _start_equal(graph: Graph, sources: list[int], shape: tuple[int, int]) -> bool | None:
    """Tells whether every source that holds several streams holds the same in each; None where that
    is not known.
    """
    several = [apart(graph.values[n].tensor, *shape) for n in sources]
    if any(streams is None or streams.is_meta for streams in several):
        return None
    return all(
        streams is not None and torch.equal(streams, streams[:, :1].expand_as(streams))
        for streams in several
    )


def _find_branches(graph: Graph, outputs: Sequence[int], values: int, others: int) -> list[Branch]:
    found, lent = [], 0
    for output in outputs:
        found.append(find_branch(graph, output, values, others, lent))
        lent |= found[-1].weighed
    return found


def _computed_together(
    graph: Graph, found: Sequence[Branch], values: int, reached: list[int]
) -> list[int]:
    """Sums of nothing but branches of one kind that read the same value: each is one sub-layer,
    written as a sum.

    Experts and a shared expert are such, or a projection with an adapter of low rank beside it.
    """
    alike: dict[tuple[object, ...], int] = {}
    for branch in found:
        key = branch.kind, tuple(graph.under(n, "same") for n in branch.reads)
        alike[key] = alike.get(key, 0) | 1 << branch.output
    leaves = sum(1 << n for n in bits(values) if graph.step(n) is None)
    several = [some for some in alike.values() if some.bit_count() > 1]
    whole = ([n for n in bits(values) if reached[n] & leaves == some] for some in several)
    return [numbers[0] for numbers in whole if numbers]


def _end(graph: Graph, join: int) -> int:
    """Follows the last sum through norms, as long as exactly one follows, and returns the last
    value.
    """
    while True:
        after = (join, *graph.after(join, "same", "scale"))
        found = {norm for at in after for norm in graph.norms_of.get(at, ())}
        if len(found) != 1:
            return join
        (join,) = found


def _named(norm: NormFunction, gain: Factor | None) -> tuple[str, float]:
    if norm.kind == "layer":
        return "layer-norm", norm.epsilon
    if norm.is_curve:
        return {"tanh": "dyt", "erf": "derf"}[norm.kind], norm.epsilon
    if gain is not None and not gain.vector:
        return "scale-norm", norm.epsilon
    return "rms-norm" if gain is not None or norm.epsilon > 0 else "sphere-norm", norm.epsilon
