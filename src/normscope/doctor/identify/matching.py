"""The comparison of an observed piece of a formula with that of a placement, up to what a model's
arithmetic does not show.

An `Outline` parts a formula from its numbers, so that these can be compared on their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from ..find.segments import Segment
from ..find.terms import Term, ordered
from ..trace.graph import Factor
from ..trace.operations import Origin

TOLERANCE = 1e-3
"""Relative difference of two constants that are taken for the same; models write theirs with four
digits or more.
"""
_OWN = ("score", "mixer")
"""Places of norms that are F's own affair: of queries and keys, and within mixers, of which no
formula speaks.
"""
_ONE = Factor(1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _NormalForm:
    """A term in a form in which neither the order of a sum shows nor what a norm does not see.

    `structure` is a hash, equal for two forms of one kind of comparison that differ in their
    numbers alone.
    """

    kind: str
    structure: int
    parts: "tuple[_NormalForm, ...]" = ()
    factors: tuple[Factor, ...] = ()
    """The factors of a sum's parts, one for each."""
    with_branch: bool = False


_FORMS = WeakKeyDictionary[Segment, dict[tuple[bool, int], _NormalForm | None]]()
"""The normal forms by segment, then by whether norms of queries and keys are kept and by the
identity of the branch examined.

A registered formula is brought into its form once a process, and an observed one no longer kept
than it is used.
"""


def matches(
    observed: Segment, expected: Segment, *, qk_norms: bool = True, only: Term | None = None
) -> bool:
    """Tells whether two segments compute the same from the value that each starts from.

    qk_norms: whether norms of queries and keys count. only: one of several branches of `observed`
    that run side by side; `expected` is then its own.
    """
    a = _form(observed, qk_norms, only)
    b = _form(expected, qk_norms, None if only is None else expected.branches[0])
    return a is not None and b is not None and _same(a, b)


def _form(segment: Segment, qk_norms: bool, only: Term | None) -> _NormalForm | None:
    """Returns a segment's end over its start; of branches that run side by side the sums' others
    than `only` are left out.
    """
    made, key = _FORMS.setdefault(segment, {}), (qk_norms, id(only))
    if key not in made:
        maker = _Maker(qk_norms, segment, only)
        # Deep formulas are deeper than Python's stack: what comes first is made first.
        for term in segment.terms:
            if term.kind not in ("sum", "scale"):
                maker.form(term)
        made[key] = maker.form(segment.end)
    return made[key]


def _same(observed: _NormalForm, expected: _NormalForm) -> bool:
    """Tells whether two forms agree: constants by value, trained and scheduled numbers by their
    presence.
    """
    seen: set[tuple[int, int]] = set()
    todo = [(observed, expected)]
    while todo:
        a, b = todo.pop()
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if (
            a.kind != b.kind
            or len(a.parts) != len(b.parts)
            or not all(map(_agree, a.factors, b.factors))
        ):
            return False
        if not a.parts and a.structure != b.structure:
            return False
        todo += zip(a.parts, b.parts, strict=True)
    return True


def _agree(observed: Factor, expected: Factor) -> bool:
    if observed.vector != expected.vector or (
        expected.doubly_stochastic and observed.doubly_stochastic is False
    ):
        return False
    if expected.origin == Origin.CONSTANT and observed.origin < Origin.TRAINABLE:
        return abs(observed.value - expected.value) <= TOLERANCE * abs(expected.value)
    return observed.origin == expected.origin


def _added(
    to: dict[tuple[Origin, bool], Factor], factor: Factor
) -> dict[tuple[Origin, bool], Factor]:
    """Returns the factors of one value, by what they are made from, with one more: numbers of one
    origin are added up.
    """
    key = factor.origin, factor.vector
    to[key] = replace(factor, value=factor.value + to[key].value) if key in to else factor
    return to


