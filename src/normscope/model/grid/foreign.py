"""A module of the caller's own as a sub-layer of a stack."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ...placement import SublayerKind
from ..attention import Inside, SublayerModule
from .matrices import ForeignMatrix, MatricesOf, matrices_of


class Foreign(SublayerModule):
    """F made of any module that takes x first and gives a tensor of its shape.

    Of the context of a forward pass it is given what its own forward names. Functions that a formula applies within F
    come as its keyword `inside`, a mapping of functions by place.
    """

    def __init__(self, kind: SublayerKind, module: nn.Module, told: MatricesOf | None) -> None:
        super().__init__()
        self.module, self.kind, self.told = _adapted(kind, module), kind, told
        takes = inspect.signature(self.module.forward).parameters.values()
        self.takes_everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes)
        self.accepted = frozenset([one.name for one in takes][1:])  # the first is x
        self.takes_inside = "inside" in self.accepted

    def accepts(self, name: str) -> bool:
        """Whether a forward pass hands it this part of the context."""
        return name != "inside" and (self.takes_everything or name in self.accepted)

    def matrices(self) -> Iterator[tuple[str, ForeignMatrix]]:
        """Anew each time, because a module may have been moved to another device."""
        yield from matrices_of(self.kind, self.module, self.told)

    def forward(self, x: Tensor, context: Mapping[str, Any], inside: Inside) -> Tensor:
        given = {name: value for name, value in context.items() if self.accepts(name)}
        applied: set[str] = set()
        if self.takes_inside:
            given["inside"] = {place: _noted(place, function, applied) for place, function in inside.items()}
        result = self.module(x, **given)
        if not isinstance(result, Tensor) or result.shape != x.shape:
            got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
            raise TypeError(f"{self._name()} must give a tensor of the shape of x, {tuple(x.shape)}, and gave {got}")
        if applied != set(inside):
            left = ", ".join(sorted(set(inside) - applied))
            raise RuntimeError(f"{self._name()} took `inside` and did not apply what it holds for {left}")
        return result

    def _name(self) -> str:
        return f"{self.kind} module {type(self.module).__name__}"


def _noted(place: str, function: Callable[[Tensor], Tensor], applied: set[str]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        applied.add(place)
        return function(x)

    return apply


class SelfAttention(nn.Module):
    """torch's attention of x to itself."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self,
        x: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The masks are torch's."""
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "is_causal": is_causal}
        return self.attention(x, x, x, need_weights=False, **masks)[0]  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """torch's attention of x to a memory."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, *, memory: Tensor, memory_key_padding_mask: Tensor | None = None) -> Tensor:
        """The mask is torch's."""
        mask = memory_key_padding_mask
        return self.attention(x, memory, memory, need_weights=False, key_padding_mask=mask)[0]  # type: ignore[no-any-return]


def _adapted(kind: SublayerKind, module: nn.Module) -> nn.Module:
    """torch's own attention, which wants x three times and gives a pair, as a module of x."""
    if not isinstance(module, nn.MultiheadAttention):
        return module
    return CrossAttention(module) if kind == "cross_attention" else SelfAttention(module)
