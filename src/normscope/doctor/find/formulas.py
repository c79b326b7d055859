"""The formula of a residual stream: how its terms are made, and how it is asked and printed piece
by piece.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import isnan
from types import MappingProxyType

from ...placement.symbol import Symbol, number as number_symbol
from ..trace.graph import Factor, Graph
from ..trace.operations import Origin, walked
from .branches import Branch, InnerPlace
from .segments import Segment, branch_factor, norms_sum, remade, sum_of
from .terms import Term, gained, normed, scaled


class FormulaOfStream:
    """Terms for the values of a stream; each value is one term, so that what is shared stays
    shared.
    """

    def __init__(
        self,
        graph: Graph,
        branches: list[Branch],
        before: int,
        combinations: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._graph, self._combinations = graph, combinations
        self._branches = {
            branch.output: (number, branch) for number, branch in enumerate(branches, -before)
        }
        self._terms: dict[int, Term] = {}
        self.normed: dict[int, Factor | None] = {}
        """Norms by number, with the gain after each."""

    def term(self, number: int) -> Term:
        # Deep stacks are deeper than Python's stack: what comes first is made first.
        made_of = walked(
            number, lambda n: [inner for inner in self._arguments(n) if inner not in self._terms]
        )
        for needed in sorted(set(made_of) - self._terms.keys()):
            made = self._made(needed)
            self._terms[needed] = made if made.at >= 0 else replace(made, at=needed)
        return self._terms[number]

    def _arguments(self, number: int) -> tuple[int, ...]:
        if number in self._branches:
            return self._branches[number][1].reads
        if number in self._combinations:
            return self._combinations[number]
        return self._graph.sources(number)

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
            norm = self._graph.norms[number]
            if abs(norm.size - 1) <= 0.01 or isnan(norm.size):
                return Term("norm", arguments, number, norm=norm)
            return scaled(
                Term("norm", arguments, number, norm=replace(norm, gain=1.0)),
                Factor(norm.size),
                number,
            )
        if step.kind == "scale":
            factor = step.factors[0]
            return self._gained(number, step.sources[0], factor, arguments[0]) or scaled(
                arguments[0], factor, number
            )
        if connection := self._graph.connections.made.get(number):
            return Term(connection.kind, arguments, weights=connection.weights)
        if number in self._graph.connections.spread:
            arguments = arguments[0], Term("expand", arguments[1:])
        addends = (scaled(a, f, number) for a, f in zip(arguments, step.factors, strict=True))
        return reduce(lambda left, right: replace(left + right, at=number), addends)

    def _gained(self, at: int, number: int, factor: Factor, term: Term) -> Term | None:
        """Returns the norm itself where a factor is its gain: a vector, or one trainable number,
        that alone reads the norm.
        """
        while (before := self._graph.step(number)) is not None and len(
            self._graph.consumers[number]
        ) == 1:
            if before.kind == "norm":
                if factor.vector or factor.origin == Origin.TRAINABLE:
                    self.normed[number] = factor
                    # The gain takes the place of the norm's own size.
                    if term.kind == "scale" and term.factor is not None:
                        term = gained(term.arguments[0], term.factor)
                    return replace(gained(term, factor), at=at)
                if (
                    term.kind == "scale"
                    and term.factor is not None
                    and factor.origin == Origin.CONSTANT
                ):
                    inner = term.arguments[0]
                    made = scaled(inner, factor * term.factor, at)
                    return (
                        replace(gained(inner, term.factor, factor), at=at)
                        if made is inner
                        else made
                    )
                return None
            # Of x / ‖x‖ · √d · gain, the constant is the norm's size.
            if before.kind != "same" and not (
                before.kind == "scale" and before.factors[0].is_constant
            ):
                return None
            number = before.sources[0]
        return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Formula:
    """The way that a sub-layer is joined to the stream: the piece of the stack's formula that it
    stands in.

    Two formulas are equal where they are printed alike.
    """

    segment: Segment
    branch: Term
    """The one of the segment's branches that the sub-layer is."""

    def __str__(self) -> str:
        """x ← …, after one statement for each value that is used twice, as a = …, and without what
        stands before x.

        Where means over depth are taken there is no such x, and what is printed is the branch
        itself, as v = …, of earlier branches and the source.
        """
        if not self.over_depth:
            printer = _Printer(self.segment)
            return "; ".join([*printer.statements, f"x ← {printer.symbol(self.segment.end)}"])
        names = {id(other): f"v{number}" for number, other in enumerate(self.segment.branches, 1)}
        name = names.pop(id(self.branch))
        return (
            f"{name} = "
            f"{_Printer(replace(self.segment, end=self.branch), names).symbol(self.branch)}"
        )

    def __repr__(self) -> str:
        return f"Formula({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Formula) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def over_depth(self) -> bool:
        """True where the formula takes means over depth."""
        return any(term.kind == "mix" for term in self.segment.terms)

    @property
    def sum_is_normed(self) -> bool:
        """True where the sum that the branch is added in goes into a norm, as it is or scaled."""
        total = sum_of(self.segment, self.branch)
        normed = [term.arguments[0] for term in self.segment.terms if term.kind == "norm"]
        return total is not None and any(
            _unscaled(inner, self.segment.start) is total for inner in normed
        )

    @property
    def norms_a_sum(self) -> bool:
        """True where any norm is of a sum with the branch, also where that is one addend of
        several.
        """
        return norms_sum(self.segment, self.branch)

    @property
    def branch_is_normed(self) -> bool:
        """True where the branch goes into a norm on its own, as it is or scaled, before it is
        added.
        """
        normed = [term.arguments[0] for term in self.segment.terms if term.kind == "norm"]
        return any(_unscaled(inner, self.segment.start) is self.branch for inner in normed)

    @property
    def reads_norm(self) -> bool:
        """True where the branch reads the norm of the stream, and nothing else."""
        read = self.branch.arguments[0]
        return read.kind == "norm" and read.arguments[0] is self.segment.start

    @property
    def gate(self) -> Factor | None:
        """The factor of the branch in the sum that it is added in; None where it is no addend of
        one.
        """
        return branch_factor(self.segment, self.branch)

    def outlined(self, *, numbers: bool) -> "Formula":
        """The same with F for every sub-layer; numbers: whether the constants that multiply values
        stay in it.
        """

        def made(term: Term, arguments: tuple[Term, ...]) -> Term:
            if term.kind == "branch":
                return replace(term, arguments=arguments, text="F")
            factor = term.factor if term.kind == "scale" and not numbers else None
            left_out = factor is not None and factor.is_constant and factor.value >= 0
            return arguments[0] if left_out else replace(term, arguments=arguments)

        segment = remade(self.segment, made)
        return Formula(segment, segment.branches[self.segment.branches.index(self.branch)])


