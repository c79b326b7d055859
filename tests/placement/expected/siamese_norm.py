"""SiameseNorm, and its hybrid with HybridNorm's attention."""

from torch import Tensor

from placement.expectations import HEADS, WIDTH, Expected, norms, number
from reference import Equations, ReferenceStack


def siamese_norm(*, hybrid: bool) -> Equations:
    """As the authors' `Block.forward` goes, one sub-layer after the other."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        y = x
        for f in stack.sublayers():
            normed_y = f.norm.named("pre", y)
            if hybrid and f.kind != "feed_forward":

                def by_head(place: str, f=f):
                    return lambda values: f.norm.by_head(place, values, f.stack.heads)

                z = f(x * f.placed("post_scale") + normed_y, **{p: by_head(p) for p in ("query", "key", "value")})
            else:
                x = f.norm.named("post", x)
                z = f(f.norm.named("input", x + normed_y))
            x, y = x + z * (2 * f.block) ** -0.5, y + z
        return stack.final_norm(stack.final_norm.named("post", x) + stack.final_norm.named("pre", y))

    return Equations(stack=formula)


BRANCH = "F(norm_input(norm_post(x) + norm_pre(y)))"
OF_ATTENTION = "F(post_scale · x + norm_pre(y), norm_query(query), norm_key(key), norm_value(value))"
PLAIN = f"x ← norm_post(x) + {BRANCH} / √(2l); y ← y + {BRANCH}"
ENDS = norms("finish.main", "finish.post", "finish.pre")
OF_FEED_FORWARD = norms("feed_forward.post", "feed_forward.pre", "feed_forward.input")
EXPECTED = {
    "siamese-norm": Expected(
        equations=siamese_norm(hybrid=False),
        formula=f"{PLAIN}; y = norm(norm_post(x) + norm_pre(y))",
        added=ENDS | OF_FEED_FORWARD | norms("attention.post", "attention.pre", "attention.input"),
        scheme="normal-0.02",
        toy_rate=5e-3,
        toy_updates=90,
        # In the first sub-layer both streams are the embedding, and its norms look like norms inside of attention.
        found_by_doctor=False,
    ),
    "siamese-norm-hybrid": Expected(
        equations=siamese_norm(hybrid=True),
        formula=(
            f"attention: x ← x + {OF_ATTENTION} / √(2l); y ← y + {OF_ATTENTION}; feed_forward: {PLAIN}; "
            "y = norm(norm_post(x) + norm_pre(y))"
        ),
        added=ENDS
        | OF_FEED_FORWARD
        | norms("attention.pre")
        | norms("attention.query.each", "attention.key.each", "attention.value.each", width=WIDTH // HEADS)
        | number("attention.post_scale", WIDTH),
        scheme="normal-0.02",
        first={"post_scale": 1},
    ),
}
