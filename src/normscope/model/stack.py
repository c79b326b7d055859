"""A stack of blocks that runs a placement's formula on tensors. The only room that turns formulas
into modules.
"""

# N = packed tokens, D = width
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..placement import Placement, Site, SublayerKind
from ..placement.base import State
from ..placement.reading import read
from ..placement.symbol import SymbolEnd, SymbolSublayer, refuse_unknown_places
from ..settings.tables import check_choice, check_choices
from .context import Context, Inside, SublayerModule
from .initialisation import Draw, Drawable, Scheme, fill, initialise
from .layout import AttentionConfig, PositionEncoding
from .linear import Dropout
from .placed import NORMS, NormGroup, PlacedParameters, Schedules
from .sublayers import ACTIVATIONS, GATED, Attention, feed_forward

_MakeNorms = Callable[[SymbolEnd], NormGroup]


class PlacedEnd(nn.Module):
    """An end of a stack, or the output projection, with the norms and parameters that the formula
    asks for there.
    """

    def __init__(
        self, asked: SymbolEnd, make: _MakeNorms, schedule: Callable[[str], Tensor]
    ) -> None:
        super().__init__()
        self.norm = make(asked)
        self.placed = PlacedParameters(asked.parameters)
        self.schedule = schedule

    def parameter(self, name: str, **spec: Any) -> Tensor:
        return self.placed[name]  # type: ignore[no-any-return]

    def scheduled(self, name: str, *, initial: float) -> Tensor:
        return self.schedule(name)


class PlacedSublayer(nn.Module):
    """F with the norms and parameters that the placement's formula asks for; a call gives F(x)
    after dropout.
    """

    def __init__(self, f: SublayerModule, spec: SymbolSublayer, make: _MakeNorms, dropout: float):
        super().__init__()
        self.f: SublayerModule = f
        self.site, self.places = spec.site, frozenset(spec.inner_widths)
        self.norm = make(spec)
        own = {name: p for name, p in spec.parameters.items() if not p.shared_by_block}
        self.placed = PlacedParameters(own)
        self.dropout = Dropout(dropout)

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        refuse_unknown_places(self.site, inside, self.places)
        return self.dropout(self.f(x_ND, context, inside))  # type: ignore[no-any-return]


class _BoundSublayer:
    """A sub-layer as a formula sees it in one forward pass; no dataclass, which torch.compile 2.11
    cannot trace.
    """

    def __init__(
        self,
        module: PlacedSublayer,
        context: Context,
        shared: nn.ParameterDict,
        schedule: Callable[[str], Tensor],
    ) -> None:
        self.module = module
        self.context = context
        self.shared = shared
        self.schedule = schedule

    @property
    def site(self) -> Site:
        return self.module.site

    @property
    def norm(self) -> NormGroup:
        return self.module.norm

    def __call__(self, x: Tensor, /, **inside: Callable[[Tensor], Tensor]) -> Tensor:
        return self.module(x, self.context, inside)  # type: ignore[no-any-return]

    def parameter(self, name: str, *, shared_by_block: bool = False, **spec: Any) -> Tensor:
        return (self.shared if shared_by_block else self.module.placed)[name]  # type: ignore[no-any-return]

    def scheduled(self, name: str, *, initial: float) -> Tensor:
        return self.schedule(name)


