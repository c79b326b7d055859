"""A placement's formula as a program that stops wherever F is called, so that the model's own
forward can be F.

The formula calls its sub-layers; a model that exists calls nothing, it is followed. So the formula
is read once over values that are computed later, and cut in pieces: what each sub-layer reads, from
the state before the block and the branches so far, and the state after it.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import isqrt
from typing import Any

from ..placement import Placement, Site, SublayerKind, operations
from ..placement.base import Initial, State

Part = tuple[str, str]
"""A place of a block, such as attention, start or finish, and the name of a norm or a number of it
there.
"""


class UnfitFormula(ValueError):
    """A formula asks for what cannot be followed in a foreign model."""


_Method = Callable[["_Later", Any], "_Later"]


def _of_two(function: Callable[..., Any]) -> tuple[_Method, _Method]:
    """The methods by which a value stands on the left and on the right of an operator."""
    return lambda self, other: _Later(function, (self, other)), lambda self, other: _Later(
        function, (other, self)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Later:
    """A value that is computed when the model runs: a function of values and constants."""

    function: Callable[..., Any] | str
    """What computes it; "input", "branch", "norm", "parameter" and "scheduled" are the model's."""
    arguments: tuple[Any, ...] = ()
    shape: tuple[int, ...] = ()
    """Of a parameter."""
    order: int = field(default_factory=count().__next__)
    """Its place among all that a formula computes."""

    __add__, __radd__ = _of_two(operator.add)
    __sub__, __rsub__ = _of_two(operator.sub)
    __mul__, __rmul__ = _of_two(operator.mul)
    __truediv__ = _of_two(operator.truediv)[0]
    __pow__ = _of_two(operator.pow)[0]

    def __getitem__(self, index: int) -> "_Later":
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"a value of shape {self.shape} has no entry {index}")
        return _Later(operator.getitem, (self, index), self.shape[1:])


@dataclass(frozen=True, slots=True)
class _NormOf:
    """A norm of the formula, which also stands for itself where attention over depth is given it
    for its keys.
    """

    part: Part

    def __call__(self, x: _Later, /, *, groups: int | None = None) -> _Later:
        if groups is not None:
            raise UnfitFormula("it norms parts of the stream each on their own")
        return _Later("norm", (self.part, x))


@dataclass(frozen=True, slots=True)
class _LaterNorms:
    """The norms of one place. `given`: those that the model applies itself, outside of what is
    followed.
    """

    place: str
    given: bool = False

    def __call__(self, x: _Later, /, *, groups: int | None = None) -> _Later:
        return x if self.given else _NormOf((self.place, "main"))(x, groups=groups)

    def __getattr__(self, name: str) -> _NormOf:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NormOf((self.place, name))


class _LaterEnd:
    """An end of a stack."""

    def __init__(self, place: str, *, given: bool = False) -> None:
        self.place, self.norm = place, _LaterNorms(place, given)

    def parameter(
        self, name: str, *, initial: Initial, shape: tuple[int, ...] = (), std: float = 0.0
    ) -> _Later:
        return _Later("parameter", ((self.place, name),), shape)

    def scheduled(self, name: str, *, initial: float) -> _Later:
        return _Later("scheduled", ((self.place, name),))


