"""One norm a sub-layer, after the sum or before the branch, and what is drawn or read beside
that.
"""

from torch import Tensor

from placement.expectations import POST, PRE, Expected, last_matrices_by_depth, norms
from reference import Equations, ReferenceStack


def post_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Xiong et al. 2020, table 1 (left)."""
    for f in stack.sublayers():
        x = f.norm(x + f(x))
    return x


DS_INIT = {
    "equations": Equations(stack=post_ln),
    "formula": "x ← norm(x + F(x))",
    "added": POST,
    "scheme": "xavier-uniform",
    "same_formula": "post-ln",
}


def b2t(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Takase et al. 2022: LN(x_inp + x_ffn + FFN(x_ffn)), x_inp the input of the block, x_ffn that
    of its FFN.
    """
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


def pre_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Xiong et al. 2020, table 1 (right)."""
    for f in stack.sublayers():
        x = x + f(f.norm(x))
    return stack.final_norm(x)


PRE_FORMULA = "x ← x + F(norm(x)); y = norm(x)"


def parallel(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        normed = block[0].norm(x)
        x = sum((f(normed) for f in block), x)
    return stack.final_norm(x)


def parallel_two_norms(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        x = sum((f(f.norm(x)) for f in block), x)
    return stack.final_norm(x)


POST_BLOCKS = {4: 1, 5: 1, 9: 2}
"""A quarter, rounded down."""


def mix_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + f(x)) if f.block <= POST_BLOCKS[stack.blocks] else x + f(f.norm(x))
    return stack.final_norm(x)


EXPECTED = {
    "post-ln": Expected(
        equations=Equations(stack=post_ln), formula="x ← norm(x + F(x))", added=POST
    ),
    "ds-init": Expected(**DS_INIT, gain=lambda of: of.block ** (-1 / 2)),
    "ds-init-code": Expected(**DS_INIT, gain=lambda of: of.block ** (-1 / 4)),
    "b2t": Expected(**B2T),
    "b2t-rescaled": Expected(**B2T, gain=lambda of: 2**-0.5, same_formula="b2t"),
    "pre-ln": Expected(equations=Equations(stack=pre_ln), formula=PRE_FORMULA, added=PRE),
    "gpt2": Expected(
        equations=Equations(stack=pre_ln),
        formula=PRE_FORMULA,
        added=PRE,
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
        same_formula="pre-ln",
    ),
    "parallel": Expected(
        equations=Equations(stack=parallel),
        formula="x ← x + attention(norm(x)) + feed_forward(norm(x)); y = norm(x)",
        added=norms("attention.main", "finish.main"),
        cross={},
        scheme="normal-0.02",
    ),
    "parallel-two-norms": Expected(
        equations=Equations(stack=parallel_two_norms),
        formula="x ← x + attention(norm(x)) + feed_forward(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
    ),
    "mix-ln": Expected(
        equations=Equations(stack=mix_ln),
        formula="block 1: x ← norm(x + F(x)); blocks 2-6: x ← x + F(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=90,
        alone_blocks=5,
        encoder_blocks=4,
        decoder_blocks=9,
    ),
}