@dataclass(slots=True)
class _Maker:
    qk_norms: bool
    segment: Segment
    only: Term | None
    made: dict[int, _NormalForm | None] = field(default_factory=dict)

    def form(self, term: Term) -> _NormalForm | None:
        if id(term) not in self.made:
            self.made[id(term)] = self._form(term)
        return self.made[id(term)]

    def _form(self, term: Term) -> _NormalForm | None:
        if term is self.segment.start:
            return _NormalForm("x", hash("x"))
        if term.kind == "sum" or term.kind == "scale":
            return self._sum(self._items(term))
        if term.kind == "branch" and self.only is not None and term is not self.only:
            return None
        parts = tuple(
            part for argument in term.arguments if (part := self.form(argument)) is not None
        )
        if len(parts) < len(term.arguments):
            return None
        name: tuple[Any, ...] = (term.kind, term.text, term.inside)
        if term.kind == "branch":
            inside = tuple(p for p in term.inside if self.qk_norms or p.name not in _OWN)
            # Sub-layers are told apart by their order in the segment, not by their kind.
            place = 0 if self.only is not None else term.branch - self.segment.branches[0].branch
            name = ("branch", place, inside)
        elif term.kind == "norm":
            name, parts = ("norm",), (self._relative(parts[0]),)
        structure = hash((name, *(part.structure for part in parts)))
        return _NormalForm(
            str(name),
            structure,
            parts,
            with_branch=term.kind == "branch" or any(p.with_branch for p in parts),
        )

    def _items(self, total: Term) -> list[tuple[Factor, _NormalForm]]:
        """Returns the addends of a sum and of the sums in it, each with its factor; one that comes
        on several ways is one.
        """
        # Down from the sum: what is added on many ways has all of its factors before it is looked
        # at.
        factors: dict[int, dict[tuple[Origin, bool], Factor]] = {id(total): _added({}, _ONE)}
        found: list[tuple[Factor, _NormalForm]] = []
        for term in reversed(
            ordered(total, arguments=lambda term: tuple(inner for _, inner in self._addends(term)))
        ):
            own, addends = factors[id(term)].values(), self._addends(term)
            for factor, inner in addends:
                into = factors.setdefault(id(inner), {})
                for outer in own:
                    _added(into, outer * factor)
            if not addends:
                # What is trained or scheduled stays before the sum that it multiplies.
                before = (
                    term.factor if term.kind == "scale" and term is not self.segment.start else None
                )
                made = self.form(term if before is None else term.arguments[0])
                found += [(outer * (before or _ONE), made) for outer in own if made is not None]
        return found

    def _addends(self, term: Term) -> list[tuple[Factor, Term]]:
        """Returns the addends of a sum or a multiple, each with its factor; an empty list for a
        term that is itself an addend.
        """
        if term is self.segment.start:
            return []
        if term.kind == "sum":
            return [(_ONE, argument) for argument in term.arguments]
        if term.kind == "scale" and term.factor is not None:
            inner = term.arguments[0]
            is_start = inner is self.segment.start
            # A trained gate on a norm cannot be told from the norm's own gain; the stream has its
            # own, normed or not.
            if (
                inner.kind == "norm"
                and not is_start
                and (term.factor.vector or term.factor.origin == Origin.TRAINABLE)
            ):
                return [(_ONE, inner)]
            # A constant goes into the sum behind it.
            if is_start or inner.kind != "sum" or term.factor.origin == Origin.CONSTANT:
                return [(term.factor, inner)]
        return []

    def _sum(self, items: list[tuple[Factor, _NormalForm]]) -> _NormalForm | None:
        # A buffer that holds 1 may stand there too, as the first of LayerNorm scaling.
        if not items or (len(items) == 1 and _agree(items[0][0], _ONE)):
            return items[0][1] if items else None
        # A buffer's number stands where a formula's constant does.
        keys = [
            (part.structure, max(factor.origin, Origin.BUFFER), factor.vector)
            for factor, part in items
        ]
        order = sorted(range(len(items)), key=lambda n: keys[n])
        factors = tuple(items[n][0] for n in order)
        parts = tuple(items[n][1] for n in order)
        structure = hash(("sum", *(keys[n] for n in order)))
        with_branch = any(part.with_branch for part in parts)
        return _NormalForm("sum", structure, parts, factors, with_branch)

    def _relative(self, inner: _NormalForm) -> _NormalForm:
        """Returns a norm's sum divided by its branch's number: a norm does not see what multiplies
        all of its input.
        """
        if inner.kind != "sum" or any(factor.origin != Origin.CONSTANT for factor in inner.factors):
            return inner
        branches = [
            f.value for f, part in zip(inner.factors, inner.parts, strict=True) if part.with_branch
        ]
        if len(inner.parts) == 1 and not inner.factors[0].vector:
            branches = [inner.factors[0].value]
        if len(branches) != 1 or branches[0] <= 0:
            return inner
        relative = [
            (Factor(factor.value / branches[0], factor.origin, factor.vector), part)
            for factor, part in zip(inner.factors, inner.parts, strict=True)
        ]
        return self._sum(relative) or inner


def norms_left_out(segment: Segment) -> bool:
    """Tells whether a comparison without the norms of queries and keys leaves any of them out of
    this segment.
    """
    return any(place.name in _OWN for branch in segment.branches for place in branch.inside)


@dataclass(frozen=True, slots=True)
class Outline:
    """A formula with a number wherever a value could be multiplied with one, 1 where it is not."""

    structure: tuple[Any, ...]
    """The formula without its numbers: what is applied, and the structures of what it is applied
    to.
    """
    numbers: tuple[float, ...]
    """The numbers, in the order of their places in `structure`."""


def outline(segment: Segment) -> Outline | None:
    """Returns a piece of a formula as its outline; None where a value in it is used twice, or a
    mean over depth is taken.

    It is the form that `matches` compares, so that kinds of sub-layers are left out, addends have
    one order, and what a norm takes in is divided by its branch's number, which a norm does not
    see.
    """
    # Only a formula that is a tree has one place for each number.
    used = [
        id(a)
        for term in segment.terms
        for a in term.arguments
        if a is not segment.start and a.kind != "source"
    ]
    if len(set(used)) < len(used) or any(term.kind == "mix" for term in segment.terms):
        return None
    form = _form(segment, True, None)
    return None if form is None else _applied("=", [_outlined(_ONE, form)])


def _applied(name: str, arguments: Sequence[tuple[float, Outline]]) -> Outline:
    return Outline(
        (name, *(outline.structure for _, outline in arguments)),
        tuple(n for number, outline in arguments for n in (number, *outline.numbers)),
    )


def _outlined(factor: Factor, form: _NormalForm) -> tuple[float, Outline]:
    """Returns the number that a form is multiplied by, times a factor, and the form's outline."""
    arguments = list(map(_outlined, form.factors or (_ONE,) * len(form.parts), form.parts))
    if form.kind == "sum" and len(arguments) == 1:
        ((number, made),) = arguments
    else:
        if form.kind == "sum":
            arguments.sort(key=lambda argument: argument[1].structure)
        number, made = 1.0, _applied(form.kind, arguments)
    if factor.is_constant:
        return factor.value * number, made
    return 1.0, _applied(
        "trained" if factor.origin == Origin.TRAINABLE else "constant", [(number, made)]
    )
