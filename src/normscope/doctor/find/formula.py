"""The formula of a residual stream: terms for its values, over its branches and its sources."""

from collections.abc import Mapping

from ..trace.graph import Factor, Graph, Step
from ..trace.operations import Origin
from .branches import Branch
from .inner import InnerPlace
from .terms import Term, normed, scaled


class FormulaOfStream:
    """Terms for the values of a stream; each value is one term, so that what is shared stays shared."""

    def __init__(
        self, graph: Graph, branches: list[Branch], before: int, combinations: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._graph, self._combinations = graph, combinations
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
        if number in self._combinations:
            return self._combinations[number]
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
        if number in self._combinations:
            return Term("other", arguments, text="combined")
        step = self._graph.step(number)
        if step is None:
            return Term("source", text="x")
        if step.kind == "same":
            return arguments[0]
        if step.kind == "mix":
            mixture = self._graph.mixtures[number]
            if mixture.normed:
                arguments = tuple(map(normed, arguments))
            return Term(
                "mix",
                arguments,
                inside=(InnerPlace("key"),) * mixture.key_norms,
                text="" if mixture.by_parameter else "mix by data",
            )
        if step.kind == "norm":
            self.normed[number] = None
            size = self._graph.norms[number].size
            return scaled(normed(arguments[0]), Factor(size)) if abs(size - 1) > 0.01 else normed(arguments[0])
        if step.kind == "scale":
            return self._gained(step, arguments[0]) or scaled(arguments[0], step.factors[0])
        if connection := self._graph.connections.made.get(number):
            return Term(connection.kind, arguments, weights=connection.weights)
        if number in self._graph.connections.spread:
            arguments = arguments[0], Term("expand", arguments[1:])
        left, right = (scaled(a, f) for a, f in zip(arguments, step.factors, strict=True))
        return left + right

    def _gained(self, step: Step, term: Term) -> Term | None:
        """The norm itself where the step is its gain: a vector, or one trainable number, that alone reads the norm."""
        number, factor = step.sources[0], step.factors[0]
        while (before := self._graph.step(number)) is not None and len(self._graph.consumers[number]) == 1:
            if before.kind == "norm":
                if factor.vector or factor.origin == Origin.TRAINABLE:
                    self.normed[number] = factor
                    # The gain takes the place of the norm's own size.
                    return term.arguments[0] if term.kind == "scale" else term
                if term.kind == "scale" and term.factor is not None and factor.origin == Origin.CONSTANT:
                    return scaled(term.arguments[0], factor * term.factor)
                return None
            # Of x / ‖x‖ · √d · gain, the constant is the norm's size.
            if before.kind != "same" and not (before.kind == "scale" and before.factors[0].is_constant):
                return None
            number = before.sources[0]
        return None
