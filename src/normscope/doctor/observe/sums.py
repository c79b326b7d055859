"""The residual sums, or means over depth, that branches go into: what they add up, and which of it
is the stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..find.branches import Branch
from ..find.streams import Stream
from ..measured import RecordedPlace
from ..trace.graph import Graph
from ..trace.operations import FUSED, Origin, Ref, bits, mapped

LIGHT = ("same", "scale", "norm", "expand")
"""Kinds of steps that are made from one value alone."""


def branch_sums(graph: Graph, stream: Stream, branches: Sequence[Branch]) -> list[RecordedPlace]:
    """Returns, for each branch, the whole sum that it goes into, up to a norm or the next branch
    that reads it.
    """
    sums = _Sums(graph, stream)
    return [sums.of(branch) for branch in branches]


def part_of(graph: Graph, place: RecordedPlace, kept: Sequence[int]) -> Tensor:
    """Computes the share that some addends have in a sum, with everything that scales them on the
    way.
    """
    values = graph.values
    if place.sum in kept:
        return values[place.sum].tensor
    # All are given, for a branch would be computed again from a stream that is left out.
    given = {
        n: values[n].tensor if n in kept else torch.zeros_like(values[n].tensor)
        for n in place.addends
    }
    if place.sum in graph.mixtures:
        given |= held(graph, place.sum, given)
    return graph.trace.again(given, place.sum)


class _Sums:
    """The sums into which the branches of a stream go."""

    def __init__(self, graph: Graph, stream: Stream) -> None:
        self._graph, self._stream = graph, stream
        self._outputs = {branch.output for branch in stream.branches}
        self._made_of: dict[int, list[int]] = {}
        """For each value, the stream's values that are light steps away; those between are no
        values of the stream.
        """
        for number in bits(stream.values):
            for source in graph.sources(number):
                self._made_of.setdefault(source, []).append(number)

    def of(self, branch: Branch) -> RecordedPlace:
        graph = self._graph

        def nearness(found: RecordedPlace) -> tuple[int, int]:
            read = found.stream if any(graph.depends(n, found.stream) for n in branch.reads) else -1
            return read, -len(found.addends)

        found = max((self._sum(branch, top) for top in self._tops(branch.output)), key=nearness)
        sources = {*branch.reads, *branch.memory}
        between = {n for source in sources for n in graph.between(source, found.addend)} - sources
        beside = {n for number in between for n in graph.predecessors[number]} - between
        return replace(found, inputs=tuple(sorted(beside | sources)))

    def _sum(self, branch: Branch, top: int) -> RecordedPlace:
        addends = self._addends(top)
        holding = {n: origin for n in addends if (origin := self._origin(n)) in self._outputs}
        own = next(n for n, origin in holding.items() if origin == branch.output)
        others = tuple(n for n in addends if n != own)
        if top in self._graph.mixtures:
            # The mean over depth that a branch reads, before its norm.
            read = self._graph.under(branch.reads[0], *LIGHT)
            return RecordedPlace(sum=top, addend=own, addends=addends, skips=others, stream=read)
        skips = tuple(n for n in addends if n not in holding) or others or (own,)
        of_branch = [n for n in skips if any(self._graph.depends(at, n) for at in branch.reads)]
        stream = max(of_branch or skips)
        if connection := self._graph.connections.made.get(stream):
            stream = self._graph.rearranged(connection.source)
        return RecordedPlace(sum=top, addend=own, addends=addends, skips=skips, stream=stream)

    def _tops(self, output: int) -> list[int]:
        """Returns the sums that a branch goes into first, each extended by the sums that it alone
        goes into.
        """
        found, seen, todo = [], {output}, [output]
        while todo:
            at = todo.pop()
            found += self._graph.mixtures_of.get(at, [])
            for number in self._made_of.get(at, []):
                if number in seen:
                    continue
                seen.add(number)
                step = self._graph.step(number)
                if step is not None and step.kind == "sum":
                    found.append(self._whole(number))
                else:
                    todo.append(number)
        return list(dict.fromkeys(found))

    def _whole(self, number: int) -> int:
        """Returns the last of the sums that a sum goes into one after another, each of which
        nothing else reads.
        """
        whole = number
        while read_once(self._graph, number):
            number = self._graph.consumers[number][0]
            step = self._graph.step(number)
            if step is None or step.kind == "norm" or not self._stream.values >> number & 1:
                break
            whole = number if step.kind == "sum" else whole
        return whole

    def _addends(self, top: int) -> tuple[int, ...]:
        """Returns the numbers of what the sum `top` adds up, in order.

        A sum within it that nothing else reads is opened up, and a scale is looked through unless
        it is the gain of a
        norm: of x + 2 (y + z) they are x, y and z.
        """
        found: dict[int, None] = {}
        todo = [(source, True) for source in self._graph.sources(top)]
        while todo:
            number, alone = todo.pop()
            step = self._graph.step(number)
            alone = alone and read_once(self._graph, number)
            if step is None or number in self._outputs or not self._goes_through(number, alone):
                found[number] = None
            else:
                todo += [(source, alone) for source in step.sources]
        return tuple(sorted(found))

    def _goes_through(self, number: int, alone: bool) -> bool:
        """Tells whether a sum's addend is to be opened up: its own sources then count as addends in
        its place.
        """
        step = self._graph.step(number)
        if (
            step is None
            or step.kind in ("norm", "connect", "expand")
            or is_gain(self._graph, number)
        ):
            return False
        if step.kind != "same" or self._graph.values[number].op not in ("add", "sub"):
            return step.kind != "sum" or alone
        # Positions belong to the embedding that they are added to, and a bias to its branch.
        while step is not None and step.kind in ("same", "scale"):
            (number,) = step.sources
            step, alone = self._graph.step(number), alone and read_once(self._graph, number)
        return step is not None and step.kind == "sum" and alone

    def _origin(self, number: int) -> int:
        """Returns the value that an addend is a norm or a scale of."""
        while (
            number not in self._outputs
            and (step := self._graph.step(number))
            and step.kind in LIGHT
        ):
            (number,) = step.sources
        return number


def held(graph: Graph, number: int, given: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Returns the values of a mean over depth that stay as they were recorded while its addends are
    replaced.

    That is its weights and, of normed addends, what each is divided by, so that parts of it add up
    to the whole.
    """
    values, mixture = graph.values, graph.mixtures[number]
    lengths = {
        n: values[n].tensor
        for at, norm in graph.norms.items()
        if mixture.normed and max(mixture.sources) < at < number and graph.depends(number, at)
        for n in graph.between(norm.source, at)
        if values[n].shape[-1:] == (1,) and values[norm.source].shape[-1] > 1
    }
    weighing = values[mixture.weights]
    if FUSED not in weighing.op:
        return {**lengths, mixture.weights: weighing.tensor}
    # Where one operation takes queries, keys and values, the first two are as they were.

    def recorded(argument: Any) -> Any:
        return values[argument.number].tensor if isinstance(argument, Ref) else argument

    query, key, _, *rest = mapped(recorded, weighing.args)
    value = graph.trace.again({**given, **lengths}, weighing.args[2].number)
    mean = weighing.function(query, key, value, *rest, **mapped(recorded, weighing.kwargs))
    return {mixture.weights: tree_leaves(mean)[0]}


