"""Formulas as a placement or a foreign model computes them, in one form in which the two can be compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import attrgetter, or_
from typing import Literal

from ...placement.operations import mix, unit
from ..trace.flow import dominators
from ..trace.graph import Factor
from .inner import InnerPlace


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A node of a formula; the same node used twice is the same object."""

    kind: Literal["source", "branch", "sum", "scale", "norm", "mix", "number", "other"]
    arguments: "tuple[Term, ...]" = ()
    factor: Factor | None = None
    """Of a scale or a number."""
    branch: int = -1
    """Which sub-layer of its stack it is, counted from 0."""
    inside: tuple[InnerPlace, ...] = ()
    """Norms inside a branch or a mean over depth."""
    by_head: bool = False
    """Of a norm, whether parts of a token's features are normed each on their own."""
    text: str = ""
    """Under what name a source or a branch is printed; of a mean, what its weights are made from beside its values."""

    def __add__(self, other: "Term | float") -> "Term":
        left, right = self, as_term(other)
        if left.factor and right.factor and left.kind == right.kind == "number":
            return _number(left.factor.value + right.factor.value, left.factor, right.factor)
        if left.kind == "number" or right.kind == "number":
            return right if left.kind == "number" else left
        return Term("sum", (left, right))

    def __radd__(self, other: float) -> "Term":
        return as_term(other) + self

    def __sub__(self, other: "Term | float") -> "Term":
        return self + as_term(other) * -1.0

    def __rsub__(self, other: float) -> "Term":
        return as_term(other) - self

    def __mul__(self, other: "Term | float") -> "Term":
        left, right = self, as_term(other)
        if right.kind == "number":
            left, right = right, left
        if left.kind != "number" or left.factor is None:
            return Term("other", (left, right), text="product")
        return scaled(right, left.factor)

    def __rmul__(self, other: float) -> "Term":
        return as_term(other) * self

    def __truediv__(self, other: "Term | float") -> "Term":
        divisor = as_term(other)
        if divisor.kind != "number" or divisor.factor is None:
            return Term("other", (self, divisor), text="quotient")
        return scaled(self, replace(divisor.factor, value=1 / divisor.factor.value))


def as_term(value: Term | float) -> Term:
    """The term itself, or a number as one."""
    return value if isinstance(value, Term) else Term("number", factor=Factor(float(value)))


def _number(value: float, *of: Factor) -> Term:
    return Term("number", factor=Factor(value, max(f.origin for f in of), any(f.vector for f in of)))


def scaled(term: Term, factor: Factor) -> Term:
    """factor · term; the term itself where the factor is 1."""
    if factor.is_constant and abs(factor.value - 1) < 1e-5:
        return term
    if term.kind == "number":
        return Term("number", factor=factor * term.factor if term.factor else factor)
    # Factors of factors are not gathered: what is multiplied must stay one value for all that use it.
    return Term("scale", (term,), factor)


def normed(term: Term) -> Term:
    """norm(term)."""
    return Term("norm", (term,))


@mix.register
def _mix(query: Term, values: Sequence[Term], key: Callable[[Term], Term]) -> Term:
    keys = [term for term in ordered(key(Term("source"))) if term.kind == "norm"]
    return Term("mix", tuple(values), inside=(InnerPlace("key"),) * len(keys))


@unit.register
def _unit(x: Term) -> Term:
    return normed(x)


def ordered(
    end: Term, start: Term | None = None, *, arguments: Callable[[Term], tuple[Term, ...]] = attrgetter("arguments")
) -> list[Term]:
    """All that a term is made of, each after its own arguments; the term itself is last.

    start: one that is left out, with what it is made of. arguments: what to take a term to be made of.
    """
    found: dict[int, Term] = {} if start is None else {id(start): start}
    if id(end) in found:
        return []
    todo: list[tuple[Term, Iterator[Term]]] = [(end, iter(arguments(end)))]
    while todo:
        term, rest = todo[-1]
        following = next((argument for argument in rest if id(argument) not in found), None)
        if following is not None:
            todo.append((following, iter(arguments(following))))
        else:
            found[id(term)] = term
            todo.pop()
    return list(found.values())[start is not None :]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a formula between two values through which everything passes, with one or more branches in it."""

    start: Term
    end: Term
    branches: tuple[Term, ...]

    @property
    def side_by_side(self) -> bool:
        """Whether it has several branches, none of which goes into anything but sums and norms."""
        if len(self.branches) < 2:
            return False
        own = {id(branch) for branch in self.branches}
        heavy = [term for term in self.terms() if term.kind not in ("sum", "scale", "norm")]
        return not any(id(part) in own for term in heavy for part in ordered(term, self.start)[:-1])

    def terms(self) -> list[Term]:
        """What it computes, in order, without what comes before its start."""
        return ordered(self.end, self.start)


def segments(end: Term) -> list[Segment]:
    """A formula cut wherever a single value carries all that follows; each cut where the next branch leaves it."""
    terms = ordered(end)
    place = {id(term): n for n, term in enumerate(terms)}
    arguments = [[place[id(argument)] for argument in term.arguments] for term in terms]
    above: list[int] = []
    """Of each term the numbers of those that it is made of, and its own, as bits."""
    for number, some in enumerate(arguments):
        above.append(reduce(or_, (above[n] for n in some), 1 << number))
    before = dominators(arguments)
    chain = [len(terms) - 1]
    while before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    chain.reverse()
    # Branches before the first such value: of several sources, none carries all.
    early = tuple(t for t in terms[: chain[0] + 1] if t.kind == "branch")
    forks = [(terms[0], early)] if early else []
    for first, second in pairwise(chain):
        inside = tuple(
            terms[n] for n in range(first + 1, second + 1) if terms[n].kind == "branch" and above[n] >> first & 1
        )
        if inside:
            forks.append((terms[first], inside))
    ends = [start for start, _ in forks[1:]] + [end]
    return [
        Segment(start, stop, tuple(sorted(inside, key=lambda t: t.branch)))
        for (start, inside), stop in zip(forks, ends, strict=bool(forks))
    ]
