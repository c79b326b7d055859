"""Where a branch meets the stream: the sum that it is added in, and what both are multiplied with there.

An observed formula: a value that can be asked, and printed in the words of the registry's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...placement.symbol import Symbol
from ...placement.symbol import number as number_symbol
from ..trace.graph import Factor
from ..trace.operations import Origin
from .terms import Segment, Term, ordered

_ONE = Factor(1.0)


def scales(segment: Segment, branch: Term) -> tuple[float | None, float | None]:
    """What the segment's start and the branch are multiplied with in the sum where they meet; means of vectors.

    None for one that is not an addend of a sum with the branch in it.
    """
    total, own = sum_of(segment, branch), branch_factor(segment, branch)
    if total is None or own is None:
        return None, None
    # Down from the sum, so that a value that is added on many ways is looked at once.
    weights = {id(total): 1.0}
    for term in reversed(ordered(total, segment.start)):
        weight = weights.get(id(term))
        if weight is not None and term.kind in ("sum", "scale"):
            for argument in term.arguments:
                through = weight * term.factor.value if term.factor is not None else weight
                weights[id(argument)] = weights.get(id(argument), 0.0) + through
    return weights.get(id(segment.start)), own.value


def sum_of(segment: Segment, branch: Term) -> Term | None:
    """The outermost sum of a segment that has a branch among its addends, as it is, normed or scaled."""
    sums = _sums(segment.end, segment.start)
    return next((term for term in sums if _factor_in(term, segment.start, branch) is not None), None)


def norms_sum(segment: Segment, branch: Term) -> bool:
    """Whether any norm of a segment is of a sum that has a branch among its addends, as it is or scaled."""
    inner = (term.arguments[0] for term in segment.terms if term.kind == "norm")
    return any(not _is_branch(term, branch) and _factor_in(term, segment.start, branch) is not None for term in inner)


def branch_factor(segment: Segment, branch: Term) -> Factor | None:
    """What a branch is multiplied with in the sum where it meets the stream; None where it is no addend of one."""
    total = sum_of(segment, branch)
    return None if total is None else _factor_in(total, segment.start, branch)


def _factor_in(total: Term, start: Term, branch: Term) -> Factor | None:
    """What a branch is multiplied with on the first way to it through sums and scales; None where there is none."""
    seen: set[int] = set()
    todo = [(total, _ONE)]
    while todo:
        term, factor = todo.pop()
        if id(term) in seen:
            continue
        seen.add(id(term))
        if term is not start and term.kind == "sum":
            todo += [(argument, factor) for argument in reversed(term.arguments)]
        elif term is not start and term.kind == "scale" and term.factor is not None:
            todo.append((term.arguments[0], factor * term.factor))
        elif _is_branch(term, branch):
            return factor
    return None


def _is_branch(term: Term, branch: Term) -> bool:
    """Whether a term is the branch, up to norms and scales."""
    while term is not branch and term.kind in ("norm", "scale"):
        term = term.arguments[0]
    return term is branch


def _sums(end: Term, start: Term) -> list[Term]:
    """The sums of a segment, the outermost first."""
    found, seen, todo = [], {id(start)}, [end]
    while todo:
        term = todo.pop(0)
        if id(term) in seen:
            continue
        seen.add(id(term))
        if term.kind == "sum":
            found.append(term)
        todo += term.arguments
    return found


def unscaled(segment: Segment) -> Segment:
    """The same without what multiplies branches, or norms of them, before they are added."""
    made = {id(segment.start): segment.start}
    of_branches = {id(branch) for branch in segment.branches}
    for term in segment.terms:
        arguments = tuple(made[id(argument)] for argument in term.arguments)
        inner = term.arguments[0] if term.arguments else term
        if term.kind in ("norm", "scale") and id(inner) in of_branches:
            of_branches.add(id(term))
        if term.kind == "scale" and id(inner) in of_branches:
            made[id(term)] = arguments[0]
        else:
            made[id(term)] = replace(term, arguments=arguments)
    branches = tuple(made[id(branch)] for branch in segment.branches)
    return Segment(segment.start, made[id(segment.end)], branches)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Formula:
    """How a sub-layer is joined to the stream: the piece of the stack's formula that it stands in.

    Two formulas are equal where they are printed alike.
    """

    segment: Segment
    branch: Term
    """Which of the segment's branches the sub-layer is."""

    def __str__(self) -> str:
        """x ← …, after one statement for each value that is used twice, as a = …, and without what stands before x.

        Where means over depth are taken there is no such x, and what is printed is the branch itself, as v = …, of
        earlier branches and the source.
        """
        return _branch_text(self) if self.over_depth else _segment_text(self.segment)

    def __repr__(self) -> str:
        return f"Formula({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Formula) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def over_depth(self) -> bool:
        """Whether means over depth are taken in it."""
        return any(term.kind == "mix" for term in self.segment.terms)

    @property
    def sum_is_normed(self) -> bool:
        """Whether the sum that the branch is added in goes into a norm, as it is or scaled."""
        total = sum_of(self.segment, self.branch)
        normed = [term.arguments[0] for term in self.segment.terms if term.kind == "norm"]
        return total is not None and any(_unscaled(inner, self.segment.start) is total for inner in normed)

    @property
    def norms_a_sum(self) -> bool:
        """Whether any norm is of a sum with the branch, also where that is one addend of several."""
        return norms_sum(self.segment, self.branch)

    @property
    def branch_is_normed(self) -> bool:
        """Whether the branch goes into a norm on its own, as it is or scaled, before it is added."""
        normed = [term.arguments[0] for term in self.segment.terms if term.kind == "norm"]
        return any(_unscaled(inner, self.segment.start) is self.branch for inner in normed)

    @property
    def reads_norm(self) -> bool:
        """Whether the branch reads the norm of the stream, and nothing else."""
        read = self.branch.arguments[0]
        return read.kind == "norm" and read.arguments[0] is self.segment.start

    @property
    def gate(self) -> Factor | None:
        """What the branch is multiplied with in the sum that it is added in; None where it is no addend of one."""
        return branch_factor(self.segment, self.branch)

    def outlined(self, *, numbers: bool) -> "Formula":
        """The same with F for every sub-layer; numbers: whether the constants that multiply values stay in it."""
        made = {id(self.segment.start): self.segment.start}
        for term in self.segment.terms:
            arguments = tuple(made[id(argument)] for argument in term.arguments)
            factor = term.factor
            if term.kind == "branch":
                made[id(term)] = replace(term, arguments=arguments, text="F")
            elif not numbers and term.kind == "scale" and factor and factor.is_constant and factor.value >= 0:
                made[id(term)] = arguments[0]
            else:
                made[id(term)] = replace(term, arguments=arguments)
        branches = tuple(made[id(branch)] for branch in self.segment.branches)
        return Formula(Segment(self.segment.start, made[id(self.segment.end)], branches), made[id(self.branch)])


def _unscaled(term: Term, start: Term) -> Term:
    while term is not start and term.kind == "scale":
        term = term.arguments[0]
    return term


def _segment_text(segment: Segment) -> str:
    printer = _Printer(segment)
    return "; ".join([*printer.statements, f"x ← {printer.symbol(segment.end)}"])


def _branch_text(formula: Formula) -> str:
    names = {id(other): f"v{number}" for number, other in enumerate(formula.segment.branches, 1)}
    name = names.pop(id(formula.branch))
    printer = _Printer(replace(formula.segment, end=formula.branch), names)
    return f"{name} = {printer.symbol(formula.branch)}"


class _Printer:
    def __init__(self, segment: Segment, names: Mapping[int, str] = MappingProxyType({})) -> None:
        """names: what is printed under a name of its own; then nothing else is."""
        self._symbols = {made: Symbol(name, (), 1) for made, name in {id(segment.start): "x", **names}.items()}
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
