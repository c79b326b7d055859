"""A placement's formula as text, printed from the formula itself.

Values of F that come several times, and numbers of a token, are named before they are used.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from string import ascii_lowercase
from typing import NamedTuple

from .base import Placement, StackShape, State
from .reading import Step, named_parts, parts, walk
from .symbol import Symbol, SymbolEnd, SymbolState, symbol_sublayer


def meanings(expressions: Sequence[Symbol]) -> list[str]:
    """`pre = σ(…)` for all numbers of a token that the expressions use, once for each name that
    they share.
    """
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
class _Naming:
    """Gives letters to values in which F stands, across the assignments of one block."""

    letters: Iterator[str] = field(default_factory=lambda: iter(ascii_lowercase))
    named: dict[int, Symbol] = field(default_factory=dict)
    """id of a value -> the letter that stands for it."""

    def common(self, expressions: Sequence[Symbol]) -> list[str]:
        """Returns a statement for each value that is used in more than two places of all
        expressions together.
        """
        uses, nodes = self._uses(expressions)
        whole = {id(expression) for expression in expressions}
        return self._name(
            [node for key, node in nodes.items() if uses[key] > 2 and key not in whole]
        )

    def assignment(self, name: str, expression: Symbol) -> list[str]:
        """Returns the assignment, after a statement for each value that this expression uses
        twice.
        """
        uses, nodes = self._uses([expression])
        found = self._name(
            [node for key, node in nodes.items() if uses[key] > 1 and node is not expression]
        )
        return [*found, f"{name} ← {self._rewritten(expression)}"]

    def _uses(self, expressions: Sequence[Symbol]) -> tuple[dict[int, int], dict[int, Symbol]]:
        """Counts the uses of each value, and lists the values that have F in them, each after its
        own.
        """
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
        return replace(
            node, arguments=tuple(self._rewritten(argument) for argument in node.arguments)
        )


DEFAULT_STACK = StackShape(
    kind="encoder", width=512, ffn_width=2048, heads=8, encoder_blocks=6, decoder_blocks=6
)


def shown_stack(placement: type[Placement]) -> StackShape:
    """Returns the stack that a formula is printed for where none is given: that of the first model
    it is defined for, or the encoder of an encoder-decoder.
    """
    if DEFAULT_STACK.model in placement.models:
        return DEFAULT_STACK
    if placement.models[0] == "decoder-only":
        return replace(DEFAULT_STACK, kind="decoder", encoder_blocks=0)
    return replace(DEFAULT_STACK, decoder_blocks=0)


class _Change(NamedTuple):
    """A part of a state that changes."""

    name: str
    was: SymbolState
    now: SymbolState


_Changes = list[_Change]
_Writer = Callable[[_Changes, bool], list[str]]
"""Statements for them; True at the start of a stack."""


def formula(placement: type[Placement], stack: StackShape | None = None) -> str:
    """Returns the formula of one sub-layer, or of the whole block where the placement reaches
    across sub-layers.

    Where blocks differ, each kind with the blocks it holds for; the stack's ends where they add
    something.
    """
    return "; ".join(lines(placement, stack))


def lines(placement: type[Placement], stack: StackShape | None = None) -> list[str]:
    """Returns the statements of `formula`."""
    return _lines(placement, stack or shown_stack(placement), _WHOLE)


def brief_lines(placement: type[Placement], stack: StackShape | None = None) -> list[str]:
    """Returns fewer lines than `lines`: without the expressions of a token's numbers, and for more
    than two streams or kinds of block the first, with the number of those left out.
    """
    return _lines(placement, stack or shown_stack(placement), _BRIEF)


def _lines(placement: type[Placement], stack: StackShape, length: "_Length") -> list[str]:
    instance = placement(stack)
    state = started = instance.start(Symbol("x", (), stack.width), SymbolEnd())
    by_text: dict[tuple[str, ...], list[int]] = {}
    for block, step in enumerate(walk(instance, started), 1):
        by_text.setdefault(_block(instance, step, length.writes), []).append(block)
        state = step.after
    found = length.writes(
        _changed(parts(Symbol("x")) * len(parts(started)), started, instance), True
    )
    shown = length.shown(len(by_text))
    for text, blocks in islice(by_text.items(), shown):
        where = (
            f"block{'s' if len(blocks) > 1 else ''} {ranges(blocks)}: " if len(by_text) > 1 else ""
        )
        found += [where + line for line in text]
    if shown < len(by_text):
        found.append(f"and {len(by_text) - shown} more kinds of block")
    output = instance.finish(named_parts(state, instance), SymbolEnd())
    if output.arguments:
        found += [*length.defined([output]), f"y = {output}"]
    return found


def _block(placement: Placement, step: Step, writes: _Writer) -> tuple[str, ...]:
    """Returns the assignments of one block."""
    if type(placement).block is not Placement.block:
        return tuple(writes(_changed(parts(step.before), step.after, placement), False))
    by_kind = {}
    for sublayer in step.sublayers:
        after = placement.block(step.before, [symbol_sublayer(sublayer.site)])
        by_kind[sublayer.site.kind] = "; ".join(
            writes(_changed(parts(step.before), after, placement), False)
        )
    if len(set(by_kind.values())) == 1:
        return tuple(set(by_kind.values()))
    return tuple(f"{kind}: {text}" for kind, text in by_kind.items())


def _changed(old: Sequence[SymbolState], after: State, placement: Placement) -> _Changes:
    changed = []
    for name, was, now in zip(placement.streams, old, parts(after), strict=True):
        if isinstance(now, Symbol) and isinstance(was, Symbol):
            changes = not now.same_name(was)
        else:
            changes = isinstance(now, tuple)
        if changes:
            changed.append(_Change(name, was, now))
    return changed


def _whole(changed: _Changes) -> list[Symbol]:
    return [change.now for change in changed if isinstance(change.now, Symbol)]


def _first_assignments(changed: _Changes, first: bool) -> list[str]:
    shown = _first_of_many(len(changed))
    left = len(changed) - shown
    return [*_written(changed[:shown], first), *([f"and {left} streams more"] if left else [])]


def _first_of_many(count: int) -> int:
    """Returns how many of so many kinds are shown: both of two, and the first of more."""
    return count if count <= 2 else 1


def _assignments(changed: _Changes, first: bool) -> list[str]:
    """Returns one assignment for each part that changes, after the numbers of a token that they
    have.
    """
    return meanings(_whole(changed)) + _written(changed, first)


def _written(changed: _Changes, first: bool) -> list[str]:
    """Returns the assignments, after what they have in common; a history gains what is appended."""
    naming = _Naming()
    found = naming.common(_whole(changed))
    for name, was, now in changed:
        if isinstance(now, Symbol):
            found += naming.assignment(name, now)
            continue
        added = [str(value) for value in now if not value.same_name(Symbol(name))]
        if isinstance(was, tuple) and len(now) == len(was):
            found += [f"last {name} ← {value}" for value in added]
        else:
            found.append(f"{name} ← [{', '.join([*([] if first else [name]), *added])}]")
    return found


@dataclass(frozen=True, slots=True)
class _Length:
    """The extent to which a formula is printed."""

    defined: Callable[[Sequence[Symbol]], list[str]]
    """Statements for what an output is made of."""
    writes: _Writer
    shown: Callable[[int], int]
    """The number of kinds of block that are printed, of so many."""


_WHOLE = _Length(meanings, _assignments, lambda count: count)
_BRIEF = _Length(lambda _: [], _first_assignments, _first_of_many)


def ranges(blocks: list[int]) -> str:
    """[1, 2, 3, 6] -> "1-3, 6"."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