def _unscaled(term: Term, start: Term) -> Term:
    while term is not start and term.kind == "scale":
        term = term.arguments[0]
    return term


class _Printer:
    def __init__(self, segment: Segment, names: Mapping[int, str] = MappingProxyType({})) -> None:
        """names: what is printed under a name of its own; then nothing else is."""
        self._symbols = {
            made: Symbol(name, (), 1) for made, name in {id(segment.start): "x", **names}.items()
        }
        self.statements: list[str] = []
        inside = segment.terms
        uses: dict[int, int] = {}
        for term in inside:
            for argument in term.arguments:
                uses[id(argument)] = uses.get(id(argument), 0) + 1
        for term in inside:
            if id(term) in names:
                continue
            made = self._made(term)
            if uses.get(id(term), 0) > 1 and term.kind != "source" and not names:
                name = f"a{len(self.statements) + 1}"
                self.statements.append(f"{name} = {made}")
                made = Symbol(name, (), 1)
            self._symbols[id(term)] = made

    def symbol(self, term: Term) -> Symbol:
        return self._symbols[id(term)]

    def _made(self, term: Term) -> Symbol:
        arguments = tuple(self.symbol(argument) for argument in term.arguments)
        if term.kind == "branch":
            inside = tuple(Symbol("norm", (Symbol(str(place)),)) for place in term.inside)
            return Symbol(term.text, (*arguments, *inside), 1, applies_f=True)
        if term.kind == "sum":
            right = term.arguments[1]
            if right.kind == "scale" and right.factor == Factor(-1.0):
                return arguments[0] - self.symbol(right.arguments[0])
            return arguments[0] + arguments[1]
        if term.kind == "scale" and term.factor is not None:
            return _factor(term.factor) * arguments[0]
        return Symbol(term.text or term.kind, arguments, 1)


def _factor(factor: Factor) -> Symbol:
    if factor.is_constant:
        return number_symbol(factor.value)
    words = {Origin.TRAINABLE: "trained", Origin.DATA: "token"}
    return Symbol(words.get(factor.origin, "constant"))
