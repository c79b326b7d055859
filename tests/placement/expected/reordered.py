"""Reordered norm, and OLMo 2."""

from torch import Tensor

from placement.expectations import PRE, Expected, norms
from reference import Equations, ReferenceStack


def reordered(*normed: str) -> Equations:
    """normed: the projections normed over their whole width, of attention and cross-attention."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            places = normed if f.kind != "feed_forward" else ()
            x = x + f.norm(f(x, **{p: lambda y, f=f, p=p: f.norm.named(p, y) for p in places}))
        return stack.final_norm(x)

    return Equations(stack=formula)


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
}
