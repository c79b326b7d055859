"""A module of the caller's own as a sub-layer of a stack, and which of its weights are matrices
that gains multiply.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...placement import SublayerKind
from ...placement.schemes import ATTENTION_WEIGHTS, weights_of
from ..context import Inside, SublayerModule

_CALLED = {
    "query": ("query", "q_proj", "q", "wq", "to_q", "q_lin", "query_proj"),
    "key": ("key", "k_proj", "k", "wk", "to_k", "k_lin", "key_proj"),
    "value": ("value", "v_proj", "v", "wv", "to_v", "v_lin", "value_proj"),
    "output": (
        "output",
        "out_proj",
        "o_proj",
        "o",
        "wo",
        "to_out",
        "out_lin",
        "out",
        "proj",
        "dense",
    ),
}
"""The names of attention's four linear layers in the libraries that most models are from."""


class _ForeignMatrix(NamedTuple):
    """A weight matrix (out, in) and its bias, where there is one."""

    weight: Tensor
    bias: Tensor | None


_Layer = nn.Linear | _ForeignMatrix | Tensor | tuple[Tensor, Tensor | None]
MatricesOf = Callable[[SublayerKind, nn.Module], Iterable[tuple[str, _Layer]]]


def matrices_of(
    kind: SublayerKind, module: nn.Module, told: MatricesOf | None
) -> list[tuple[str, _ForeignMatrix]]:
    """Returns every weight matrix of a sub-layer under the name that initialisation uses, in the
    order of drawing.

    told: what the caller says they are; without it the module's own `matrices()`, or what can be
    told by its shape: an `nn.MultiheadAttention`, four linear layers that are called as usual, two
    linear layers of a feed-forward. Raises ValueError where they cannot be told.
    """
    if told is not None:
        named = list(told(kind, module))
    elif callable(getattr(module, "matrices", None)):
        named = list(module.matrices())  # type: ignore[operator]
    else:
        named = list(_by_shape(kind, module))
    found = [(name, _matrix(name, layer)) for name, layer in named]
    missing = [name for name in weights_of(kind) if name not in dict(found)]
    unknown = [name for name, _ in found if name not in weights_of(kind)]
    if missing or unknown:
        what = (
            f"no {', '.join(missing)}"
            if missing
            else f"{', '.join(unknown)}, which {kind} does not have"
        )
        raise ValueError(
            f"the matrices of {type(module).__name__} are said to hold {what}; {_advice(kind)}"
        )
    return sorted(found, key=lambda one: weights_of(kind).index(one[0]))


def _by_shape(kind: SublayerKind, module: nn.Module) -> Iterator[tuple[str, _Layer]]:
    heads = [m for m in module.modules() if isinstance(m, nn.MultiheadAttention)]
    linears = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if kind == "feed_forward":
        named: list[tuple[str, _Layer]] = list(
            zip(weights_of(kind), (linear for _, linear in linears), strict=False)
        )
        told = len(linears) == 2 and not heads
    elif heads:
        named = list(_packed(heads[0]))
        told = len(heads) == 1 and len(linears) == 1  # its own output projection
    else:
        named = [(called(name.rpartition(".")[2]), linear) for name, linear in linears]
        told = sorted(name for name, _ in named) == sorted(weights_of(kind))
    # Whatever else is a matrix would keep the weights that it happens to have.
    matrices = sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)
    if not told or sum(_matrix(name, layer).weight.numel() for name, layer in named) != matrices:
        raise ValueError(
            f"cannot tell which weights of {type(module).__name__} are the matrices; "
            f"{_advice(kind)}"
        )
    yield from named


def _packed(attention: nn.MultiheadAttention) -> Iterator[tuple[str, _Layer]]:
    """The parts of torch's packed weight; none where keys or values have a width of their own."""
    weight: Any = attention.in_proj_weight
    bias: Any = attention.in_proj_bias
    if weight is not None:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        yield from zip(
            ATTENTION_WEIGHTS, map(_ForeignMatrix, weight.chunk(3), biases), strict=False
        )
    yield "output", attention.out_proj


