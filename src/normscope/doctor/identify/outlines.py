"""The numbers in a formula, and what remains of it without them."""

from dataclasses import dataclass

from ..find.terms import Segment, Term
from ..trace.operations import Origin

Structure = tuple[tuple[str, ...], tuple["Structure", ...]]
"""What is applied, and what to."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A formula with a number wherever a value could be multiplied with one, 1 where it is not."""

    structure: Structure
    """The formula without its numbers."""
    numbers: tuple[float, ...]
    """In the order of their places in `structure`."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A sum (its name is +), an application, or a value alone; each argument with the number it is multiplied with."""

    name: tuple[str, ...]
    arguments: "tuple[tuple[float, _Node], ...]" = ()

    @property
    def structure(self) -> Structure:
        return self.name, tuple(argument.structure for _, argument in self.arguments)

    @property
    def numbers(self) -> tuple[float, ...]:
        return tuple(n for number, argument in self.arguments for n in (number, *argument.numbers))


_X = ("x",)


def outline(segment: Segment) -> Outline | None:
    """A piece of a formula as its outline; None where a value in it is used twice, or a mean over depth is taken.

    Kinds of sub-layers are left out. Addends are put in one order, and what a norm takes in is divided by its branch's
    number, which a norm does not see.
    """
    used: set[int] = set()
    for term in segment.terms:
        # Only a formula that is a tree has one place for each number.
        again = {id(a) for a in term.arguments if a is not segment.start and a.kind != "source"}
        if term.kind == "mix" or again & used or len(again) < len(_own(term, segment.start)):
            return None
        used |= again
    whole = _Node(("=",), (_read(segment.end, segment.start),))
    return Outline(whole.structure, whole.numbers)


def _own(term: Term, start: Term) -> list[Term]:
    return [argument for argument in term.arguments if argument is not start and argument.kind != "source"]


def _read(term: Term, start: Term) -> tuple[float, _Node]:
    if term is start or term.kind == "source":
        return 1.0, _Node(_X)
    if term.kind == "sum":
        addends = _addends(term, start)
        return 1.0, _Node(("+",), tuple(sorted(addends, key=lambda addend: addend[1].structure)))
    if term.kind == "scale" and term.factor is not None:
        number, inner = _read(term.arguments[0], start)
        if term.factor.is_constant:
            return term.factor.value * number, inner
        word = "trained" if term.factor.origin == Origin.TRAINABLE else "constant"
        return 1.0, _Node((word,), ((number, inner),))
    arguments = tuple(_read(argument, start) for argument in term.arguments)
    if term.kind == "norm":
        return 1.0, _Node(("norm",), tuple((1.0, _relative(inner)) for _, inner in arguments))
    if term.kind == "branch":
        return 1.0, _Node(("F", *map(str, term.inside)), arguments)
    return 1.0, _Node((term.kind, term.text), arguments)


def _addends(term: Term, start: Term) -> list[tuple[float, _Node]]:
    """What a sum and the sums in it add up."""
    found = []
    for argument in term.arguments:
        within = argument is not start and argument.kind == "sum"
        found += _addends(argument, start) if within else [_read(argument, start)]
    return found


def _relative(node: _Node) -> _Node:
    """x + F(x) as a norm sees it, whatever both are multiplied with: the number of the branch is 1."""
    branches = [number for number, addend in node.arguments if addend.name != _X]
    if node.name != ("+",) or len(branches) != 1 or not branches[0]:
        return node
    return _Node(node.name, tuple((number / branches[0], addend) for number, addend in node.arguments))
