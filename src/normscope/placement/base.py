"""The protocol of a placement: one formula over values that can be added, scaled, normalised and
passed through F.

The same formula is read with different kinds of value: a `torch.Tensor` trains, a `Symbol` prints
and tells which norms and parameters the formula asks for, and further readers can be added without
touching any placement.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

Value = Any
"""A value on the residual stream: a Tensor (tokens, width), a Symbol, or whatever a further reader
brings.
"""

SQUASHING_SLOPE = 0.5
"""α of DyT and Derf at initialisation, in models and in theory."""

State = Any
"""The state that a placement carries from sub-layer to sub-layer: one Value, or a tuple with a part
for each of its `streams`. A part may itself be a tuple that grows, the history of a placement that
reaches back over the depth.
"""

Initial = float | tuple[Any, ...]
"""The initial value of a parameter: a number for all of its entries, or numbers in nested tuples of
its shape.
"""

SublayerKind = Literal["attention", "cross_attention", "feed_forward"]
ModelKind = Literal["encoder-only", "decoder-only", "encoder-decoder"]
EVERY_MODEL: tuple[ModelKind, ...] = ("encoder-only", "decoder-only", "encoder-decoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    """The stack a placement is read for; `encoder_blocks` or `decoder_blocks` is 0 where there is
    no such stack.
    """

    kind: Literal["encoder", "decoder"]
    width: int
    ffn_width: int = 0
    """0 where a reader has no feed-forward of its own."""
    heads: int = 1
    encoder_blocks: int = 0
    decoder_blocks: int = 0
    key_value_heads: int = 0
    """0 where there are as many as heads of queries."""
    head_width: int = 0
    """0 where the heads share the width."""
    loops: int = 1
    """The number of times in turn that its blocks are run, with the same weights each time."""

    @property
    def heads_of_keys(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def query_width(self) -> int:
        """Features of all queries, and of what enters the output projection."""
        return self.heads * self.head_width if self.head_width else self.width

    @property
    def width_of_head(self) -> int:
        """Features of one head."""
        return self.query_width // self.heads

    @property
    def key_value_width(self) -> int:
        """Features of all keys, and of all values."""
        return self.width_of_head * self.heads_of_keys

    @property
    def blocks(self) -> int:
        """Blocks of this stack."""
        return self.encoder_blocks if self.kind == "encoder" else self.decoder_blocks

    @property
    def model(self) -> ModelKind:
        """The kind of model this stack is part of."""
        if self.encoder_blocks and self.decoder_blocks:
            return "encoder-decoder"
        return "encoder-only" if self.kind == "encoder" else "decoder-only"

    @property
    def kinds(self) -> tuple[SublayerKind, ...]:
        """The sub-layers of a block, in order."""
        cross: tuple[SublayerKind, ...] = ("cross_attention",) if self._crosses else ()
        return ("attention", *cross, "feed_forward")

    @property
    def sublayers(self) -> int:
        """Sub-layers of this stack: 2 a block, 3 where a decoder attends to an encoder."""
        return self.blocks * (3 if self._crosses else 2)

    @property
    def _crosses(self) -> bool:
        return self.kind == "decoder" and self.encoder_blocks > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of a sub-layer: its kind, its block counted from 1, and its stack."""

    kind: SublayerKind
    block: int
    stack: StackShape

    @property
    def number(self) -> int:
        """The number of the sub-layer in its stack, counted from 1."""
        kinds = self.stack.kinds
        return (self.block - 1) * len(kinds) + kinds.index(self.kind) + 1


class Constant(float):
    """A number that a formula prints under a name, such as √l for one that differs from block to
    block.
    """

    def __new__(cls, value: float, text: str) -> "Constant":
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        # For copies of models whose placement holds one.
        return float(self), self.text

    text: str


class Norms(Protocol):
    """The norms of one sub-layer (or of an end of a stack): `norm(x)`, or `norm.NAME(x)` where a
    formula needs several.

    Every distinct name is a norm with its own parameters; asking for it in the formula is what
    creates it. `groups` normalises so many equal parts of x each on its own, with one gain for all
    of them: heads, for the norms of queries.
    """

    def __call__(self, x: Value, /, *, groups: int | None = None) -> Value: ...

    def __getattr__(self, name: str, /) -> Callable[..., Value]: ...


class End(Protocol):
    """An end of a stack, or the place over the output projection: norms and numbers of its own."""

    @property
    def norm(self) -> Norms: ...

    def parameter(
        self, name: str, *, initial: Initial, shape: tuple[int, ...] = (), std: float = 0.0
    ) -> Value:
        """Returns a trainable number (or a tensor of that shape) of the formula, starting from
        `initial`.

        std: of the normal distribution about it from which the first values are drawn, with the
        weights of F. An index takes an entry of a tensor, and of several dimensions a row:
        `mixing[0][1]`.
        """
        ...

    def scheduled(self, name: str, *, initial: float) -> Value:
        """Returns a number that follows a schedule over updates (`[adaptive]` of a run), `initial`
        before the first.

        One for the whole model, whoever asks; training does not change it, and a checkpoint keeps
        it.
        """
        ...


