"""Where a branch meets the stream: the sum that it is added in, and what both are multiplied with there."""

from dataclasses import replace

from ..find.terms import Segment, Term, ordered
from ..trace.graph import Factor

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
