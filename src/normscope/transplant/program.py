"""A placement's formula as a program that stops wherever F is called, so that the model's own
forward can be F.

The formula calls its sub-layers; a model that exists calls nothing, it is followed. So the formula
is read once over values that are computed later, and cut in pieces: what each sub-layer reads, from
the state before the block and the branches so far, and the state after it.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..placement import Placement, Site, SublayerKind
from ..placement.base import State
from .later import Later, LaterEnd, LaterSublayer, NormOf, Part, UnfitFormula


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One value of a program: where it is kept, and what it is computed from there."""

    at: int
    function: Callable[..., Any] | str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """The address of a value of a program."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One block: `steps[k]` computes what sub-layer k reads, the last of them the state after the
    block.
    """

    inputs: tuple[int, ...]
    branches: tuple[int, ...]
    reads: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[tuple[_Step, ...], ...]
    size: int
    needed: tuple[tuple[int, ...], ...] = ()
    """For each k, the values computed by `steps[k]` or by earlier steps that are read again
    afterwards.
    """
    norms: tuple[tuple[Part, str], ...] = field(default=())
    """The norms, each with its role: before F, after F, outer, of a sum with F, or key, of
    attention over depth.
    """


def programs(
    placement: Placement, kinds: Sequence[SublayerKind], *, given_start: bool, given_finish: bool
) -> list[Program]:
    """Reads the formula into a program for every block of the stack; the first block has the
    formula's start and the last its finish.

    given_start, given_finish: whether the model norms the embedding, and what leaves the stack, by
    itself; then the program leaves these norms to it. Raises UnfitFormula where the formula cannot
    be followed from outside of F.
    """
    stack, made = placement.stack, []
    inputs: list[Later] = [Later("input")]
    state: State = placement.start(inputs[0], LaterEnd("start", given=given_start))
    for block in range(1, stack.blocks + 1):
        branches: list[Later] = []
        sublayers = [
            LaterSublayer(Site(kind=kind, block=block, stack=stack), branches) for kind in kinds
        ]
        state = placement.block(state, sublayers)
        called = [branch.arguments[1] for branch in branches]
        if called != list(kinds):
            raise UnfitFormula(
                f"it calls {', '.join(called) or 'no sub-layer'} where a block has "
                f"{', '.join(kinds)}"
            )
        if block == stack.blocks:
            state = placement.finish(state, LaterEnd("finish"))
            if (
                given_finish
                and state.function == "norm"
                and state.arguments[0] == ("finish", "main")
            ):
                state = state.arguments[1]
        outputs = list(leaves(state))
        made.append(_program(inputs, branches, outputs))
        inputs = [Later("input") for _ in outputs]
        state = _renewed(state, iter(inputs))
    return made


def leaves(state: State) -> Iterator[Any]:
    """The values of a state in order, those of histories one by one."""
    if isinstance(state, tuple):
        for part in state:
            yield from leaves(part)
    else:
        yield state


def _renewed(state: State, values: Iterator[Later]) -> State:
    return (
        tuple(_renewed(part, values) for part in state)
        if isinstance(state, tuple)
        else next(values)
    )


def _program(
    inputs: Sequence[Later], branches: Sequence[Later], outputs: Sequence[Later]
) -> Program:
    levels: dict[int, int] = {id(value): 0 for value in inputs}
    found: list[Later] = []
    norms: dict[Part, str] = {}
    for number, branch in enumerate(branches):
        if _level(branch.arguments[0], levels, found, norms) > number:
            raise UnfitFormula(f"{branch.arguments[1]} reads what comes of it")
        levels[id(branch)] = number + 1
    for value in outputs:
        _level(value, levels, found, norms)
    # In the formula's own order, each as soon as the branches that it is computed from are known.
    found.sort(key=lambda value: value.order)
    slots = {id(value): at for at, value in enumerate([*inputs, *branches, *found])}
    known = {slots[id(value)]: levels[id(value)] for value in (*inputs, *branches, *found)}
    last: dict[int, int] = dict.fromkeys((slots[id(value)] for value in outputs), len(branches) + 1)
    for value in found:
        for slot in _slots_in(_slotted(value.arguments, slots)):
            last[slot] = max(last.get(slot, 0), levels[id(value)])
    pieces = range(len(branches) + 1)

    def steps_of(piece: int) -> tuple[_Step, ...]:
        return tuple(
            _Step(slots[id(value)], value.function, _slotted(value.arguments, slots))
            for value in found
            if levels[id(value)] == piece
        )

    def needed_after(piece: int) -> tuple[int, ...]:
        return tuple(at for at, until in last.items() if known[at] <= piece < until)

    return Program(
        inputs=tuple(slots[id(value)] for value in inputs),
        branches=tuple(slots[id(value)] for value in branches),
        reads=tuple(slots[id(branch.arguments[0])] for branch in branches),
        outputs=tuple(slots[id(value)] for value in outputs),
        steps=tuple(steps_of(piece) for piece in pieces),
        size=len(slots),
        needed=tuple(needed_after(piece) for piece in pieces),
        norms=tuple(norms.items()),
    )


