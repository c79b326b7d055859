"""A placement's formula over symbols: expressions that print, and a record of the norms and
parameters asked for.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .base import Constant, Initial, Site, StackShape

_PRECEDENCE = {"+": 1, "-": 1, "weighed": 1, "·": 2, "/": 2, "^": 3}
_SHOWN_WEIGHED = 3
"""A weighted sum of more values prints its first, and those after the third."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A node of a formula: a name, an operator or an application; `width` is the size of its last
    dimension.
    """

    op: str
    arguments: "tuple[Symbol, ...]" = ()
    width: int = 0
    applies_f: bool = False
    """True of the application of a sub-layer."""
    values: "tuple[Symbol, ...]" = ()
    """The values that attention over depth reads, each on its own; printed, they share one name."""
    shape: tuple[int, ...] = ()
    """The shape of a parameter; for a number of a token, () or that of one number for each
    feature.
    """
    meaning: str = ""
    """The expression of a number of a token, with its neighbours, which share a name."""
    reads: "tuple[Symbol, ...]" = ()
    """The values from which a number of a token is computed."""

    def __str__(self) -> str:
        if not self.arguments:
            return self.op
        if self.op not in _PRECEDENCE:
            return f"{self.op}({', '.join(map(str, self.arguments))})"
        if self.op == "weighed":
            shown = list(map(str, self.addends()))
            if len(shown) > _SHOWN_WEIGHED:
                one_history = self.arguments[1].same_name(self.arguments[3])
                shown = [shown[0], "…", *(shown[-1:] if one_history else shown[_SHOWN_WEIGHED:])]
            return " + ".join(shown)
        left, right = self.arguments
        if self.op == "^":
            return (
                f"√({left})"
                if right.op == "0.5"
                else f"{left._inside('^', 1)}^{right._inside('^', 0)}"
            )
        # The right operand of - and / needs brackets at equal precedence too.
        return f"{left._inside(self.op, 0)} {self.op} {right._inside(self.op, self.op in '-/')}"

    def same_name(self, other: "Symbol") -> bool:
        """Tells whether both are the same name standing alone, such as a stream that a block passes
        on.
        """
        return self.op == other.op and not self.arguments and not other.arguments

    @property
    def shared_name(self) -> str:
        """The name of a number of a token without its own place, which its neighbours share."""
        return re.sub(r"_\d+$", "", self.op)

    def addends(self) -> "Iterator[Symbol]":
        """Yields the addends of a weighted sum: each weight times its value."""
        for weight, value in zip(self.arguments[::2], self.arguments[1::2], strict=True):
            yield weight * value

    def __getitem__(self, index: int) -> "Symbol":
        """Returns an entry of a parameter, or a row of it, printed counted from 1."""
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"{self.op} of shape {self.shape} has no entry {index}")
        between = "" if re.search(r"_\d+$", self.op) else "_"
        return Symbol(f"{self.op}{between}{index + 1}", shape=self.shape[1:])

    def _inside(self, outer: str, strict: int) -> str:
        tighter = _PRECEDENCE.get(self.op, 9) if self.arguments else 9
        return f"({self})" if tighter < _PRECEDENCE[outer] + strict else str(self)

    def _with(self, op: str, other: "Symbol | float", *, swapped: bool = False) -> "Symbol":
        node = other if isinstance(other, Symbol) else number(other)
        return Symbol(op, (node, self) if swapped else (self, node), self.width or node.width)

    def __add__(self, other: "Symbol | float") -> "Symbol":
        return self._with("+", other)

    def __radd__(self, other: float) -> "Symbol":
        return self._with("+", other, swapped=True)

    def __sub__(self, other: "Symbol | float") -> "Symbol":
        return self._with("-", other)

    def __rsub__(self, other: float) -> "Symbol":
        return self._with("-", other, swapped=True)

    def __mul__(self, other: "Symbol | float") -> "Symbol":
        return self._with("·", other)

    def __rmul__(self, other: float) -> "Symbol":
        return self._with("·", other, swapped=True)

    def __truediv__(self, other: "Symbol | float") -> "Symbol":
        return self._with("/", other)

    def __pow__(self, exponent: "Symbol | float") -> "Symbol":
        return self._with("^", exponent)


def number(value: float) -> Symbol:
    """Returns a number as a symbol: under its name where it has one, with four digits where it has
    none.
    """
    return Symbol(value.text if isinstance(value, Constant) else f"{value:.4g}")


SymbolState = Symbol | tuple[Symbol, ...]
"""The stream of a formula, or several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """A trainable number of a formula, or a tensor of that shape.

    Raises ValueError where initial numbers are not of the shape, or `std` is negative.
    """

    initial: Initial
    shape: tuple[int, ...]
    std: float = 0.0
    shared_by_block: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.initial, tuple) and _shape(self.initial) != self.shape:
            raise ValueError(f"a parameter of shape {self.shape} cannot start from {self.initial}")
        if not self.std >= 0:
            raise ValueError(
                f"the std of a parameter's first values must not be negative, got {self.std}"
            )


