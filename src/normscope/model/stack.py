"""A stack of blocks that runs a placement's formula on tensors. The only room that turns formulas into modules."""

# N = packed tokens, D = width
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..placement import Placement, Site, SublayerKind
from ..placement.base import State
from ..placement.symbol import ParameterSpec, SymbolSublayer, read, refuse_unknown_places
from .attention import Attention, Context, Inside
from .dropout import Dropout
from .feed_forward import FeedForward

NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer-norm": lambda width, epsilon: nn.LayerNorm(width, eps=epsilon),
    "rms-norm": lambda width, epsilon: nn.RMSNorm(width, eps=epsilon),
}


class NormGroup(nn.Module):
    """The norms one sub-layer owns, by the names its formula gives them; calling the group applies `main`."""

    def __init__(self, widths: dict[str, int], make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        for name, width in widths.items():
            self.add_module(name, make(width))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[[Any], Any]: ...  # type: ignore[override]

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x)  # type: ignore[no-any-return]


class PlacedSublayer(nn.Module):
    """F with the norms and parameters that the placement's formula asks for; a call gives F(x) after dropout."""

    def __init__(
        self, f: Attention | FeedForward, spec: SymbolSublayer, make: Callable[[int], nn.Module], dropout: float
    ):
        super().__init__()
        self.f, self.site, self.places = f, spec.site, frozenset(spec.inner_widths)
        self.norm = NormGroup(spec.norm.widths, make)
        self.placed = nn.ParameterDict(
            {name: _parameter(p, spec.site) for name, p in spec.parameters.items() if not p.shared_by_block}
        )
        self.dropout = Dropout(dropout)

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        refuse_unknown_places(self.site, inside, self.places)
        return self.dropout(self.f(x_ND, context, inside))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class BoundSublayer:
    """A sub-layer as a formula sees it in one forward pass."""

    module: PlacedSublayer
    context: Context
    shared: nn.ParameterDict

    @property
    def site(self) -> Site:
        return self.module.site

    @property
    def norm(self) -> NormGroup:
        return self.module.norm

    def __call__(self, x: Tensor, /, **inside: Callable[[Tensor], Tensor]) -> Tensor:
        return self.module(x, self.context, inside)  # type: ignore[no-any-return]

    def parameter(
        self, name: str, *, initial: float, per_feature: bool = False, shared_by_block: bool = False
    ) -> Tensor:
        return (self.shared if shared_by_block else self.module.placed)[name]  # type: ignore[no-any-return]


class Block(nn.Module):
    """One Transformer layer. Its input and output are the placement's state, so a forward hook here sees the stream."""

    def __init__(self, placement: Placement, sublayers: list[PlacedSublayer], specs: tuple[SymbolSublayer, ...]):
        super().__init__()
        self.placement = placement
        self.kinds: list[SublayerKind] = [s.site.kind for s in sublayers]
        for kind, sublayer in zip(self.kinds, sublayers, strict=True):
            self.add_module(kind, sublayer)
        shared = {n: (p, s) for s in specs for n, p in s.parameters.items() if p.shared_by_block}
        self.placed = nn.ParameterDict({name: _parameter(p, s.site) for name, (p, s) in shared.items()})

    def sublayers(self) -> Iterator[PlacedSublayer]:
        yield from (getattr(self, kind) for kind in self.kinds)

    def forward(self, state: State, context: Context) -> State:
        return self.placement.block(state, [BoundSublayer(s, context, self.placed) for s in self.sublayers()])


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig:
    """Sizes and rates of a stack's sub-layers."""

    ffn_width: int
    heads: int
    dropout: float = 0.0
    """On the embedding and on every sub-layer's output, before the residual sum."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: str = "layer-norm"


class Stack(nn.Module):
    """Blocks of one kind under one placement: `start`, the blocks, `finish`, on packed tokens (N, D)."""

    def __init__(self, placement: Placement, config: StackConfig, kinds: tuple[SublayerKind, ...]) -> None:
        super().__init__()
        self.placement, width = placement, placement.stack.width
        places: dict[SublayerKind, dict[str, int]] = {
            "attention": dict.fromkeys(("query", "key", "value", "output"), width),
            "cross_attention": dict.fromkeys(("query", "key", "value", "output"), width),
            "feed_forward": {"output": config.ffn_width},
        }
        reading = read(placement, kinds, places)

        def make(norm_width: int) -> nn.Module:
            return NORMS[config.norm](norm_width, placement.norm_epsilon)

        def f(kind: SublayerKind) -> Attention | FeedForward:
            if kind == "feed_forward":
                return FeedForward(width, config.ffn_width, config.activation_dropout)
            return Attention(width, config.heads, config.attention_dropout, cross=kind == "cross_attention")

        self.dropout = Dropout(config.dropout)
        self.start_norm = NormGroup(reading.start_norms, make)
        self.blocks = nn.ModuleList(
            Block(placement, [PlacedSublayer(f(s.site.kind), s, make, config.dropout) for s in specs], specs)
            for specs in reading.blocks
        )
        self.final_norm = NormGroup(reading.final_norms, make)

    def forward(self, x_ND: Tensor, context: Context) -> Tensor:
        state = self.placement.start(self.dropout(x_ND), self.start_norm)
        for block in self.blocks:
            state = block(state, context)
        return self.placement.finish(state, self.final_norm)  # type: ignore[no-any-return]


def _parameter(spec: ParameterSpec, site: Site) -> nn.Parameter:
    return nn.Parameter(torch.full((site.stack.width,) if spec.per_feature else (), spec.initial))
