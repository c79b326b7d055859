"""NormFormer, with heads scaled before the last matrix of attention and after it."""

import torch
from torch import Tensor

from placement.expectations import FFN_WIDTH, HEADS, PRE, Expected, norms, number
from reference import Equations, ReferenceStack


def normformer(*, before: bool) -> Equations:
    """before: whether heads are scaled before the last matrix, as in the paper."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            if f.kind == "feed_forward":
                x = x + f(f.norm(x), output=lambda hidden, f=f: f.norm.named("inner", hidden))
            elif f.kind == "cross_attention":
                x = x + f(f.norm(x))
            else:
                scales = f.placed("head_scale").repeat_interleave(x.shape[-1] // stack.heads)
                diagonal = torch.diag(scales)
                if before:
                    attended = f(f.norm(x), output=lambda heads, diagonal=diagonal: heads @ diagonal)
                else:
                    attended = f(f.norm(x)) @ diagonal
                x = x + f.norm.named("after", attended)
        return stack.final_norm(x)

    return Equations(stack=formula)


def described(before: bool, attention: str, same_formula: str = "") -> Expected:
    return Expected(
        equations=normformer(before=before),
        formula=(
            f"attention: x ← x + norm_after({attention}); feed_forward: x ← x + F(norm(x), norm_inner(output)); "
            "y = norm(x)"
        ),
        added=PRE
        | norms("attention.after")
        | norms("feed_forward.inner", width=FFN_WIDTH)
        | number("attention.head_scale", HEADS),
        cross=norms("cross_attention.main"),
        scheme="normal-0.02",
        first={"head_scale": 1.0},
        same_formula=same_formula,
    )


EXPECTED = {
    "normformer": described(before=True, attention="F(norm(x), head_scale · output)"),
    # To the doctor, which does not see heads.
    "normformer-fairseq": described(before=False, attention="head_scale · F(norm(x))", same_formula="normformer"),
}
