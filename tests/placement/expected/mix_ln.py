"""Mix-LN."""

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack

POST_BLOCKS = {4: 1, 5: 1, 9: 2}
"""A quarter, rounded down."""


def mix_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + f(x)) if f.block <= POST_BLOCKS[stack.blocks] else x + f(f.norm(x))
    return stack.final_norm(x)


EXPECTED = {
    "mix-ln": Expected(
        equations=Equations(stack=mix_ln),
        formula="block 1: x ← norm(x + F(x)); blocks 2-6: x ← x + F(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=90,
        alone_blocks=5,
        encoder_blocks=4,
        decoder_blocks=9,
    )
}
