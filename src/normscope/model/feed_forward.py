"""The position-wise feed-forward sub-layer."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from .attention import Context, Inside, SublayerModule, as_factor
from .linear import Dropout, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
}
"""relu: Vaswani et al. 2017; gelu: Hendrycks & Gimpel 2016, as BERT has it; gelu-tanh: its approximation, as GPT-2 has
it. What is given to one may be overwritten."""


GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": functional.silu,
    "geglu": functional.gelu,
    "geglu-tanh": partial(functional.gelu, approximate="tanh"),
}
"""The curve of the gate (Shazeer 2020, section 2); Llama and most decoders since have swiglu, Gemma geglu-tanh."""


class FeedForward(SublayerModule):
    """φ(x W1 + b1) W2 + b2 on packed tokens (N, D); with φ = ReLU, Vaswani et al. 2017, eq. 2."""

    def __init__(
        self, width: int, ffn_width: int, dropout: float, activation: str = "relu", *, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.ffn_in, self.ffn_out = Linear(width, ffn_width, bias=bias), Linear(ffn_width, width, bias=bias)
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("ffn_in", self.ffn_in), ("ffn_out", self.ffn_out))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        hidden = self.ffn_in(x_ND)
        if "hidden" in inside:
            hidden = inside["hidden"](hidden)
        hidden = self.dropout(self.activation(hidden))
        if "output" in inside:
            hidden = inside["output"](hidden)
        return self.ffn_out(hidden)  # type: ignore[no-any-return]


class GatedFeedForward(SublayerModule):
    """(φ(x Wg + bg) ⊙ (x W1 + b1)) W2 + b2 on packed tokens (N, D): Shazeer 2020, arXiv:2002.05202, with biases.

    Of `ffn_width` it has three matrices where `FeedForward` has two: equal parameters take two thirds of it. A
    formula's `hidden` is applied to x W1 + b1, as nGPT scales it, and its `output` to the product.
    """

    def __init__(self, width: int, ffn_width: int, dropout: float, activation: str, *, bias: bool = True) -> None:
        super().__init__()
        self.activation = GATED[activation]
        self.ffn_gate, self.ffn_in, self.ffn_out = (
            Linear(width, ffn_width, bias=bias),
            Linear(width, ffn_width, bias=bias),
            Linear(ffn_width, width, bias=bias),
        )
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses: gate and input are drawn alike."""
        yield from (("ffn_in", self.ffn_gate), ("ffn_in", self.ffn_in), ("ffn_out", self.ffn_out))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        x_ND = as_factor(x_ND)
        gate, hidden = self.activation(self.ffn_gate(x_ND)), self.ffn_in(x_ND)
        if "hidden" in inside:
            hidden = inside["hidden"](hidden)
        hidden = self.dropout(gate * hidden)
        if "output" in inside:
            hidden = inside["output"](hidden)
        return self.ffn_out(hidden)  # type: ignore[no-any-return]


def feed_forward(width: int, ffn_width: int, dropout: float, activation: str, *, bias: bool = True) -> SublayerModule:
    """The sub-layer of an activation, gated or not. Raises KeyError for an unknown one."""
    kind = GatedFeedForward if activation in GATED else FeedForward
    return kind(width, ffn_width, dropout, activation, bias=bias)
