"""Read a placement's formula with symbols: print it, and learn which norms and parameters it asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import Placement, Site, StackShape, State, SublayerKind

_PRECEDENCE = {"+": 1, "-": 1, "·": 2, "/": 2}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A node of a formula: a name, an operator or an application; `width` is the size of its last dimension."""

    op: str
    arguments: "tuple[Symbol, ...]" = ()
    width: int = 0

    def __str__(self) -> str:
        if not self.arguments:
            return self.op
        if self.op not in _PRECEDENCE:
            return f"{self.op}({', '.join(map(str, self.arguments))})"
        left, right = self.arguments
        # The right operand of - and / needs brackets at equal precedence too.
        return f"{left._inside(self.op, 0)} {self.op} {right._inside(self.op, self.op in '-/')}"

    def _inside(self, outer: str, strict: int) -> str:
        tighter = _PRECEDENCE.get(self.op, 9) if self.arguments else 9
        return f"({self})" if tighter < _PRECEDENCE[outer] + strict else str(self)

    def _with(self, op: str, other: "Symbol | float", *, swapped: bool = False) -> "Symbol":
        node = other if isinstance(other, Symbol) else Symbol(f"{other:.4g}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """A trainable number of a formula, or a vector of the stack's width."""

    initial: float
    per_feature: bool
    shared_by_block: bool


class SymbolNorms:
    """Records every norm a formula asks for, with the width it is applied to."""

    def __init__(self) -> None:
        self.widths: dict[str, int] = {}

    def __call__(self, x: Symbol) -> Symbol:
        return self._apply("main", "norm", x)

    def __getattr__(self, name: str) -> Callable[[Symbol], Symbol]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda x: self._apply(name, f"norm_{name}", x)

    def _apply(self, name: str, printed: str, x: Symbol) -> Symbol:
        if self.widths.setdefault(name, x.width) != x.width:
            raise ValueError(f"norm {name!r} is used at widths {self.widths[name]} and {x.width}; give them two names")
        return Symbol(printed, (x,), x.width)


@dataclass(slots=True)
class SymbolSublayer:
    """F as a symbol. `inner_widths`: the width at each place inside F where a function may be applied."""

    site: Site
    inner_widths: dict[str, int]
    printed: str = "F"
    norm: SymbolNorms = field(default_factory=SymbolNorms)
    parameters: dict[str, ParameterSpec] = field(default_factory=dict)

    def __call__(self, x: Symbol, /, **inside: Callable[[Symbol], Symbol]) -> Symbol:
        refuse_unknown_places(self.site, inside, self.inner_widths)
        inner = tuple(function(Symbol(place, (), self.inner_widths[place])) for place, function in inside.items())
        return Symbol(self.printed, (x, *inner), x.width)

    def parameter(
        self, name: str, *, initial: float, per_feature: bool = False, shared_by_block: bool = False
    ) -> Symbol:
        self.parameters[name] = ParameterSpec(initial=initial, per_feature=per_feature, shared_by_block=shared_by_block)
        return Symbol(name)


def refuse_unknown_places(site: Site, asked: Any, known: Any) -> None:
    """Raise ValueError where a formula applies a function at a place that this kind of F does not have."""
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise ValueError(
            f"{site.kind} has no place {', '.join(unknown)} to apply a function; it has {', '.join(sorted(known))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a placement's formula asks for in one stack."""

    start_norms: dict[str, int]
    blocks: tuple[tuple[SymbolSublayer, ...], ...]
    final_norms: dict[str, int]


def read(
    placement: Placement, kinds: Sequence[SublayerKind], inner_widths: dict[SublayerKind, dict[str, int]]
) -> Reading:
    """Run the formula over symbols for every block of the placement's stack.

    kinds: sub-layers of a block, in order. inner_widths: per kind, the places inside F and their widths.
    """
    start_norms, final_norms = SymbolNorms(), SymbolNorms()
    state: State = placement.start(Symbol("x", (), placement.stack.width), start_norms)
    blocks = []
    for block in range(1, placement.stack.blocks + 1):
        sublayers = tuple(
            SymbolSublayer(Site(kind=kind, block=block, stack=placement.stack), inner_widths[kind]) for kind in kinds
        )
        state = _shallow(placement.block(state, sublayers), placement)
        blocks.append(sublayers)
    placement.finish(state, final_norms)
    return Reading(start_norms=start_norms.widths, blocks=tuple(blocks), final_norms=final_norms.widths)


def formula(placement: type[Placement], stack: StackShape | None = None) -> str:
    """The formula as text, printed from itself: what one sub-layer of the first block does to the state, or the whole
    block where the placement reaches across sub-layers; then the stack's output where that adds something.
    """
    stack = stack or StackShape(kind="encoder", width=512, encoder_blocks=6, decoder_blocks=6)
    instance = placement(stack)
    before = _shallow(instance.start(Symbol("x", (), stack.width), SymbolNorms()), instance)
    cross: tuple[SublayerKind, ...] = ("cross_attention",) if stack.kind == "decoder" and stack.encoder_blocks else ()
    kinds: tuple[SublayerKind, ...] = ("attention", *cross, "feed_forward")
    if placement.block is Placement.block:
        by_kind = {kind: _step(instance, before, {kind: "F"}) for kind in kinds}
        same = len(set(by_kind.values())) == 1
        lines = [by_kind[kinds[0]]] if same else [f"{kind}: {text}" for kind, text in by_kind.items()]
    else:
        lines = [_step(instance, before, {kind: kind for kind in kinds})]
    output = instance.finish(before, SymbolNorms())
    if output.arguments:
        lines.append(f"y = {output}")
    return "; ".join(lines)


def _step(placement: Placement, before: State, printed: dict[SublayerKind, str]) -> str:
    """What a block of these sub-layers does to a state, one assignment for each part that it changes."""
    width = placement.stack.width
    sublayers = [
        SymbolSublayer(
            Site(kind=kind, block=1, stack=placement.stack),
            dict.fromkeys(("output",) if kind == "feed_forward" else ("query", "key", "value", "output"), width),
            name,
        )
        for kind, name in printed.items()
    ]
    after = placement.block(before, sublayers)
    pairs = zip(_parts(_shallow(after, placement)), _parts(after), strict=True)
    return "; ".join(f"{name} ← {value}" for name, value in pairs if name != value)


def _parts(state: State) -> tuple[Symbol, ...]:
    return tuple(state) if isinstance(state, tuple) else (state,)


def _shallow(state: State, placement: Placement) -> State:
    """Replace a state's expressions by their names, so that a deep stack's formula does not grow with its depth."""
    if isinstance(state, tuple):
        names = placement.streams if len(placement.streams) == len(state) else [f"v{i}" for i in range(len(state))]
        return tuple(Symbol(name, (), part.width) for name, part in zip(names, state, strict=True))
    return Symbol(placement.streams[0], (), state.width)
