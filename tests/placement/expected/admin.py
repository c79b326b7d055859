"""Admin in its four forms."""

import math
from collections.abc import Callable

from torch import Tensor

from placement.expectations import POST, WIDTH, Expected, number, sublayers_of
from reference import Equations, ReferenceStack


def admin(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Liu et al. 2020, section 4: ω a vector for each sub-layer."""
    for f in stack.sublayers():
        x = f.norm(f.placed("skip_scale") * x + f(x))
    return x


def weighed_skip(scale: Callable[[ReferenceStack], float]) -> Equations:
    """LN(scale · x + F(x)): admin-torch."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = f.norm(scale(stack) * x + f(x))
        return x

    return Equations(stack=formula)


def log_n(stack: ReferenceStack) -> float:
    n = sublayers_of(stack)
    return math.sqrt((n + 1) / math.log(n + 1) - 1)


ADMIN = {
    "equations": Equations(stack=admin),
    "formula": "x ← norm(skip_scale · x + F(x))",
    "added": POST | number("attention.skip_scale", WIDTH) | number("feed_forward.skip_scale", WIDTH),
    "first": {"skip_scale": 1},
}
EXPECTED = {
    "admin": Expected(**ADMIN),
    "admin-clinic": Expected(**ADMIN, same_formula="admin"),
    "admin-constant": Expected(
        equations=weighed_skip(lambda stack: math.sqrt(sublayers_of(stack))),
        formula="x ← norm(3.464 · x + F(x))",
        added=POST,
    ),
    "admin-log-n": Expected(equations=weighed_skip(log_n), formula="x ← norm(2.017 · x + F(x))", added=POST),
}
