"""Norms within F: on queries, keys and values, before its last matrix, or numbers on every head."""

import math

import torch
from torch import Tensor

from placement.expectations import (
    FFN_WIDTH,
    HEADS,
    PRE,
    WIDTH,
    Expected,
    Gain,
    last_matrices_by_depth,
    norms,
    number,
)
from reference import Equations, ReferenceStack, ReferenceSublayer

GAMMA = {"encoder": math.sqrt(math.log(6) * math.log(4) / 3), "decoder": math.sqrt(math.log(6))}
SUB_LN_FORMULA = "x ← x + F(norm(x), norm_inner(output)); y = norm(x)"
SUB_LN_ADDED = PRE | norms("attention.inner") | norms("feed_forward.inner", width=FFN_WIDTH)


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
                    attended = f(
                        f.norm(x), output=lambda heads, diagonal=diagonal: heads @ diagonal
                    )
                else:
                    attended = f(f.norm(x)) @ diagonal
                x = x + f.norm.named("after", attended)
        return stack.final_norm(x)

    return Equations(stack=formula)


def described(before: bool, attention: str, same_formula: str = "") -> Expected:
    return Expected(
        equations=normformer(before=before),
        formula=(
            f"attention: x ← x + norm_after({attention}); feed_forward: x ← x + F(norm(x), "
            "norm_inner(output)); y = norm(x)"
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


NORMED = "norm_query(query), norm_key(key), norm_value(value)"
HYBRID_FORMULA = f"attention: x ← norm(x + F(x, {NORMED})); feed_forward: x ← x + F(x); y = norm(x)"
HYBRID_ADDED = norms("attention.main", "finish.main")
BY_HEAD = norms(
    "attention.query.each", "attention.key.each", "attention.value.each", width=WIDTH // HEADS
)


def hybrid_norm(*, star: bool = False, by_head: bool = True) -> Equations:
    """Zhuo et al. 2025: h = x + Attn(norm q, norm k, norm v); z = norm(h); z + FFN(z).
    Cross-attention as attention.
    """

    def attended(f: ReferenceSublayer, x: Tensor) -> Tensor:
        def normed(place: str, y: Tensor) -> Tensor:
            return f.norm.by_head(place, y, f.stack.heads) if by_head else f.norm.named(place, y)

        return f(x, **{p: lambda y, p=p: normed(p, y) for p in ("query", "key", "value")})

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            pre = star and f.block == 1
            if f.kind == "feed_forward":
                x = x + f(f.norm(x) if pre else x)
            else:
                x = x + attended(f, f.norm(x)) if pre else f.norm(x + attended(f, x))
        return stack.final_norm(x)

    return Equations(stack=formula)


def simple_norm(x: Tensor, stack: ReferenceStack) -> Tensor:
    """As SimpleGPT's blocks go: every linear layer's output is normed over its whole width."""

    def normed(f, place: str):
        return lambda y: f.norm.named(place, y)

    for f in stack.sublayers():
        if f.kind == "feed_forward":
            branch = f(x, hidden=normed(f, "hidden"))
        else:
            branch = f(x, **{p: normed(f, p) for p in ("query", "key", "value")})
        x = x + f.norm(branch)
    return stack.final_norm(x)


WEIGHTS = {"scheme": "megatron", "gain": last_matrices_by_depth}


EXPECTED = {
    "sub-ln": Expected(
        equations=sub_ln("cross_attention"),
        formula=SUB_LN_FORMULA,
        added=SUB_LN_ADDED,
        cross=norms("cross_attention.main"),
        scheme="xavier-normal",
        gain=lambda of: 1.0 if of.kind == "cross_attention" else gain(of),
    ),
    "sub-ln-cross": Expected(
        equations=sub_ln(),
        formula=SUB_LN_FORMULA,
        added=SUB_LN_ADDED,
        models=frozenset({"encoder-decoder"}),
        scheme="xavier-normal",
        gain=gain,
        same_in_encoders="sub-ln",
    ),
    "normformer": described(before=True, attention="F(norm(x), head_scale · output)"),
    # To the doctor, which does not see heads.
    "normformer-fairseq": described(
        before=False, attention="head_scale · F(norm(x))", same_formula="normformer"
    ),
    "hybrid-norm": Expected(
        equations=hybrid_norm(), formula=HYBRID_FORMULA, added=HYBRID_ADDED | BY_HEAD, **WEIGHTS
    ),
    "hybrid-norm-star": Expected(
        equations=hybrid_norm(star=True),
        formula=(
            f"block 1: attention: x ← x + F(norm(x), {NORMED}); block 1: feed_forward: x ← x + "
            f"F(norm(x)); blocks 2-6: attention: x ← norm(x + F(x, {NORMED})); blocks 2-6: "
            "feed_forward: x ← x + F(x); y = norm(x)"
        ),
        added=HYBRID_ADDED | BY_HEAD | norms("feed_forward.main"),
        **WEIGHTS,
    ),
    "hybrid-norm-width": Expected(
        equations=hybrid_norm(by_head=False),
        formula=HYBRID_FORMULA,
        added=HYBRID_ADDED | norms("attention.query", "attention.key", "attention.value"),
        **WEIGHTS,
    ),
    "simple-norm": Expected(
        equations=Equations(stack=simple_norm),
        formula=(
            "attention: x ← x + norm(F(x, norm_query(query), norm_key(key), norm_value(value))); "
            "feed_forward: x ← x + norm(F(x, norm_hidden(hidden))); y = norm(x)"
        ),
        added=PRE
        | norms("attention.query", "attention.key", "attention.value")
        | norms("feed_forward.hidden", width=FFN_WIDTH),
        scheme="normal-0.02",
    ),
}
