"""A formula in pieces, each from one value that all passes through to the next, and the sum where a
branch joins in.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_

from ..trace.flow import dominators
from ..trace.graph import Factor
from .terms import Term, ordered

_ONE = Factor(1.0)


@dataclass(frozen=True)
class Segment:
    """The part of a formula between two values through which everything passes, with one or more
    branches in it.
    """

    start: Term
    end: Term
    branches: tuple[Term, ...]

    @cached_property
    def side_by_side(self) -> bool:
        """True where it has several branches, none of which goes into anything but sums and
        norms.
        """
        if len(self.branches) < 2:
            return False
        own, of_branches = {id(branch) for branch in self.branches}, set[int]()
        for term in self.terms:
            if any(
                id(argument) in own or id(argument) in of_branches for argument in term.arguments
            ):
                if term.kind not in ("sum", "scale", "norm"):
                    return False
                of_branches.add(id(term))
        return True

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms that it computes, in order, without those before its start."""
        return tuple(ordered(self.end, self.start))


def segments(end: Term) -> list[Segment]:
    """Returns a formula cut wherever a single value carries all that follows; each cut where the
    next branch leaves it.
    """
    terms = ordered(end)
    place = {id(term): n for n, term in enumerate(terms)}
    arguments = [[place[id(argument)] for argument in term.arguments] for term in terms]
    above: list[int] = []
    """The numbers of each term's ancestors and its own, as bits."""
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
            terms[n]
            for n in range(first + 1, second + 1)
            if terms[n].kind == "branch" and above[n] >> first & 1
        )
        if inside:
            forks.append((terms[first], inside))
    ends = [start for start, _ in forks[1:]] + [end]
    return [
        Segment(start, stop, tuple(sorted(inside, key=lambda t: t.branch)))
        for (start, inside), stop in zip(forks, ends, strict=bool(forks))
    ]


def scales(segment: Segment, branch: Term) -> tuple[float | None, float | None]:
    """Returns the factors of the segment's start and of the branch in the sum where they meet;
    means of vectors.

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
    """Returns the outermost sum of a segment that has a branch among its addends, as it is, normed
    or scaled.
    """
    sums = _sums(segment.end, segment.start)
    return next(
        (term for term in sums if _factor_in(term, segment.start, branch) is not None), None
    )


def norms_sum(segment: Segment, branch: Term) -> bool:
    """Tells whether any norm of a segment is of a sum that has a branch among its addends, as it is
    or scaled.
    """
    inner = (term.arguments[0] for term in segment.terms if term.kind == "norm")
    return any(
        not _is_branch(term, branch) and _factor_in(term, segment.start, branch) is not None
        for term in inner
    )


def branch_factor(segment: Segment, branch: Term) -> Factor | None:
    """Returns the factor of a branch in the sum where it meets the stream; None where it is no
    addend of one.
    """
    total = sum_of(segment, branch)
    return None if total is None else _factor_in(total, segment.start, branch)


def _factor_in(total: Term, start: Term, branch: Term) -> Factor | None:
    """Returns the factor of a branch on the first way to it through sums and scales; None where
    there is none.
    """
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
    """Tells whether a term is the branch, up to norms and scales."""
    while term is not branch and term.kind in ("norm", "scale"):
        term = term.arguments[0]
    return term is branch


def _sums(end: Term, start: Term) -> list[Term]:
    """Returns the sums of a segment, the outermost first."""
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


def remade(segment: Segment, made_of: Callable[[Term, tuple[Term, ...]], Term]) -> Segment:
    """The same with another term in the place of each: what `made_of` makes of it and of its new
    arguments.
    """
    made = {id(segment.start): segment.start}
    for term in segment.terms:
        made[id(term)] = made_of(term, tuple(made[id(argument)] for argument in term.arguments))
    branches = tuple(made[id(branch)] for branch in segment.branches)
    return Segment(segment.start, made[id(segment.end)], branches)


def unscaled(segment: Segment) -> Segment:
    """The same without what multiplies branches, or norms of them, before they are added."""
    of_branches = {id(branch) for branch in segment.branches}

    def made(term: Term, arguments: tuple[Term, ...]) -> Term:
        if term.kind in ("norm", "scale") and id(term.arguments[0]) in of_branches:
            of_branches.add(id(term))
            if term.kind == "scale":
                return arguments[0]
        return replace(term, arguments=arguments)

    return remade(segment, made)
