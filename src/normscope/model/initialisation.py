"""Initial weights: one function, and the table it reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..placement import Placement
from .attention import Attention
from .embedding import PAD, Embedding
from .feed_forward import FeedForward
from .stack import PlacedSublayer, Stack

Draw = Callable[[Tensor, float], None]
"""Fills a weight matrix (out, in); the number multiplies its standard deviation."""


def _xavier_uniform(gain: float) -> Draw:
    def draw(weight: Tensor, extra: float) -> None:
        nn.init.xavier_uniform_(weight, gain=gain * extra)

    return draw


def _xavier_normal(weight: Tensor, gain: float) -> None:
    nn.init.xavier_normal_(weight, gain=gain)


def _torch_default(weight: Tensor, gain: float) -> None:
    bound = gain * weight.shape[1] ** -0.5
    nn.init.uniform_(weight, -bound, bound)


def _normal_by_fan_in(weight: Tensor, gain: float) -> None:
    nn.init.normal_(weight, std=gain * weight.shape[1] ** -0.5)


def _zeros(weight: Tensor, gain: float) -> None:
    nn.init.zeros_(weight)


def _identity(weight: Tensor, gain: float) -> None:
    nn.init.eye_(weight)
    weight.mul_(gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How every weight matrix is drawn, and which of them have a bias drawn as torch's default; other biases are 0."""

    source: str
    draws: Mapping[str, Draw]
    drawn_biases: frozenset[str] = frozenset()


# xavier_uniform on a packed (3d, d) matrix has the variance of gain 1/√2 on each of its three parts.
_PACKED = _xavier_uniform(2**-0.5)
_QKV = ("query", "key", "value")

SCHEMES: dict[str, Scheme] = {
    "paper": Scheme(
        source="fairseq 0.7 to 0.8, as Xiong et al. 2020 ran it",
        draws=dict.fromkeys(_QKV, _PACKED) | dict.fromkeys(("output", "ffn_in", "ffn_out"), _xavier_uniform(1.0)),
    ),
    "fairseq-0.10": Scheme(
        source="fairseq 0.10 and later: feed-forward as torch.nn.Linear, query, key and value biases drawn",
        draws=dict.fromkeys(_QKV, _PACKED)
        | {"output": _xavier_uniform(1.0)}
        | dict.fromkeys(("ffn_in", "ffn_out"), _torch_default),
        drawn_biases=frozenset((*_QKV, "ffn_in", "ffn_out")),
    ),
    "theory": Scheme(
        source="Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, all matrices d × d from N(0, 1/d), no W_O",
        draws={"query": _zeros, "key": _zeros, "output": _identity}
        | dict.fromkeys(("value", "ffn_in", "ffn_out"), _normal_by_fan_in),
    ),
    "xavier-normal": Scheme(
        source="Wang et al. 2022 (DeepNorm): Glorot normal at gain 1 times the placement's gain",
        draws=dict.fromkeys((*_QKV, "output", "ffn_in", "ffn_out"), _xavier_normal),
    ),
}


@torch.no_grad()
def initialise(model: nn.Module, scheme: str, placement: type[Placement]) -> None:
    """Draw every weight of `model` from torch's global generator, in the order of its modules.

    scheme: a name of SCHEMES, or `as-placement` for the one the placement's source uses. In every scheme embedding rows
    are N(0, 1/d) with the padding row 0, and norms and the placement's own parameters keep the values they start with.
    """
    table = SCHEMES[placement.initialisation if scheme == "as-placement" else scheme]
    for module in model.modules():
        if isinstance(module, Embedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            module.weight[PAD].zero_()
        elif isinstance(module, Stack):
            for block in module.blocks:
                for sublayer in block.sublayers():  # type: ignore[operator]
                    _initialise_sublayer(sublayer, table, module.placement)


def _initialise_sublayer(sublayer: PlacedSublayer, table: Scheme, placement: Placement) -> None:
    assert isinstance(sublayer.f, Attention | FeedForward)
    for name, linear in sublayer.f.matrices():
        table.draws[name](linear.weight, placement.gain(name, sublayer.site))
        if name in table.drawn_biases:
            nn.init.uniform_(linear.bias, -(linear.weight.shape[1] ** -0.5), linear.weight.shape[1] ** -0.5)
        else:
            nn.init.zeros_(linear.bias)
