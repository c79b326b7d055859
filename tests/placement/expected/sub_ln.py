"""Sub-LN."""

import math

from torch import Tensor

from placement.expectations import FFN_WIDTH, PRE, Expected, Gain, norms
from reference import Equations, ReferenceStack

GAMMA = {"encoder": math.sqrt(math.log(6) * math.log(4) / 3), "decoder": math.sqrt(math.log(6))}
FORMULA = "x ← x + F(norm(x), norm_inner(output)); y = norm(x)"
ADDED = PRE | norms("attention.inner") | norms("feed_forward.inner", width=FFN_WIDTH)


def sub_ln(*plain: str) -> Equations:
    """plain: sub-layers without the inner norm."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            inside = {} if f.kind in plain else {"output": lambda y, f=f: f.norm.named("inner", y)}
            x = x + f(f.norm(x), **inside)
        return stack.final_norm(x)

    return Equations(stack=formula)


def gain(of: Gain) -> float:
    return 1.0 if of.matrix in ("query", "key") else GAMMA[of.stack]


EXPECTED = {
    "sub-ln": Expected(
        equations=sub_ln("cross_attention"),
        formula=FORMULA,
        added=ADDED,
        cross=norms("cross_attention.main"),
        scheme="xavier-normal",
        gain=lambda of: 1.0 if of.kind == "cross_attention" else gain(of),
    ),
    "sub-ln-cross": Expected(
        equations=sub_ln(),
        formula=FORMULA,
        added=ADDED,
        models=frozenset({"encoder-decoder"}),
        scheme="xavier-normal",
        gain=gain,
        same_in_encoders="sub-ln",
    ),
}
