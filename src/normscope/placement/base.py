"""The protocol of a placement: one formula over values that can be added, scaled, normalised and passed through F.

The same formula is read with different kinds of value: a `torch.Tensor` trains, a `Symbol` prints and tells which
norms and parameters the formula asks for, and further readers can be added without touching any placement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

Value = Any
"""What flows along the residual stream: a Tensor (tokens, width), a Symbol, or whatever a further reader brings."""

State = Any
"""What a placement carries from sub-layer to sub-layer: one Value, or a tuple of them."""

SublayerKind = Literal["attention", "cross_attention", "feed_forward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    """The stack a placement is read for; `encoder_blocks` or `decoder_blocks` is 0 where there is no such stack."""

    kind: Literal["encoder", "decoder"]
    width: int
    encoder_blocks: int = 0
    decoder_blocks: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of this stack."""
        return self.encoder_blocks if self.kind == "encoder" else self.decoder_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a sub-layer stands: its kind, its block counted from 1, and its stack."""

    kind: SublayerKind
    block: int
    stack: StackShape


class Norms(Protocol):
    """The norms of one sub-layer (or of an end of a stack): `norm(x)`, or `norm.NAME(x)` where a formula needs several.

    Every distinct name is a norm with its own parameters; asking for it in the formula is what creates it.
    """

    def __call__(self, x: Value, /) -> Value: ...

    def __getattr__(self, name: str, /) -> Callable[[Value], Value]: ...


class Sublayer(Protocol):
    """F of the papers: attention, cross-attention or feed-forward, with what a formula may ask of it."""

    @property
    def site(self) -> Site: ...

    @property
    def norm(self) -> Norms: ...

    def __call__(self, x: Value, /, **inside: Callable[[Value], Value]) -> Value:
        """F(x). `inside` applies a function within F: `query`, `key`, `value` (attention) act on the projections,
        `output` on what enters the last matrix of F."""
        ...

    def parameter(
        self, name: str, *, initial: float, per_feature: bool = False, shared_by_block: bool = False
    ) -> Value:
        """A trainable scalar (or a vector of the stack's width) of the formula, starting from `initial`."""
        ...


class Placement:
    """Where normalisation and scaling sit in a stack. Subclass it, write `join`, and `register` it.

    An instance belongs to one stack and may use its shape (`self.stack`) for constants that depend on depth.
    """

    name: ClassVar[str]
    """How users call it, such as `post-ln`."""
    title: ClassVar[str]
    citation: ClassVar[str]
    year: ClassVar[int]
    streams: ClassVar[tuple[str, ...]] = ("x",)
    """Names of the components of the state, for printing."""
    initialisation: ClassVar[str] = "paper"
    """The scheme of `model.initialisation` that the placement's source uses."""
    norm_epsilon: ClassVar[float] = 1e-5

    def __init__(self, stack: StackShape) -> None:
        self.stack = stack

    def start(self, x: Value, norm: Norms) -> State:
        """The state at depth 0, from the embedding."""
        return x

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> State:
        """One block; override it where the formula reaches across sub-layers."""
        for sublayer in sublayers:
            state = self.join(state, sublayer, sublayer.norm)
        return state

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        """The formula: the state after one sub-layer."""
        raise NotImplementedError(f"placement {self.name!r} must define join or block")

    def finish(self, state: State, norm: Norms) -> Value:
        """The stack's output, from the last state: the final-norm rule."""
        return state

    def gain(self, weight: str, site: Site) -> float:
        """What the initial standard deviation of a weight matrix is multiplied with.

        `weight` is one of query, key, value, output (attention), ffn_in, ffn_out.
        """
        return 1.0


_REGISTRY: dict[str, type[Placement]] = {}


def register(placement: type[Placement]) -> type[Placement]:
    """Class decorator that makes a placement known by its name in every command.

    Raises ValueError on a name already taken.
    """
    for attribute in ("name", "title", "citation", "year"):
        if not hasattr(placement, attribute):
            raise ValueError(f"placement class {placement.__name__} must set `{attribute}`")
    known = _REGISTRY.get(placement.name)
    # A user's file may be loaded twice in one process (once by path, once by import): the same source is not a clash.
    if known is not None and (known.__module__, known.__qualname__) != (placement.__module__, placement.__qualname__):
        raise ValueError(f"placement name {placement.name!r} is taken by {known.__module__}.{known.__qualname__}")
    _REGISTRY[placement.name] = placement
    return placement


def registered() -> dict[str, type[Placement]]:
    """All placements by name, in alphabetical order."""
    return dict(sorted(_REGISTRY.items()))


def named(name: str) -> type[Placement]:
    """The placement of that name. Raises ValueError naming the known ones."""
    if name not in _REGISTRY:
        raise ValueError(
            f"unknown placement {name!r}; choose one of {', '.join(registered())}, "
            "or register your own (--import FILE.py)"
        )
    return _REGISTRY[name]