class Sublayer(End, Protocol):
    """F of the papers: attention, cross-attention or feed-forward, with what a formula may ask of
    it.
    """

    @property
    def site(self) -> Site: ...

    def __call__(self, x: Value, /, **inside: Callable[[Value], Value]) -> Value:
        """F(x). `inside` applies a function within F: `query`, `key`, `value` (attention) act on
        the projections, `hidden` (feed-forward) on what leaves the first matrix, `output` on what
        enters the last matrix of F."""
        ...

    def parameter(
        self,
        name: str,
        *,
        initial: Initial,
        shape: tuple[int, ...] = (),
        std: float = 0.0,
        shared_by_block: bool = False,
    ) -> Value:
        """Returns a parameter as an end does; `shared_by_block`: one for all sub-layers of the
        block.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """The way in which a placement's profiling batch passes through a stack."""

    in_order: bool = False
    """True where a sub-layer's values are set before the batch reaches it, so that what is measured
    depends on them; False where the whole batch passes before any value is set."""
    dropout: bool = False
    """True where variances are measured with dropout on, as in training."""


class Placement:
    """A placement of normalisation and scaling in a stack. Subclass it, write `join`, and
    `register` it.

    An instance belongs to one stack and may use its shape (`self.stack`) for constants that depend
    on depth.
    """

    name: ClassVar[str]
    """The name by which users call it, such as `post-ln`."""
    title: ClassVar[str]
    citation: ClassVar[str]
    year: ClassVar[int]
    gist: ClassVar[str] = ""
    """Its distinguishing property, in at most 43 characters, where its formula is longer or does
    not show it; not inherited.
    """
    models: ClassVar[tuple[ModelKind, ...]] = EVERY_MODEL
    """The kinds of models for which the formula is defined."""
    variant_of: ClassVar[str] = ""
    """The name of the placement of which this is another reading."""
    streams: ClassVar[tuple[str, ...]] = ("x",)
    """Names of the parts of the state, for printing."""
    initialisation: ClassVar[str] = "paper"
    """The scheme of `model.initialisation` that the placement's source uses."""
    default_norm: ClassVar[str] = "layer-norm"
    """The norm it takes where a model does not name one; another than LayerNorm where that norm is
    its very idea.
    """
    norm_epsilon: ClassVar[float] = 1e-5
    unit_vectors: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """Weights that every update puts back on the unit sphere, and the dimension along which their
    vectors lie.
    """
    profiling: ClassVar[Profiling] = Profiling()
    """The run of the batch from which `profiled` takes its variances, where a placement overrides
    it.
    """

    def __init__(self, stack: StackShape) -> None:
        """Takes the shape of the stack. Raises ValueError where the placement is not defined for
        such a model.
        """
        if stack.model not in self.models:
            raise ValueError(
                f"placement {self.name!r} is not defined for {stack.model} models, only for "
                f"{', '.join(self.models)}"
            )
        self.stack = stack

    def table_rows(self, rows: Value) -> Value:
        """Changes looked-up embedding rows before any constant scales them; most placements return
        them unchanged.

        It is all that happens to them beside learned positions (BERT, GPT-2).
        """
        return rows

    def input_rows(self, rows: Value) -> Value:
        """Scales embedding rows before sinusoidal positions are added (Vaswani et al. 2017, section
        3.4: times √d).
        """
        return self.table_rows(rows) * math.sqrt(self.stack.width)

    def start(self, x: Value, end: End) -> State:
        """Returns the state at depth 0, from the embedding."""
        return x

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> State:
        """One block; override it where the formula reaches across sub-layers."""
        for sublayer in sublayers:
            state = self.join(state, sublayer, sublayer.norm)
            if state is None:
                raise TypeError("join returned nothing")
        return state

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        """The formula: the state after one sub-layer."""
        raise NotImplementedError(f"placement {self.name!r} must define join or block")

    def finish(self, state: State, end: End) -> Value:
        """Returns the stack's output, from the last state: the final-norm rule."""
        return state

    def output_rows(self, rows: Value, head: End, vocabulary: int) -> Value:
        """Changes the rows (vocabulary, width) of the tied output projection before they meet the
        hidden state.
        """
        return rows

    def hidden(self, state: State) -> Value:
        """Returns the residual stream x_l of a state, as curves over depth show it: the first part
        where it has several.
        """
        return state[0] if isinstance(state, tuple) else state

    def gain(self, weight: str, site: Site) -> float:
        """Returns the factor of a weight matrix's initial standard deviation.

        `weight` is one of query, key, value, output (attention), ffn_in, ffn_out.
        """
        return 1.0

    def embedding_gain(self) -> float:
        """The same of the embedding."""
        return 1.0

    def profiled(
        self, branch_variances: Sequence[float], input_variance: float
    ) -> Mapping[str, float]:
        """Returns the initial values of the next sub-layer's parameters, from the variances of all
        branches F(x) before it.

        There is at least one: the first sub-layer of a stack keeps the values it starts with. Each
        is the variance over all elements of one batch, which is run as `profiling` says;
        `input_variance` is that of the embedding. A placement that needs no profiling batch leaves
        this method alone.
        """
        return {}

    @classmethod
    def is_profiled(cls) -> bool:
        """Tells whether initial values of the formula's parameters are set from one batch."""
        return cls.profiled is not Placement.profiled


def residual_gain(weight: str, stack: StackShape) -> float:
    """1/√(sub-layers of the stack) for the last matrix of F, where a branch joins the stream; 1 for
    all others.
    """
    return float(stack.sublayers**-0.5) if weight in ("output", "ffn_out") else 1.0