def _shape(numbers: Initial) -> tuple[int, ...]:
    """Returns the shape of nested tuples; (-1,) stands for rows that differ."""
    if not isinstance(numbers, tuple):
        return ()
    rows = {_shape(row) for row in numbers}
    return (len(numbers), *rows.pop()) if len(rows) == 1 else (-1,)


class _SymbolNorms:
    """Records every norm a formula asks for, with the width it normalises: that of x, or of one of
    its groups.
    """

    def __init__(self) -> None:
        self.widths: dict[str, int] = {}
        self.grouped: set[str] = set()
        self.uses = 0
        """The number of norms that were applied, of any kind."""

    def __call__(self, x: Symbol, /, *, groups: int | None = None) -> Symbol:
        return self._apply("main", "norm", x, groups)

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda x, groups=None: self._apply(name, f"norm_{name}", x, groups)

    def _apply(self, name: str, printed: str, x: Symbol, groups: int | None) -> Symbol:
        width, rest = divmod(x.width, groups or 1)
        if rest:
            raise ValueError(
                f"norm {name!r} cannot divide a width of {x.width} into {groups} groups"
            )
        if groups is not None:
            self.grouped.add(name)
        if self.widths.setdefault(name, width) != width:
            raise ValueError(
                f"norm {name!r} is used at widths {self.widths[name]} and {width}; give them two "
                "names"
            )
        self.uses += 1
        return Symbol(printed, (x,), x.width)


@dataclass(slots=True)
class SymbolEnd:
    """An end of a stack as a symbol: records norms, parameters and scheduled numbers."""

    norm: _SymbolNorms = field(default_factory=_SymbolNorms)
    parameters: dict[str, ParameterSpec] = field(default_factory=dict)
    schedules: dict[str, float] = field(default_factory=dict)

    def parameter(
        self, name: str, *, initial: Initial, shape: tuple[int, ...] = (), std: float = 0.0
    ) -> Symbol:
        self.parameters[name] = ParameterSpec(initial=initial, shape=shape, std=std)
        return Symbol(name, shape=shape)

    def scheduled(self, name: str, *, initial: float) -> Symbol:
        self.schedules[name] = initial
        return Symbol(name)


@dataclass(slots=True, kw_only=True)
class SymbolSublayer(SymbolEnd):
    """F as a symbol. `inner_widths`: the width at each place inside F where a function may be
    applied.
    """

    site: Site
    inner_widths: dict[str, int]
    printed: str = "F"
    used_places: set[str] = field(default_factory=set)
    """The places within F where the formula applies a function."""

    def __call__(self, x: Symbol, /, **inside: Callable[[Symbol], Symbol]) -> Symbol:
        refuse_unknown_places(self.site, inside, self.inner_widths)
        self.used_places |= set(inside)
        inner = tuple(
            function(Symbol(place, (), self.inner_widths[place]))
            for place, function in inside.items()
        )
        return Symbol(self.printed, (x, *inner), x.width, applies_f=True)

    def parameter(self, name: str, *, shared_by_block: bool = False, **spec: Any) -> Symbol:
        made = SymbolEnd.parameter(self, name, **spec)
        self.parameters[name] = replace(self.parameters[name], shared_by_block=shared_by_block)
        return made


def refuse_unknown_places(site: Site, asked: Any, known: Any) -> None:
    """Raise ValueError where a formula applies a function at a place that this kind of F does not
    have.
    """
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise ValueError(
            f"{site.kind} has no place {', '.join(unknown)} to apply a function; it has "
            f"{', '.join(sorted(known))}"
        )


def symbol_sublayer(site: Site, printed: str = "F") -> SymbolSublayer:
    """F of a stack's sub-layer, with the places inside it."""
    stack: StackShape = site.stack
    if site.kind == "feed_forward":
        # Where nobody gave the feed-forward's width, nothing is built from this reading: any width
        # prints the same.
        inner = dict.fromkeys(("hidden", "output"), stack.ffn_width or stack.width)
    else:
        inner = dict.fromkeys(("query", "output"), stack.query_width)
        inner |= dict.fromkeys(("key", "value"), stack.key_value_width)
    return SymbolSublayer(site=site, inner_widths=inner, printed=printed)
