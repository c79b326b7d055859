"""Norms after the branch, and most often before it, too: what is added to the stream is normed."""

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, last_matrices_by_depth, norms, number
from reference import Equations, ReferenceStack


def reordered(*normed: str) -> Equations:
    """normed: the projections normed over their whole width, of attention and cross-attention."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            places = normed if f.kind != "feed_forward" else ()
            x = x + f.norm(f(x, **{p: lambda y, f=f, p=p: f.norm.named(p, y) for p in places}))
        return stack.final_norm(x)

    return Equations(stack=formula)


FORMULA = "x ← x + norm_after(F(norm_before(x))); y = norm(x)"
ADDED = norms(
    "attention.before",
    "attention.after",
    "feed_forward.before",
    "feed_forward.after",
    "finish.main",
)


def sandwich(*, embedding_normed: bool) -> Equations:
    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        if embedding_normed:
            x = stack.end("start")(x)
        for f in stack.sublayers():
            x = x + f.norm.named("after", f(f.norm.named("before", x)))
        return stack.final_norm(x)

    return Equations(stack=formula)


def depth_scaled(x: Tensor, stack: ReferenceStack) -> Tensor:
    """The sum of the embedding and all normed branches, over the square root of how many there
    are.
    """
    total = x
    for count, f in enumerate(stack.sublayers(), 1):
        mean = total / count**0.5
        total = total + f.norm.named("after", f(f.norm.named("before", mean)))
    return stack.final_norm(total / (1 + stack.blocks * len(stack.kinds)) ** 0.5)


def variance_gate(x: Tensor, stack: ReferenceStack) -> Tensor:
    """As transformers writes it, with 1 - β² as σ(-w) (1 + β)."""
    for f in stack.sublayers():
        w = f.placed("gate") / 0.3
        beta = 1 / (1 + torch.exp(-w))
        alpha = torch.sqrt(1 / (1 + torch.exp(w)) * (1 + beta))
        x = alpha * x + beta * f.norm.named("after", f(f.norm.named("before", x)))
    return stack.final_norm(x)


EXPECTED = {
    "reordered": Expected(
        equations=reordered(),
        formula="x ← x + norm(F(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        tokens_apart=True,
    ),
    "olmo-2": Expected(
        equations=reordered("query", "key"),
        formula=(
            "attention: x ← x + norm(F(x, norm_query(query), norm_key(key))); "
            "feed_forward: x ← x + norm(F(x)); y = norm(x)"
        ),
        added=PRE | norms("attention.query", "attention.key"),
        scheme="normal-0.02",
    ),
    "sandwich": Expected(
        equations=sandwich(embedding_normed=False),
        formula=FORMULA,
        added=ADDED,
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
    ),
    "peri-ln": Expected(
        equations=sandwich(embedding_normed=True),
        formula=f"x ← norm(x); {FORMULA}",
        added=ADDED | norms("start.main"),
        scheme="normal-0.02",
    ),
    "depth-scaled": Expected(
        equations=Equations(stack=depth_scaled),
        formula="x ← √((k - 1)/k) · x + norm_after(F(norm_before(x))) / √k; y = norm(x)",
        added=norms(
            "attention.before",
            "attention.after",
            "feed_forward.before",
            "feed_forward.after",
            "finish.main",
        ),
        scheme="normal-0.02",
    ),
    "variance-gate": Expected(
        equations=Equations(stack=variance_gate),
        formula=(
            "x ← √(1 - σ(gate / 0.3) · σ(gate / 0.3)) · x + σ(gate / 0.3) · "
            "norm_after(F(norm_before(x))); y = norm(x)"
        ),
        added=norms(
            "attention.before",
            "attention.after",
            "feed_forward.before",
            "feed_forward.after",
            "finish.main",
        )
        | number("attention.gate", WIDTH)
        | number("feed_forward.gate", WIDTH),
        scheme="normal-0.02",
        drawn={"gate": 0.02},
        # Four draws leave 15 %: over three seeds, values of the encoder's middle block are 15, -6
        # and 3 % off.
        tokens_apart=True,
    ),
}