def called(name: str) -> str:
    return next((ours for ours, theirs in _CALLED.items() if name in theirs), "")


def _matrix(name: str, layer: _Layer) -> _ForeignMatrix:
    if isinstance(layer, nn.Module):
        found = _ForeignMatrix(layer.weight, layer.bias)
    else:
        found = _ForeignMatrix(layer, None) if isinstance(layer, Tensor) else _ForeignMatrix(*layer)
    if found.weight.dim() != 2:
        raise ValueError(
            f"matrix {name} must have the shape (out, in), got {tuple(found.weight.shape)}"
        )
    return found


def _advice(kind: SublayerKind) -> str:
    return (
        "say it by a method `matrices()` of the module, or by `matrices=` of place: pairs of a "
        f"name ({', '.join(weights_of(kind))}) and a linear layer or a weight (out, in); several "
        "may share a name. Or keep "
        'the weights as they are with initialisation="keep"'
    )


class Foreign(SublayerModule):
    """F made of any module that takes x first and gives a tensor of its shape.

    Of the context of a forward pass it is given what its own forward names. Functions that a
    formula applies within F come as its keyword `inside`, a mapping of functions by place.
    """

    def __init__(self, kind: SublayerKind, module: nn.Module, told: MatricesOf | None) -> None:
        super().__init__()
        self.module = _adapted(kind, module)
        self.kind = kind
        self.told = told
        takes = inspect.signature(self.module.forward).parameters.values()
        self.takes_everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes)
        self.accepted = frozenset([one.name for one in takes][1:])  # the first is x
        self.takes_inside = "inside" in self.accepted

    def accepts(self, name: str) -> bool:
        """Tells whether a forward pass takes this part of the context."""
        return name != "inside" and (self.takes_everything or name in self.accepted)

    def matrices(self) -> Iterator[tuple[str, _ForeignMatrix]]:
        """Anew each time, because a module may have been moved to another device."""
        yield from matrices_of(self.kind, self.module, self.told)

    def forward(self, x: Tensor, context: Mapping[str, Any], inside: Inside) -> Tensor:
        given = {name: value for name, value in context.items() if self.accepts(name)}
        applied: set[str] = set()
        if self.takes_inside:
            given["inside"] = {
                place: _noted(place, function, applied) for place, function in inside.items()
            }
        result = self.module(x, **given)
        if not isinstance(result, Tensor) or result.shape != x.shape:
            got = (
                f"shape {tuple(result.shape)}"
                if isinstance(result, Tensor)
                else type(result).__name__
            )
            raise TypeError(
                f"{self._name()} must give a tensor of the shape of x, {tuple(x.shape)}, and gave "
                f"{got}"
            )
        if applied != set(inside):
            left = ", ".join(sorted(set(inside) - applied))
            raise RuntimeError(
                f"{self._name()} took `inside` and did not apply what it holds for {left}"
            )
        return result

    def _name(self) -> str:
        return f"{self.kind} module {type(self.module).__name__}"


def _noted(
    place: str, function: Callable[[Tensor], Tensor], applied: set[str]
) -> Callable[[Tensor], Tensor]:
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
        masks = {
            "key_padding_mask": key_padding_mask,
            "attn_mask": attn_mask,
            "is_causal": is_causal,
        }
        return self.attention(x, x, x, need_weights=False, **masks)[0]  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """torch's attention of x to a memory."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self, x: Tensor, *, memory: Tensor, memory_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """The mask is torch's."""
        mask = memory_key_padding_mask
        return self.attention(x, memory, memory, need_weights=False, key_padding_mask=mask)[0]  # type: ignore[no-any-return]


def _adapted(kind: SublayerKind, module: nn.Module) -> nn.Module:
    """torch's own attention, which wants x three times and gives a pair, as a module of x."""
    if not isinstance(module, nn.MultiheadAttention):
        return module
    return CrossAttention(module) if kind == "cross_attention" else SelfAttention(module)
