"""The position-wise feed-forward sub-layer."""

from collections.abc import Iterator

from torch import Tensor, nn

from .attention import Context, Inside
from .dropout import Dropout
from .linear import Linear


class FeedForward(nn.Module):
    """ReLU(x W1 + b1) W2 + b2 (Vaswani et al. 2017, eq. 2) on packed tokens (N, D)."""

    def __init__(self, width: int, ffn_width: int, dropout: float) -> None:
        super().__init__()
        self.ffn_in, self.ffn_out = Linear(width, ffn_width), Linear(ffn_width, width)
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("ffn_in", self.ffn_in), ("ffn_out", self.ffn_out))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        hidden = self.ffn_in(x_ND)
        if "hidden" in inside:
            hidden = inside["hidden"](hidden)
        hidden = self.dropout(hidden.relu_())
        if "output" in inside:
            hidden = inside["output"](hidden)
        return self.ffn_out(hidden)  # type: ignore[no-any-return]
