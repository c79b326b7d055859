"""Formulas as a placement or a foreign model computes them, in one form in which the two can be
compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, isqrt
from operator import attrgetter
from typing import Literal

from ...placement import operations
from ...placement.base import Initial
from ..trace.graph import Factor
from ..trace.lanes import LaneWeights
from ..trace.norms import NormFunction
from ..trace.operations import Origin
from .branches import InnerPlace


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A node of a formula; the same node used twice is the same object."""

    kind: Literal[
        "source",
        "branch",
        "sum",
        "scale",
        "norm",
        "mix",
        "number",
        "other",
        "collapse",
        "connect",
        "expand",
    ]
    arguments: "tuple[Term, ...]" = ()
    at: int = -1
    """Number of the value in the trace that it stands for, a norm's gain included; -1 in a
    placement's formula.
    """
    factor: Factor | None = None
    """The factor of a scale or a number."""
    norm: NormFunction | None = None
    """The norm in a trace that a term of a norm stands for."""
    gains: tuple[Factor, ...] = ()
    """The factors of such a norm's output, one after the other, which count as a part of the
    norm.
    """
    branch: int = -1
    """The number of the sub-layer in its stack, counted from 0."""
    inside: tuple[InnerPlace, ...] = ()
    """Norms inside a branch or a mean over depth."""
    by_head: bool = False
    """True for a norm that norms parts of a token's features each on their own."""
    text: str = ""
    """The name under which a source or a branch is printed; of a mean, what its weights are made
    from beside its values.
    """
    shape: tuple[int, ...] = ()
    """The shape of a formula's parameter."""
    weights: LaneWeights | None = None
    """The weights that connect several streams in one value."""

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

    def __pow__(self, exponent: float) -> "Term":
        if self.kind != "number" or self.factor is None:
            return Term("other", (self,), text="power")
        return Term("number", factor=replace(self.factor, value=self.factor.value**exponent))

    def __getitem__(self, index: int) -> "Term":
        """Returns an entry of a parameter, or a row of it."""
        if self.factor is None or not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"a term of shape {self.shape} has no entry {index}")
        return Term(
            "number", factor=replace(self.factor, vector=len(self.shape) > 1), shape=self.shape[1:]
        )


def parameter_term(initial: Initial, shape: tuple[int, ...]) -> Term:
    """Returns a parameter of a formula, at the mean of the numbers it starts from: which they are
    does not show in a model.
    """
    return Term(
        "number", factor=Factor(_mean(initial), Origin.TRAINABLE, vector=bool(shape)), shape=shape
    )


def _mean(initial: Initial) -> float:
    return (
        fsum(map(_mean, initial)) / len(initial) if isinstance(initial, tuple) else float(initial)
    )


def as_term(value: Term | float) -> Term:
    """Returns the term itself, or a number as one."""
    return value if isinstance(value, Term) else Term("number", factor=Factor(float(value)))


def _number(value: float, *of: Factor) -> Term:
    return Term(
        "number", factor=Factor(value, max(f.origin for f in of), any(f.vector for f in of))
    )


def scaled(term: Term, factor: Factor, at: int = -1) -> Term:
    """factor · term; the term itself where the factor is 1."""
    if factor.is_constant and abs(factor.value - 1) < 1e-5:
        return term
    if term.kind == "number":
        return Term("number", factor=factor * term.factor if term.factor else factor)
    # Factors of factors are not gathered: what is multiplied must stay one value for all that use
    # it.
    return Term("scale", (term,), at, factor)


def normed(term: Term) -> Term:
    """norm(term)."""
    return Term("norm", (term,))


def gained(term: Term, *gains: Factor) -> Term:
    """Returns a norm, or a multiple of one, with further gains of that norm."""
    if term.kind == "scale":
        return replace(term, arguments=(gained(term.arguments[0], *gains),))
    return replace(term, gains=(*term.gains, *gains))


@operations.mix.register
def _mix(
    query: Term,
    values: Sequence[Term],
    key: Callable[[Term], Term],
    value: Callable[[Term], Term] | None = None,
) -> Term:
    if value is not None:
        values = [value(one) for one in values]
    keys = [term for term in ordered(key(Term("source"))) if term.kind == "norm"]
    return Term("mix", tuple(values), inside=(InnerPlace("key"),) * len(keys))


@operations.unit.register
def _unit(x: Term) -> Term:
    return normed(x)


@operations.by_head.register
def _by_head(x: Term, numbers: Term) -> Term:
    # Heads are no part of what is traced.
    return x


@operations.stopped.register
def _stopped(x: Term) -> Term:
    # What a model computes does not show where its gradients go.
    return x


def _of_number(name: str, curve: Callable[[float], float], x: Term) -> Term:
    """Returns the curve of a number; of anything else that a formula takes it of, no more than its
    name.
    """
    if x.kind != "number" or x.factor is None:
        return Term("other", (x,), text=name)
    return Term("number", factor=replace(x.factor, value=curve(x.factor.value)))


for _name, _curve in {
    "min": operations.at_most_1,
    "sigmoid": operations.sigmoid,
    "tanh": operations.tanh,
    "silu": operations.silu,
    "softplus": operations.softplus,
}.items():
    _curve.register(Term, partial(_of_number, _name, _curve))


@operations.beside.register
def _beside(x: Term, *others: Term) -> Term:
    return Term("other", (x, *others), text="joined") if others else x


@operations.joined.register
def _joined(x: Term, *others: Term, epsilon: float = 1e-6) -> Term:
    return normed(operations.beside(x, *others))


@operations.connect.register
def _connect(
    x: Term, weight: Term, bias: Term | float = 0.0, scale: Term | float = 1.0, *, name: str = ""
) -> tuple[Term, ...]:
    """Numbers of a token: they come of the model's input."""
    start = as_term(bias).factor
    factor = Factor(start.value if start else 0.0, Origin.DATA, vector=len(weight.shape) > 2)
    return tuple(Term("number", factor=factor) for _ in range(weight.shape[0]))


@operations.sinkhorn.register
def _sinkhorn(
    first: Term, logits: tuple[Term, ...], rounds: int, epsilon: float
) -> tuple[tuple[Term, ...], ...]:
    size = isqrt(len(logits))
    numbers = [
        Term("number", factor=replace(x.factor, value=1 / size, doubly_stochastic=True))
        if x.factor
        else x
        for x in logits
    ]
    return tuple(tuple(numbers[row * size : (row + 1) * size]) for row in range(size))


def ordered(
    end: Term,
    start: Term | None = None,
    *,
    arguments: Callable[[Term], tuple[Term, ...]] = attrgetter("arguments"),
) -> list[Term]:
    """Returns all that a term is made of, each after its own arguments; the term itself is last.

    start: one that is left out, with what it is made of. arguments: what to take a term to be made
    of.
    """
    found: dict[int, Term] = {} if start is None else {id(start): start}
    if id(end) in found:
        return []
    todo: list[tuple[Term, Iterator[Term]]] = [(end, iter(arguments(end)))]
    while todo:
        term, rest = todo[-1]
        for argument in rest:
            if id(argument) not in found:
                todo.append((argument, iter(arguments(argument))))
                break
        else:
            found[id(term)] = term
            todo.pop()
    return list(found.values())[start is not None :]
