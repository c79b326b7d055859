"""Two streams: a sum that nothing norms beside one that is, or the embedding itself."""

from torch import Tensor

from placement.expectations import HEADS, PRE, WIDTH, Expected, norms, number
from reference import Equations, ReferenceStack


def residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    branches = [x]
    for f in stack.sublayers():
        branches.append(f(x))
        x = f.norm(x + branches[-1])
    return x + stack.final_norm(sum(branches))


def siamese_norm(*, hybrid: bool) -> Equations:
    """As the authors' `Block.forward` goes, one sub-layer after the other."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        y = x
        for f in stack.sublayers():
            normed_y = f.norm.named("pre", y)
            if hybrid and f.kind != "feed_forward":

                def by_head(place: str, f=f):
                    return lambda values: f.norm.by_head(place, values, f.stack.heads)

                z = f(
                    x * f.placed("post_scale") + normed_y,
                    **{p: by_head(p) for p in ("query", "key", "value")},
                )
            else:
                x = f.norm.named("post", x)
                z = f(f.norm.named("input", x + normed_y))
            x, y = x + z * (2 * f.block) ** -0.5, y + z
        return stack.final_norm(
            stack.final_norm.named("post", x) + stack.final_norm.named("pre", y)
        )

    return Equations(stack=formula)


BRANCH = "F(norm_input(norm_post(x) + norm_pre(y)))"
OF_ATTENTION = (
    "F(post_scale · x + norm_pre(y), norm_query(query), norm_key(key), norm_value(value))"
)
PLAIN = f"x ← norm_post(x) + {BRANCH} / √(2l); y ← y + {BRANCH}"
ENDS = norms("finish.main", "finish.post", "finish.pre")
OF_FEED_FORWARD = norms("feed_forward.post", "feed_forward.pre", "feed_forward.input")


def x0_residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    x0 = x = stack.end("start")(x)
    for block in stack.by_block():
        first = block[0]
        x = first.placed("x_scale") * x + first.placed("x0_scale") * x0
        for f in block:
            x = x + f(f.norm(x))
    return stack.final_norm(x)


INPUT = "x_scale · x + x0_scale · x_0"
X0 = {
    "equations": Equations(stack=x0_residual),
    "formula": (
        f"x ← norm(x); x_0 ← norm(x); a = {INPUT} + attention(norm({INPUT})); "
        "x ← a + feed_forward(norm(a)); y = norm(x)"
    ),
    "added": PRE | norms("start.main") | number("attention.x_scale") | number("attention.x0_scale"),
    "cross": norms("cross_attention.main"),
    "scheme": "normal-by-width",
}
STARTS = {"0.attention.placed.x_scale": 1.15, "0.attention.placed.x0_scale": 0.2}
STARTS |= {"1.attention.placed.x_scale": 1.05, "1.attention.placed.x0_scale": 0.05}


EXPECTED = {
    "residual": Expected(
        equations=Equations(stack=residual),
        formula="x ← norm(x + F(x)); r ← r + F(x); y = x + norm(r)",
        added=PRE,
        norm_epsilon=1e-7,
    ),
    "siamese-norm": Expected(
        equations=siamese_norm(hybrid=False),
        formula=f"{PLAIN}; y = norm(norm_post(x) + norm_pre(y))",
        added=ENDS | OF_FEED_FORWARD | norms("attention.post", "attention.pre", "attention.input"),
        scheme="normal-0.02",
        toy_rate=5e-3,
        toy_updates=90,
        # In the first sub-layer both streams are the embedding, and its norms look like norms
        # inside of attention.
        found_by_doctor=False,
    ),
    "siamese-norm-hybrid": Expected(
        equations=siamese_norm(hybrid=True),
        formula=(
            f"attention: x ← x + {OF_ATTENTION} / √(2l); y ← y + {OF_ATTENTION}; feed_forward: "
            f"{PLAIN}; y = norm(norm_post(x) + norm_pre(y))"
        ),
        added=ENDS
        | OF_FEED_FORWARD
        | norms("attention.pre")
        | norms(
            "attention.query.each",
            "attention.key.each",
            "attention.value.each",
            width=WIDTH // HEADS,
        )
        | number("attention.post_scale", WIDTH),
        scheme="normal-0.02",
        first={"post_scale": 1},
    ),
    "x0-residual": Expected(**X0, first=STARTS),
    "x0-residual-modded": Expected(
        **X0, first={"x_scale": 1.0, "x0_scale": 0.0}, same_formula="x0-residual"
    ),
}
