"""The constants in a printed formula, and what remains of it without them."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"\s*(?:(?P<number>\d[\d.]*(?:e[+-]?\d+)?)|(?P<name>[^\W\d]\w*(?: by head)?)|(?P<sign>[()+,·-]))")


@dataclass(frozen=True, slots=True)
class Read:
    """A formula with a 1 wherever a value could be multiplied with a number and is not."""

    structure: str
    factors: tuple[float, ...]
    """In the order in which their places, each a #, stand in `structure`."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A sum (its name is +), an application, or a word alone; each argument with the number it is multiplied with."""

    name: str
    arguments: "tuple[tuple[float, _Node], ...]" = ()

    @property
    def structure(self) -> str:
        inside = ", ".join(f"#{argument.structure}" for _, argument in self.arguments)
        return f"{self.name}({inside})" if inside else self.name

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(number for factor, argument in self.arguments for number in (factor, *argument.factors))


def read_formula(formula: str) -> Read | None:
    """A formula "x ← …" of one statement, as `formula_text` prints it; None of what is not in these words.

    Addends are put in one order, and what a norm takes in is divided by its branch's number, which a norm does not see.
    """
    tokens, rest = [], formula.removeprefix("x ← ").rstrip()
    while rest:
        found = _TOKEN.match(rest)
        if found is None:
            return None
        tokens.append(found.group().strip())
        rest = rest[found.end() :]
    reader = _Reader(tokens)
    try:
        whole = _Node("=", (reader.sum(),))
    except (IndexError, ValueError):
        return None
    return None if reader.tokens else Read(whole.structure, whole.factors)


@dataclass(slots=True)
class _Reader:
    """Takes tokens from the front; raises ValueError or IndexError where they are no formula."""

    tokens: list[str]

    def _is_next(self, *signs: str) -> bool:
        return bool(self.tokens) and self.tokens[0] in signs

    def _close(self) -> None:
        if self.tokens.pop(0) != ")":
            raise ValueError("a bracket is not closed")

    def sum(self) -> tuple[float, _Node]:
        addends = [self._product()]
        while self._is_next("+", "-"):
            sign = -1.0 if self.tokens.pop(0) == "-" else 1.0
            factor, node = self._product()
            addends.append((sign * factor, node))
        if len(addends) == 1:
            return addends[0]
        return 1.0, _Node("+", tuple(sorted(addends, key=lambda addend: addend[1].structure)))

    def _product(self) -> tuple[float, _Node]:
        factor, words = 1.0, []
        while len(self.tokens) > 1 and self.tokens[1] == "·":
            token = self.tokens.pop(0)
            self.tokens.pop(0)
            if token[0].isdigit():
                factor *= float(token)
            else:
                words.append(token)
        inner, node = self._value()
        for word in reversed(words):
            inner, node = 1.0, _Node(word, ((inner, node),))
        return factor * inner, node

    def _value(self) -> tuple[float, _Node]:
        token = self.tokens.pop(0)
        if token == "(":
            found = self.sum()
            self._close()
            return found
        if not self._is_next("("):
            return 1.0, _Node(token)
        self.tokens.pop(0)
        arguments = [self.sum()]
        while self._is_next(","):
            self.tokens.pop(0)
            arguments.append(self.sum())
        self._close()
        if token == "norm":
            arguments = [(1.0, _relative(node)) for _, node in arguments]
        return 1.0, _Node(token, tuple(arguments))


def _relative(node: _Node) -> _Node:
    """x + F(x) as a norm sees it, whatever both are multiplied with: the number of the branch is 1."""
    branches = [factor for factor, addend in node.arguments if addend.name != "x"]
    if node.name != "+" or len(branches) != 1 or not branches[0]:
        return node
    return _Node("+", tuple((factor / branches[0], addend) for factor, addend in node.arguments))
