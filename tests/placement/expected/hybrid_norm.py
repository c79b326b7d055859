"""HybridNorm in its three forms."""

from torch import Tensor

from placement.expectations import HEADS, WIDTH, Expected, last_matrices_by_depth, norms
from reference import Equations, ReferenceStack, ReferenceSublayer

NORMED = "norm_query(query), norm_key(key), norm_value(value)"
FORMULA = f"attention: x ← norm(x + F(x, {NORMED})); feed_forward: x ← x + F(x); y = norm(x)"
ADDED = norms("attention.main", "finish.main")
BY_HEAD = norms("attention.query.each", "attention.key.each", "attention.value.each", width=WIDTH // HEADS)


def hybrid_norm(*, star: bool = False, by_head: bool = True) -> Equations:
    """Zhuo et al. 2025: h = x + Attn(norm q, norm k, norm v); z = norm(h); z + FFN(z). Cross-attention as attention."""

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


WEIGHTS = {"scheme": "megatron", "gain": last_matrices_by_depth}
EXPECTED = {
    "hybrid-norm": Expected(equations=hybrid_norm(), formula=FORMULA, added=ADDED | BY_HEAD, **WEIGHTS),
    "hybrid-norm-star": Expected(
        equations=hybrid_norm(star=True),
        formula=(
            f"block 1: attention: x ← x + F(norm(x), {NORMED}); block 1: feed_forward: x ← x + F(norm(x)); "
            f"blocks 2-6: attention: x ← norm(x + F(x, {NORMED})); blocks 2-6: feed_forward: x ← x + F(x); y = norm(x)"
        ),
        added=ADDED | BY_HEAD | norms("feed_forward.main"),
        **WEIGHTS,
    ),
    "hybrid-norm-width": Expected(
        equations=hybrid_norm(by_head=False),
        formula=FORMULA,
        added=ADDED | norms("attention.query", "attention.key", "attention.value"),
        **WEIGHTS,
    ),
}
