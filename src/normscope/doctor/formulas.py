"""An observed formula as text, in the words of the registry's own."""

from ..placement.symbol import Symbol
from ..placement.symbol import number as number_symbol
from .graph import Factor
from .term import Segment, Term, ordered
from .trace import Origin


def formula_text(segment: Segment) -> str:
    """x ← …, after one statement for each value that is used twice, as a = …, and without what stands before x."""
    printer = _Printer(segment)
    statements = [*printer.statements, f"x ← {printer.symbol(segment.end)}"]
    return "; ".join(statements)


class _Printer:
    def __init__(self, segment: Segment) -> None:
        self._symbols: dict[int, Symbol] = {id(segment.start): Symbol("x", (), 1)}
        self.statements: list[str] = []
        inside = _since(segment)
        uses: dict[int, int] = {}
        for term in inside:
            for argument in term.arguments:
                uses[id(argument)] = uses.get(id(argument), 0) + 1
        for term in inside:
            made = self._made(term)
            if uses.get(id(term), 0) > 1 and term.kind != "source":
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


def _since(segment: Segment) -> list[Term]:
    """What a segment computes, in order, without what comes before its start."""
    before = {id(term) for term in ordered(segment.start)}
    return [term for term in ordered(segment.end) if id(term) not in before]


def _factor(factor: Factor) -> Symbol:
    if factor.origin == Origin.CONSTANT and not factor.vector:
        return number_symbol(factor.value)
    return Symbol("trained" if factor.origin == Origin.TRAINABLE else "constant")
