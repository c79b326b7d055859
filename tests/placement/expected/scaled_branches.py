"""Pre-LN whose branch or sum is scaled: by a constant, most often one of the depth, or by trained
numbers.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, Shapes, number
from reference import Equations, ReferenceStack


def scaled(divisor: Callable[[int], float]) -> Equations:
    """divisor: of every branch, by the blocks of the stack."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = x + f(f.norm(x)) / divisor(stack.blocks)
        return stack.final_norm(x)

    return Equations(stack=formula)


def described(divisor: Callable[[int], float], printed: str, updates: int = 60) -> Expected:
    return Expected(
        equations=scaled(divisor),
        formula=f"x ← x + {printed} · F(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=updates,
    )


def layer_norm_scaling(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x) * f.block**-0.5)
    return stack.final_norm(x)


def layer_scale(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Touvron et al. 2021, eq. 4, with the diagonal matrix that it writes."""
    for f in stack.sublayers():
        x = x + f(f.norm(x)) @ torch.diag(f.placed("layer_scale"))
    return stack.final_norm(x)


def norm_preserving(x: Tensor, stack: ReferenceStack) -> Tensor:
    """marin's issue 8860; one θ a block."""
    for f in stack.sublayers():
        theta = stack.w[f"{stack.at}blocks.{f.block - 1}.placed.theta"]
        share = torch.log(1 + torch.exp(theta)) / stack.blocks
        x = (1 - share).sqrt() * x + share.sqrt() * f(f.norm(x))
    return stack.final_norm(x)


def zaya(x: Tensor, stack: ReferenceStack) -> Tensor:
    def at_start(name: str) -> Tensor:
        return stack.w[f"{stack.at}start.placed.{name}"]

    x = (x + at_start("bias")) * at_start("scale")
    for f in stack.sublayers():
        branch = (f(f.norm(x)) + f.placed("branch_bias")) * f.placed("branch_scale")
        x = branch + (x + f.placed("skip_bias")) * f.placed("skip_scale")
    return stack.final_norm(x)


def doge(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.placed("skip_scale") * x + f(f.norm(x))
    return stack.final_norm(x)


def of_both(*names: str) -> Shapes:
    """Vectors that attention and feed-forward have."""
    found: Shapes = {}
    for name in names:
        found |= number(f"attention.{name}", WIDTH) | number(f"feed_forward.{name}", WIDTH)
    return found


def gpas(x: Tensor, stack: ReferenceStack) -> Tensor:
    """The authors' `GPASBlock` after every sub-layer: hidden - act(gate) * hidden.detach()."""
    for f in stack.sublayers():
        gate = stack.w[f"{stack.at}blocks.{f.block - 1}.placed.gate"]
        h = x + f(f.norm(x))
        x = h - gate / (1 + (-gate).exp()) * h.detach()
    return stack.final_norm(x)


EXPECTED = {
    "completep": described(lambda blocks: blocks, "1/L"),
    "depth-mup": described(lambda blocks: blocks**0.5, "1/√L"),
    "looped": replace(described(lambda blocks: blocks**0.5, "1/(N√L)"), same_formula="depth-mup"),
    "minicpm": described(lambda blocks: (blocks / 1.96) ** 0.5, "1.4/√L", updates=80),
    "granite": described(lambda blocks: 50 / 11, "0.22"),
    "lns": Expected(
        equations=Equations(stack=layer_norm_scaling),
        formula="x ← x + F(norm(x) / √l); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=90,
    ),
    "layer-scale": Expected(
        equations=Equations(stack=layer_scale),
        formula="x ← x + layer_scale · F(norm(x)); y = norm(x)",
        added=PRE
        | number("attention.layer_scale", WIDTH)
        | number("feed_forward.layer_scale", WIDTH),
        scheme="normal-0.02",
        first={"layer_scale": 0.1},
    ),
    "zaya": Expected(
        equations=Equations(stack=zaya),
        formula=(
            "x ← scale · (x + bias); x ← skip_scale · (x + skip_bias) + branch_scale · (F(norm(x)) "
            "+ branch_bias); y = norm(x)"
        ),
        added=PRE
        | of_both("skip_scale", "skip_bias", "branch_scale", "branch_bias")
        | {"start.placed.bias": (WIDTH,), "start.placed.scale": (WIDTH,)},
        scheme="normal-0.02",
        first={"start.placed.scale": 1, "start.placed.bias": 0}
        | dict.fromkeys(("skip_scale", "branch_scale"), 1)
        | dict.fromkeys(("skip_bias", "branch_bias"), 0),
    ),
    "doge": Expected(
        equations=Equations(stack=doge),
        formula="x ← skip_scale · x + F(norm(x)); y = norm(x)",
        added=PRE | of_both("skip_scale"),
        scheme="normal-0.02",
        first={"skip_scale": 1},
    ),
    "gpas": Expected(
        equations=Equations(stack=gpas),
        formula="a = x + F(norm(x)); x ← a - silu(gate) · stopped(a); y = norm(x)",
        added=PRE | {"blocks.0.placed.gate": ()},
        scheme="normal-0.02",
        first={"gate": 0.0},
    ),
    "norm-preserving": Expected(
        equations=Equations(stack=norm_preserving),
        formula=(
            "x ← √(1 - 0.9999 · min(1, 1/L · softplus(theta))) · x + "
            "√(0.9999 · min(1, 1/L · softplus(theta))) · F(norm(x)); y = norm(x)"
        ),
        added=PRE | {"blocks.0.placed.theta": ()},
        scheme="normal-0.02",
        first={"theta": 0.0},
    ),
}
