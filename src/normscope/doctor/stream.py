"""The residual streams of a recorded forward pass: sums x + F(x), the branches F in them, and the formula they make."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from .branches import Branch, find_branch
from .graph import Factor, Graph, Step
from .norms import NormFunction
from .surroundings import Surroundings, surroundings
from .term import Term, normed, scaled
from .trace import Origin


@dataclass(slots=True, kw_only=True)
class Stream:
    """One residual stream: every sum of it reaches the others through sums, scales and norms alone."""

    joins: list[int]
    """Numbers of the residual sums, in order."""
    end: int
    """Number of the last sum, or of the last norm after it."""
    values: int
    """Numbers of all that the sums add up, back to the stream's source, as bits."""
    branches: list[Branch]
    before: int
    """How many of them come before the first block: convolutions that never come again."""
    formula: Term
    """Its end, over terms for its branches; those of blocks count from 0, earlier ones end at -1."""
    norms: list[tuple[str, float]]
    """Names and epsilons of the norms on the stream and around its branches, in order."""
    width: int
    sources: int
    """Numbers of the values that it starts from, as bits."""
    around: Surroundings = field(default_factory=Surroundings)


def find_streams(graph: Graph) -> list[Stream]:
    """All residual streams in the order of the forward pass.

    A sum is residual where one of its sides reaches, through sums, scales and norms alone, a value that the other side
    is computed from by way of a weight matrix.
    """
    closures: dict[int, int] = {}
    groups: list[list[int]] = []
    for value in graph.values:
        step = graph.step(value.number)
        if step is None or step.kind != "sum" or value.shape[-1] < 2:
            continue
        sides = [_closure(graph, source) for source in step.sources]
        if not any(_joins(graph, sides[one], sides[1 - one]) for one in (0, 1)):
            continue
        closures[value.number] = sides[0] | sides[1] | 1 << value.number
        mine = [group for group in groups if any(closures[value.number] >> join & 1 for join in group)]
        groups = [group for group in groups if group not in mine]
        groups.append(sorted([*(join for group in mine for join in group), value.number]))
    everything = 0
    for closure in closures.values():
        everything |= closure
    streams = [_stream(graph, joins, closures, everything) for joins in groups]
    for number, stream in enumerate(streams, 1):
        stream.around = surroundings(
            graph,
            ends=[some.joins[-1] for some in streams[:number]],
            values=[some.values for some in streams[:number]],
            sources=stream.sources,
            memories=[(value, branch.output) for branch in stream.branches for value in branch.memory],
        )
    return streams


def _joins(graph: Graph, skip: int, branch: int) -> bool:
    return any(graph.through_weights[leaf] & skip for leaf in _bits(branch) if graph.step(leaf) is None)


def _closure(graph: Graph, number: int) -> int:
    """All that a value reaches back through light steps, itself among them, as bits."""
    found, todo = 1 << number, [number]
    while todo:
        step = graph.step(todo.pop())
        for source in step.sources if step else ():
            if not found >> source & 1:
                found |= 1 << source
                todo.append(source)
    return found


def _bits(numbers: int) -> Iterator[int]:
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def _stream(graph: Graph, joins: list[int], closures: dict[int, int], everything: int) -> Stream:
    values = 0
    for join in joins:
        values |= closures[join]
    end = _end(graph, joins[-1])
    leaves = [n for n in _bits(values) if graph.step(n) is None]
    light = values & ~sum(1 << n for n in leaves)
    sources = [n for n in leaves if not graph.through_weights[n] & (light | _sources_of(graph, leaves))]
    branches = [find_branch(graph, n, values, everything & ~values) for n in leaves if n not in sources]
    early = len(list(takewhile(lambda branch: branch.kind == "convolution", branches)))
    before = 0 if any(branch.kind == "convolution" for branch in branches[early:]) or early == len(branches) else early
    builder = _Formula(graph, branches, before)
    formula = builder.term(end)
    # What multiplies the last norm belongs to what comes after the stack.
    while formula.kind == "scale" and formula.arguments[0].kind in ("norm", "scale"):
        formula = formula.arguments[0]
    return Stream(
        joins=joins,
        end=end,
        values=values,
        branches=branches,
        before=before,
        formula=formula,
        norms=[_named(graph.norms[n], builder.normed[n]) for n in sorted(builder.normed)],
        width=graph.values[joins[-1]].shape[-1],
        sources=sum(1 << n for n in sources),
    )


