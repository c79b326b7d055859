"""What a printed formula names before it is used: values of F that come several times, and numbers of a token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase

from .symbol import Symbol


def meanings(expressions: Sequence[Symbol]) -> list[str]:
    """`pre = σ(…)` for all numbers of a token that the expressions use, once for each name that they share."""
    seen: set[int] = set()

    def visit(node: Symbol) -> Iterator[str]:
        if id(node) in seen:
            return
        seen.add(id(node))
        if node.meaning:
            for number in node.reads:
                if number.meaning:
                    yield from visit(number)
            yield f"{node.shared_name} = {node.meaning}"
        for argument in node.arguments:
            yield from visit(argument)

    return list(dict.fromkeys(text for expression in expressions for text in visit(expression)))


@dataclass(slots=True)
class Naming:
    """Gives letters to values in which F stands, across the assignments of one block."""

    letters: Iterator[str] = field(default_factory=lambda: iter(ascii_lowercase))
    named: dict[int, Symbol] = field(default_factory=dict)
    """id of a value -> the letter that stands for it."""

    def common(self, expressions: Sequence[Symbol]) -> list[str]:
        """A statement for each value that is used in more than two places of all expressions together."""
        uses, nodes = self._uses(expressions)
        whole = {id(expression) for expression in expressions}
        return self._name([node for key, node in nodes.items() if uses[key] > 2 and key not in whole])

    def assignment(self, name: str, expression: Symbol) -> list[str]:
        """The assignment, after a statement for each value that this expression uses twice."""
        uses, nodes = self._uses([expression])
        found = self._name([node for key, node in nodes.items() if uses[key] > 1 and node is not expression])
        return [*found, f"{name} ← {self._rewritten(expression)}"]

    def _uses(self, expressions: Sequence[Symbol]) -> tuple[dict[int, int], dict[int, Symbol]]:
        """How often each value is used, and the values that have F in them, each after its own."""
        uses: dict[int, int] = {}
        nodes: dict[int, Symbol] = {}

        def visit(node: Symbol) -> bool:
            """True where F stands in it."""
            uses[id(node)] = uses.get(id(node), 0) + 1
            if id(node) in nodes or not node.arguments or id(node) in self.named:
                return id(node) in nodes
            with_f = node.applies_f
            for argument in node.arguments:
                with_f |= visit(argument)
            if with_f:
                nodes[id(node)] = node
            return with_f

        for expression in expressions:
            visit(expression)
        return uses, nodes

    def _name(self, nodes: Sequence[Symbol]) -> list[str]:
        found = []
        for node, letter in zip(nodes, self.letters, strict=False):
            found.append(f"{letter} = {self._rewritten(node)}")
            self.named[id(node)] = Symbol(letter, (), node.width)
        return found

    def _rewritten(self, node: Symbol) -> Symbol:
        if id(node) in self.named:
            return self.named[id(node)]
        return replace(node, arguments=tuple(self._rewritten(argument) for argument in node.arguments))
