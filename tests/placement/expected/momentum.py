"""A state and a velocity: what a sub-layer writes changes how the state moves."""

import torch
from torch import Tensor

from placement.expectations import PRE, Expected, last_matrices_by_depth, norms, number
from reference import Equations, ReferenceStack


def momentum(*, step_is_learned: bool) -> Equations:
    """As the block of Momentum-Streams' `formers/{yurii,tmm}/model.py` goes, the velocity from
    0.
    """

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        v = torch.zeros_like(x)
        for f in stack.sublayers():
            mu = torch.sigmoid(f.placed("mu"))
            beta = torch.sigmoid(f.placed("beta"))
            gamma = torch.log(1 + torch.exp(f.placed("gamma")))
            g = f(f.norm(x + mu * v))
            v = f.norm.named("velocity", beta * v + gamma * g)
            nu = torch.log(1 + torch.exp(f.placed("nu"))) if step_is_learned else 1.0
            x = x + nu * v
        return stack.final_norm(x)

    return Equations(stack=formula)


VELOCITY = "norm_velocity(σ(beta) · v + softplus(gamma) · F(norm(x + σ(mu) · v)))"
KINDS = ("attention", "feed_forward")
NUMBERS = {
    name: shape
    for kind in KINDS
    for one in ("mu", "beta", "gamma")
    for name, shape in number(f"{kind}.{one}").items()
}
STEPS = number("attention.nu") | number("feed_forward.nu")
OF_VELOCITY = norms("attention.velocity", "feed_forward.velocity")
WEIGHTS = {"scheme": "normal-0.02", "gain": last_matrices_by_depth}
IDLE = ("blocks.0.attention.placed.mu", "blocks.0.attention.placed.beta")
"""Numbers of a velocity that is 0."""

EXPECTED = {
    "yuriiformer": Expected(
        equations=momentum(step_is_learned=False),
        formula=f"v ← 0 · x; x ← x + {VELOCITY}; v ← {VELOCITY}; y = norm(x)",
        added=PRE | OF_VELOCITY | NUMBERS,
        first={"mu": 0.0, "beta": 0.0, "gamma": 0.0},
        idle=IDLE,
        found_by_doctor=False,
        **WEIGHTS,
    ),
    "tmmformer": Expected(
        equations=momentum(step_is_learned=True),
        formula=f"v ← 0 · x; x ← x + softplus(nu) · {VELOCITY}; v ← {VELOCITY}; y = norm(x)",
        added=PRE | OF_VELOCITY | NUMBERS | STEPS,
        first={"mu": 0.0, "beta": 0.0, "gamma": 0.0, "nu": 0.5413248},
        idle=IDLE,
        found_by_doctor=False,
        **WEIGHTS,
    ),
}