def is_gain(graph: Graph, number: int) -> bool:
    """Tells whether a scale belongs to the norm below it: it is trained, a vector, or brings a norm
    to its own size.

    A norm that something else reads too is a value of its own, and what scales it no gain.
    """
    step = graph.step(number)
    if step is None or step.kind != "scale":
        return False
    factor = step.factors[0]
    trained = factor.vector or factor.origin == Origin.TRAINABLE
    (below,) = step.sources
    alone = read_once(graph, below)
    while (inner := graph.step(below)) is not None and (
        inner.kind == "same"
        or (inner.kind == "scale" and trained and inner.factors[0].origin == Origin.CONSTANT)
    ):
        (below,) = inner.sources
        alone = alone and read_once(graph, below)
    # The size of a norm with a gain of its own is not known, and not off.
    return alone and below in graph.norms and (trained or abs(graph.norms[below].size - 1) > 0.01)


def read_once(graph: Graph, number: int) -> bool:
    """Tells whether exactly one value is made from this one."""
    return len(set(graph.consumers[number])) == 1


def with_gain(graph: Graph, number: int) -> int:
    """Returns a norm's value, or that of the last gain on it."""
    last, todo = number, [number]
    while todo:
        for consumer in graph.consumers[todo.pop()]:
            step = graph.step(consumer)
            if step is not None and (step.kind == "same" or is_gain(graph, consumer)):
                last = consumer if step.kind == "scale" else last
                todo.append(consumer)
    return last