def _sources_of(graph: Graph, leaves: list[int]) -> int:
    """The leaves that no other leaf leads to, as bits."""
    every = sum(1 << n for n in leaves)
    return sum(1 << n for n in leaves if not graph.through_weights[n] & every)


def _end(graph: Graph, join: int) -> int:
    """From the last sum on through norms, as long as one and only one follows."""
    end = join
    while len(found := _norms_after(graph, end)) == 1:
        (end,) = found
    return end


def _norms_after(graph: Graph, number: int) -> set[int]:
    found: set[int] = set()
    todo = [number]
    while todo:
        at = todo.pop()
        found.update(graph.norms_of.get(at, ()))
        for consumer in graph.consumers[at]:
            step = graph.step(consumer)
            if step is not None and step.kind in ("same", "scale"):
                todo.append(consumer)
    return found


def _named(norm: NormFunction, gain: Factor | None) -> tuple[str, float]:
    if norm.kind == "layer":
        return "layer-norm", norm.epsilon
    if gain is not None and not gain.vector:
        return "scale-norm", norm.epsilon
    return "rms-norm" if gain is not None or norm.epsilon > 0 else "sphere-norm", norm.epsilon


class _Formula:
    """Terms for the values of a stream; each value is one term, so that what is shared stays shared."""

    def __init__(self, graph: Graph, branches: list[Branch], before: int) -> None:
        self._graph = graph
        self._branches = {branch.output: (number, branch) for number, branch in enumerate(branches, -before)}
        self._terms: dict[int, Term] = {}
        self.normed: dict[int, Factor | None] = {}
        """Norms by number, with the gain after each."""

    def term(self, number: int) -> Term:
        # Deep stacks are deeper than Python's stack: what comes first is made first.
        for needed in self._order(number):
            self._terms[needed] = self._made(needed)
        return self._terms[number]

    def _arguments(self, number: int) -> tuple[int, ...]:
        if number in self._branches:
            return self._branches[number][1].reads
        step = self._graph.step(number)
        return step.sources if step else ()

    def _order(self, number: int) -> list[int]:
        found, todo = {number}, [number]
        while todo:
            new = [n for n in self._arguments(todo.pop()) if n not in found and n not in self._terms]
            found.update(new)
            todo += new
        return sorted(found)

    def _made(self, number: int) -> Term:
        arguments = tuple(self._terms[n] for n in self._arguments(number))
        if number in self._branches:
            place, branch = self._branches[number]
            return Term("branch", arguments, branch=place, inside=branch.inside, text=branch.kind)
        step = self._graph.step(number)
        if step is None:
            return Term("source", text="x")
        if step.kind == "same":
            return arguments[0]
        if step.kind == "norm":
            self.normed[number] = None
            size = self._graph.norms[number].size
            return scaled(normed(arguments[0]), Factor(size)) if abs(size - 1) > 0.01 else normed(arguments[0])
        if step.kind == "scale":
            return self._gained(step, arguments[0]) or scaled(arguments[0], step.factors[0])
        left, right = (scaled(a, f) for a, f in zip(arguments, step.factors, strict=True))
        return left + right

    def _gained(self, step: Step, term: Term) -> Term | None:
        """The norm itself where the step is its gain: a vector, or one trainable number, that alone reads the norm."""
        number = step.sources[0]
        while (before := self._graph.step(number)) is not None:
            if len(self._graph.consumers[number]) > 1:
                return None
            if before.kind == "norm":
                factor = step.factors[0]
                if factor.vector or factor.origin == Origin.TRAINABLE:
                    self.normed[number] = factor
                    # The gain takes the place of the norm's own size.
                    return term.arguments[0] if term.kind == "scale" else term
                if term.kind == "scale" and term.factor is not None and factor.origin == Origin.CONSTANT:
                    return scaled(term.arguments[0], factor * term.factor)
                return None
            if before.kind != "same":
                return None
            number = before.sources[0]
        return None