def _level(value: Any, levels: dict[int, int], found: list[Later], norms: dict[Part, str]) -> int:
    """Returns how many branches have to be known before a value can be computed; adds the values
    that it is computed from to `found`.
    """
    if isinstance(value, tuple):
        return max((_level(part, levels, found, norms) for part in value), default=0)
    if isinstance(value, NormOf):
        norms.setdefault(value.part, "key")
    if not isinstance(value, Later):
        return 0
    if id(value) not in levels:
        if value.function == "branch":
            raise UnfitFormula(f"{value.arguments[1]} comes into what an earlier sub-layer reads")
        levels[id(value)] = _level(value.arguments, levels, found, norms)
        found.append(value)
        if value.function == "norm":
            norms.setdefault(value.arguments[0], _role(value.arguments[1], value.arguments[0][0]))
    return levels[id(value)]


def _slotted(value: Any, slots: Mapping[int, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_slotted(part, slots) for part in value)
    return _Slot(slots[id(value)]) if isinstance(value, Later) else value


def _role(x: Any, kind: str) -> str:
    """Returns the role of a norm: "after" where it norms F's output alone, however scaled, "outer"
    for a sum with it, "before" where F's output has no part in it.
    """
    while isinstance(x, Later) and x.function in (operator.mul, operator.truediv):
        inner = [
            part for part in x.arguments if isinstance(part, Later) and part.function != "parameter"
        ]
        if len(inner) != 1:
            break
        x = inner[0]
    if x.function == "branch":
        return "after"
    return "outer" if _contains(x, kind) else "before"


def _contains(x: Any, kind: str) -> bool:
    ahead, seen = [x], set[int]()
    while ahead:
        one = ahead.pop()
        if id(one) in seen or not isinstance(one, tuple | Later):
            continue
        if isinstance(one, Later) and one.function == "branch" and one.arguments[1] == kind:
            return True
        seen.add(id(one))
        ahead += one if isinstance(one, tuple) else one.arguments
    return False


class Run:
    """One pass of a program over tensors."""

    def __init__(
        self,
        program: Program,
        values: Sequence[Any],
        norms: Mapping[Part, Callable[..., Any]],
        numbers: Callable[[str, Part], Any],
    ) -> None:
        """norms: as they are applied; numbers: of a kind (parameter, scheduled) and a part, its
        value.
        """
        self.program = program
        self._norms = norms
        self._numbers = numbers
        self._slots: list[Any] = [None] * program.size
        for at, value in zip(program.inputs, values, strict=True):
            self._slots[at] = value
        self.joins = 0
        self._computed = 0
        """Pieces of the program that have run."""

    def read(self) -> Any:
        """Returns what the next sub-layer reads; after the last one, the first value that leaves
        the block.
        """
        while self._computed <= self.joins:
            for step in self.program.steps[self._computed]:
                self._slots[step.at] = self._made(step)
            self._computed += 1
        last = self.joins == len(self.program.reads)
        return self._slots[self.program.outputs[0] if last else self.program.reads[self.joins]]

    def needed(self) -> list[Any]:
        """Returns the values known when the next sub-layer can read that are read again after
        it.
        """
        self.read()
        return [self._slots[at] for at in self.program.needed[self.joins]]

    def join(self, branch: Any) -> None:
        """Take F's output."""
        self._slots[self.program.branches[self.joins]] = branch
        self.joins += 1

    def outputs(self) -> list[Any]:
        """Returns the state after the block."""
        self.read()
        return [self._slots[at] for at in self.program.outputs]

    def _made(self, step: _Step) -> Any:
        if step.function == "norm":
            part, x = step.arguments
            return self._norms[part](self._value(x))
        if isinstance(step.function, str):
            return self._numbers(step.function, step.arguments[0])
        return step.function(*self._value(step.arguments))

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, _Slot):
            return self._slots[argument.at]
        if isinstance(argument, NormOf):
            return self._norms[argument.part]
        return tuple(map(self._value, argument)) if isinstance(argument, tuple) else argument


def _slots_in(argument: Any) -> Iterator[int]:
    if isinstance(argument, _Slot):
        yield argument.at
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _slots_in(part)
