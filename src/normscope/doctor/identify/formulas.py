"""An observed formula as text, in the words of the registry's own."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...placement.symbol import Symbol
from ...placement.symbol import number as number_symbol
from ..find.terms import Segment, Term
from ..trace.graph import Factor
from ..trace.operations import Origin


def formula_text(segment: Segment, branch: Term | None = None) -> str:
    """x ← …, after one statement for each value that is used twice, as a = …, and without what stands before x.

    Where means over depth are taken there is no such x: the branch itself (the last one unless another is named), as
    v = …, of earlier ones and the source.
    """
    if any(term.kind == "mix" for term in segment.terms()):
        return _branch_text(segment, branch or segment.branches[-1])
    printer = _Printer(segment)
    statements = [*printer.statements, f"x ← {printer.symbol(segment.end)}"]
    return "; ".join(statements)


def _branch_text(segment: Segment, branch: Term) -> str:
    names = {id(other): f"v{number}" for number, other in enumerate(segment.branches, 1)}
    name = names.pop(id(branch))
    printer = _Printer(replace(segment, end=branch), names)
    return f"{name} = {printer.symbol(branch)}"


class _Printer:
    def __init__(self, segment: Segment, names: Mapping[int, str] = MappingProxyType({})) -> None:
        """names: what is printed under a name of its own; then nothing else is."""
        self._symbols = {made: Symbol(name, (), 1) for made, name in {id(segment.start): "x", **names}.items()}
        self.statements: list[str] = []
        inside = segment.terms()
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
            inside = tuple(Symbol("norm", (Symbol(place),)) for place in term.inside)
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
    return Symbol("trained" if factor.origin == Origin.TRAINABLE else "constant")
