"""B2T."""

from torch import Tensor

from placement.expectations import POST, Expected
from reference import Equations, ReferenceStack


def b2t(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Takase et al. 2022: LN(x_inp + x_ffn + FFN(x_ffn)), x_inp the input of the block, x_ffn that of its FFN."""
    for block in stack.by_block():
        x_inp, x_ffn = x, x
        for f in block[:-1]:
            x_ffn = f.norm(x_ffn + f(x_ffn))
        x = block[-1].norm(x_inp + x_ffn + block[-1](x_ffn))
    return x


B2T = {
    "equations": Equations(stack=b2t),
    "formula": "a = norm(x + attention(x)); x ← norm(x + a + feed_forward(a))",
    "added": POST,
}
EXPECTED = {
    "b2t": Expected(**B2T),
    "b2t-rescaled": Expected(**B2T, gain=lambda of: 2**-0.5, same_formula="b2t"),
}