class _LaterSublayer(_LaterEnd):
    """F, which the model computes once it has what F reads."""

    def __init__(self, site: Site, branches: list[_Later]) -> None:
        super().__init__(site.kind)
        self.site, self._branches = site, branches

    def __call__(self, x: _Later, /, **inside: Callable[[Any], Any]) -> _Later:
        if inside:
            raise UnfitFormula(
                f"it applies functions within {self.site.kind} ({', '.join(sorted(inside))})"
            )
        self._branches.append(_Later("branch", (x, self.site.kind)))
        return self._branches[-1]

    def parameter(
        self, name: str, *, shape: tuple[int, ...] = (), shared_by_block: bool = False, **spec: Any
    ) -> _Later:
        return _Later("parameter", (("block" if shared_by_block else self.place, name),), shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One value of a program: where it is kept, and what it is computed from there."""

    at: int
    function: Callable[..., Any] | str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a value of a program is kept."""

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
    """Of what `steps[k]` and those before it have computed, what is read again after them."""
    norms: tuple[tuple[Part, str], ...] = field(default=())
    """Every norm, with its role: before F, after F, outer, of a sum with F, or key, of attention
    over depth.
    """


def programs(
    placement: Placement, kinds: Sequence[SublayerKind], *, given_start: bool, given_finish: bool
) -> list[Program]:
    """Every block of the stack, the first with the formula's start and the last with its finish.

    given_start, given_finish: whether the model norms the embedding, and what leaves the stack, by
    itself; then the program leaves these norms to it. Raises UnfitFormula where the formula cannot
    be followed from outside of F.
    """
    stack, made = placement.stack, []
    inputs: list[_Later] = [_Later("input")]
    state: State = placement.start(inputs[0], _LaterEnd("start", given=given_start))
    for block in range(1, stack.blocks + 1):
        branches: list[_Later] = []
        sublayers = [
            _LaterSublayer(Site(kind=kind, block=block, stack=stack), branches) for kind in kinds
        ]
        state = placement.block(state, sublayers)
        called = [branch.arguments[1] for branch in branches]
        if called != list(kinds):
            raise UnfitFormula(
                f"it calls {', '.join(called) or 'no sub-layer'} where a block has "
                f"{', '.join(kinds)}"
            )
        if block == stack.blocks:
            state = placement.finish(state, _LaterEnd("finish"))
            if (
                given_finish
                and state.function == "norm"
                and state.arguments[0] == ("finish", "main")
            ):
                state = state.arguments[1]
        outputs = list(leaves(state))
        made.append(_program(inputs, branches, outputs))
        inputs = [_Later("input") for _ in outputs]
        state = _renewed(state, iter(inputs))
    return made


def leaves(state: State) -> Iterator[Any]:
    """The values of a state in order, those of histories one by one."""
    if isinstance(state, tuple):
        for part in state:
            yield from leaves(part)
    else:
        yield state


def _renewed(state: State, values: Iterator[_Later]) -> State:
    return (
        tuple(_renewed(part, values) for part in state)
        if isinstance(state, tuple)
        else next(values)
    )


def _program(
    inputs: Sequence[_Later], branches: Sequence[_Later], outputs: Sequence[_Later]
) -> Program:
    levels: dict[int, int] = {id(value): 0 for value in inputs}
    found: list[_Later] = []
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
    return Program(
        inputs=tuple(slots[id(value)] for value in inputs),
        branches=tuple(slots[id(value)] for value in branches),
        reads=tuple(slots[id(branch.arguments[0])] for branch in branches),
        outputs=tuple(slots[id(value)] for value in outputs),
        steps=tuple(
            tuple(
                _Step(slots[id(value)], value.function, _slotted(value.arguments, slots))
                for value in found
                if levels[id(value)] == piece
            )
            for piece in range(len(branches) + 1)
        ),
        size=len(slots),
        needed=tuple(
            tuple(at for at, until in last.items() if known[at] <= piece < until)
            for piece in range(len(branches) + 1)
        ),
        norms=tuple(norms.items()),
    )


def _level(value: Any, levels: dict[int, int], found: list[_Later], norms: dict[Part, str]) -> int:
    """How many branches have to be known before a value can be computed; what it is computed from
    is found too.
    """
    if isinstance(value, tuple):
        return max((_level(part, levels, found, norms) for part in value), default=0)
    if isinstance(value, _NormOf):
        norms.setdefault(value.part, "key")
    if not isinstance(value, _Later):
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
    return _Slot(slots[id(value)]) if isinstance(value, _Later) else value


def _role(x: Any, kind: str) -> str:
    """What a norm of a sub-layer norms: F's output alone, however scaled, a sum with it, or what
    has none of it.
    """
    while isinstance(x, _Later) and x.function in (operator.mul, operator.truediv):
        inner = [
            part
            for part in x.arguments
            if isinstance(part, _Later) and part.function != "parameter"
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
        if id(one) in seen or not isinstance(one, tuple | _Later):
            continue
        if isinstance(one, _Later) and one.function == "branch" and one.arguments[1] == kind:
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
        self.program, self._norms, self._numbers = program, norms, numbers
        self._slots: list[Any] = [None] * program.size
        for at, value in zip(program.inputs, values, strict=True):
            self._slots[at] = value
        self.joins = 0
        self._computed = 0
        """Pieces of the program that have run."""

    def read(self) -> Any:
        """What the next sub-layer reads; after the last one, the first of what leaves the block."""
        while self._computed <= self.joins:
            for step in self.program.steps[self._computed]:
                self._slots[step.at] = self._made(step)
            self._computed += 1
        last = self.joins == len(self.program.reads)
        return self._slots[self.program.outputs[0] if last else self.program.reads[self.joins]]

    def needed(self) -> list[Any]:
        """Of what is known once the next sub-layer can read, all that is read again after it."""
        self.read()
        return [self._slots[at] for at in self.program.needed[self.joins]]

    def join(self, branch: Any) -> None:
        """Take F's output."""
        self._slots[self.program.branches[self.joins]] = branch
        self.joins += 1

    def outputs(self) -> list[Any]:
        """The state after the block."""
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
        if isinstance(argument, _NormOf):
            return self._norms[argument.part]
        return tuple(map(self._value, argument)) if isinstance(argument, tuple) else argument


def _slots_in(argument: Any) -> Iterator[int]:
    if isinstance(argument, _Slot):
        yield argument.at
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _slots_in(part)


def _mix(query: _Later, values: Sequence[_Later], key: Any, value: Any = None) -> _Later:
    return _Later(operations.mix, (query, tuple(values), key, value))


def _joined(x: _Later, *others: _Later, epsilon: float = 1e-6) -> _Later:
    return _Later(partial(operations.joined, epsilon=epsilon), (x, *others))


def _connect(
    x: _Later, weight: _Later, bias: Any = 0.0, scale: Any = 1.0, *, name: str = ""
) -> tuple[_Later, ...]:
    whole = _Later(operations.connect, (x, weight, bias, scale))
    return tuple(_Later(operator.getitem, (whole, row)) for row in range(weight.shape[0]))


def _sinkhorn(
    first: _Later, logits: tuple[_Later, ...], rounds: int, epsilon: float
) -> tuple[tuple[_Later, ...], ...]:
    whole, size = _Later(operations.sinkhorn, (first, logits, rounds, epsilon)), isqrt(len(logits))
    rows = [_Later(operator.getitem, (whole, row)) for row in range(size)]
    return tuple(
        tuple(_Later(operator.getitem, (row, column)) for column in range(size)) for row in rows
    )


def _later(operation: Callable[..., Any]) -> Callable[..., _Later]:
    return lambda *arguments: _Later(operation, arguments)


for _operation in (
    *(operations.unit, operations.at_most_1, operations.sigmoid, operations.tanh, operations.silu),
    *(operations.stopped, operations.by_head, operations.beside),
):
    _operation.register(_Later, _later(_operation))
operations.mix.register(_Later, _mix)
operations.joined.register(_Later, _joined)
operations.connect.register(_Later, _connect)
operations.sinkhorn.register(_Later, _sinkhorn)
