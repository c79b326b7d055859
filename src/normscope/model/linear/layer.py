"""The linear layer of every sub-layer, and that of the heads."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from ..initialisation import Drawable, Scheme, draw_bert
from .products import is_for_onednn, linear_product


class Linear(nn.Linear):
    """nn.Linear, its bias added after the product on a CPU.

    There torch's own writes the bias to every row, and then has the product read it back: 5 to 10 % of the layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(input)
        # Where autocast is on, or there are more dimensions than rows, torch's own operation sees to them.
        ours = input.ndim == 2 and not torch.is_autocast_enabled("cpu") and is_for_onednn(input, self.weight.numel())
        product = linear_product(input, self.weight) if ours else input @ self.weight.T
        return product if self.bias is None else product.add_(self.bias.to(product.dtype))


class HeadLinear(Linear, Drawable):
    """A matrix between the last hidden states and a loss; no placement reaches it."""

    role: ClassVar[str] = "head"

    def draw(self, scheme: Scheme) -> None:
        draw_bert(self.weight)
        nn.init.zeros_(self.bias)