class Block(nn.Module):
    """One Transformer layer. Its input and output are the placement's state, so a forward hook here
    sees the stream.
    """

    def __init__(
        self,
        placement: Placement,
        sublayers: list[PlacedSublayer],
        specs: tuple[SymbolSublayer, ...],
        schedule: Callable[[str], Tensor],
    ):
        super().__init__()
        self.placement, self.schedule = placement, schedule
        self.kinds: list[SublayerKind] = [s.site.kind for s in sublayers]
        for kind, sublayer in zip(self.kinds, sublayers, strict=True):
            self.add_module(kind, sublayer)
        shared = {n: p for s in specs for n, p in s.parameters.items() if p.shared_by_block}
        self.placed = PlacedParameters(shared)

    def sublayers(self) -> Iterator[PlacedSublayer]:
        yield from (getattr(self, kind) for kind in self.kinds)

    def forward(self, state: State, context: Context) -> State:
        bound = [_BoundSublayer(s, context, self.placed, self.schedule) for s in self.sublayers()]
        return self.placement.block(state, bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig:
    """The settings of a stack beside its shape."""

    dropout: float = 0.0
    """The dropout on the embedding and on every sub-layer's output, before the residual sum."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: str = "as-placement"
    norm_epsilon: float | Literal["as-placement"] = "as-placement"
    activation: str = "relu"
    biases: Literal["all", "query-key-value", "none"] = "all"
    position_encoding: PositionEncoding = "none"
    """The positions that attention itself uses: rotary or alibi. The others are the embedding's,
    before the stack.
    """
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    activation_checkpointing: bool = False
    """Keep only what stands between blocks, and compute a block again when its gradients are
    wanted.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        check_choice("norm", self.norm, ("as-placement", *NORMS))
        check_choice("activation", self.activation, (*ACTIVATIONS, *GATED))
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if self.norm_epsilon != "as-placement" and not 0 < self.norm_epsilon < 1:
            raise ValueError(
                f"norm_epsilon must be as-placement or lie between 0 and 1, got {self.norm_epsilon}"
            )


def stack_config(config: Any) -> StackConfig:
    """Returns the part of a model's configuration that its stacks have a use for."""
    shared = {field.name for field in fields(config)} & {
        field.name for field in fields(StackConfig)
    }
    return StackConfig(**{name: getattr(config, name) for name in shared})


class Stack(Drawable):
    """Blocks of one kind under one placement: `start`, the blocks, `loops` times in turn, `finish`,
    on tokens (N, D).

    kinds: sub-layers of a block, in order; without them, those of such a stack.
    initialisation: the scheme that its weights are drawn by as it is made, which leaves torch's
    generator as it was; None where what holds the stack draws them (`initialise`).
    f: the module of each sub-layer; without it, one of ours.
    """

    def __init__(
        self,
        placement: Placement,
        config: StackConfig,
        kinds: tuple[SublayerKind, ...] | None = None,
        *,
        initialisation: str | None = "as-placement",
        f: Callable[[Site], SublayerModule] | None = None,
    ) -> None:
        super().__init__()
        self.placement, self.activation_checkpointing = placement, config.activation_checkpointing
        reading = read(placement, kinds)
        make = norm_maker(placement, config.norm, config.norm_epsilon)
        self.schedules = Schedules(reading.schedules)
        self.dropout = Dropout(config.dropout)
        schedule = self.schedules.value

        def made(spec: SymbolSublayer) -> PlacedSublayer:
            module = _ours(config, placement, spec) if f is None else f(spec.site)
            return PlacedSublayer(module, spec, make, config.dropout)

        def block_of(specs: tuple[SymbolSublayer, ...]) -> Block:
            return Block(placement, [made(spec) for spec in specs], specs, schedule)

        self.start = PlacedEnd(reading.start, make, schedule)
        self.blocks = nn.ModuleList(block_of(specs) for specs in reading.blocks)
        self.finish = PlacedEnd(reading.finish, make, schedule)
        if initialisation is not None:
            with torch.random.fork_rng():
                initialise(self, initialisation, type(placement))

    def draw(self, scheme: Scheme) -> None:
        for sublayer in self.sublayers():
            for name, matrix in sublayer.f.matrices():
                gain = self.placement.gain(name, sublayer.site)
                _draw_matrix(
                    matrix, scheme.draws[name], gain, drawn_bias=name in scheme.drawn_biases
                )

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        kept = self.placement.unit_vectors
        for sublayer in self.sublayers():
            yield from (
                (matrix.weight, kept[name])
                for name, matrix in sublayer.f.matrices()
                if name in kept
            )

    def sublayers(self) -> Iterator[PlacedSublayer]:
        """Yields the sub-layers in the order of the forward pass."""
        for block in self.blocks:
            assert isinstance(block, Block)
            yield from block.sublayers()

    def forward(self, x_ND: Tensor, context: Context) -> Tensor:
        state = self.placement.start(self.dropout(x_ND), self.start)
        for block in [*self.blocks] * self.placement.stack.loops:
            if self.activation_checkpointing and torch.is_grad_enabled():
                state = checkpoint(block, state, context, use_reentrant=False)
            else:
                state = block(state, context)
        return self.placement.finish(state, self.finish)  # type: ignore[no-any-return]


def _ours(config: StackConfig, placement: Placement, spec: SymbolSublayer) -> SublayerModule:
    shape = spec.site.stack
    if spec.site.kind == "feed_forward":
        return feed_forward(
            shape.width,
            shape.ffn_width,
            config.activation_dropout,
            config.activation,
            bias=config.biases == "all",
        )
    # A formula that acts on queries and keys has its own norms there.
    own_norms = {"query", "key"} & spec.used_places
    return Attention(
        spec.site,
        config.attention,
        dropout=config.attention_dropout,
        position_encoding=config.position_encoding,
        biases=_BIASES[config.biases],
        make_norm=None
        if own_norms
        else partial(make_norm, placement, config.norm, config.norm_epsilon),
    )


_BIASES = {
    "all": ("query", "key", "value", "output"),
    "query-key-value": ("query", "key", "value"),
    "none": (),
}


def _draw_matrix(matrix: Any, draw: Draw, gain: float, *, drawn_bias: bool) -> None:
    weight: Tensor = matrix.weight
    # Into memory of its own order, so that one seed draws the same whatever the matrix is a part
    # of.
    drawn = (
        weight
        if weight.is_contiguous()
        else torch.empty_like(weight, memory_format=torch.contiguous_format)
    )
    fill(drawn, draw, gain)
    if drawn is not weight:
        weight.copy_(drawn)
    if matrix.bias is not None:
        bound = weight.shape[1] ** -0.5
        nn.init.uniform_(matrix.bias, -bound, bound) if drawn_bias else nn.init.zeros_(matrix.bias)


def norm_maker(
    placement: Placement, norm: str, epsilon: float | Literal["as-placement"] = "as-placement"
) -> _MakeNorms:
    """Returns the function that builds the norms that a part of the formula asks for."""
    made = partial(make_norm, placement, norm, epsilon)
    return lambda asked: NormGroup(asked.norm.widths, made, frozenset(asked.norm.grouped))


def make_norm(
    placement: Placement, norm: str, epsilon: float | Literal["as-placement"], width: int
) -> nn.Module:
    """Returns one norm of the kind and the ε that were asked for, or of the placement's own."""
    kind = NORMS[placement.default_norm if norm == "as-placement" else norm]
    return kind(width, placement.norm_epsilon if epsilon == "as-placement" else epsilon)
