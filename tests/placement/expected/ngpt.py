"""nGPT, on the paper's unit sphere and with norms that have gains."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from placement.expectations import FFN_WIDTH, HEADS, VOCABULARY, WIDTH, Expected, norms, number
from reference import Equations, ReferenceStack, length

SCALED = "√d · s_qk · norm_query(query), √d · s_qk · norm_key(key)"
# Its own norm, on the sphere, has no parameters: these are all.
NUMBERS = (
    number("attention.step", WIDTH)
    | number("attention.s_qk", WIDTH)
    | number("feed_forward.step", WIDTH)
    | number("feed_forward.s_u", FFN_WIDTH)
)
NORMS = norms("start.main", "attention.main", "attention.branch", "feed_forward.main", "feed_forward.branch") | norms(
    "attention.query.each", "attention.key.each", width=WIDTH // HEADS
)


def ngpt(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Loshchilov et al. 2024 on the unit sphere: softmax scale √d_k, u times √d, numbers stored at 1/√d.

    Its matrices have no biases; a bias b beside a stream of length √d is b/√d beside one of length 1.
    """
    root = math.sqrt(x.shape[-1])

    def n(y: Tensor) -> Tensor:
        return y / length(y)

    def by_head(y: Tensor) -> Tensor:
        return torch.cat([n(part) for part in y.chunk(stack.heads, -1)], -1)

    x = n(x)
    for f in stack.sublayers():
        if f.kind == "feed_forward":
            u = f.affine("ffn_in", x, bias=1 / root)
            branch = f.affine("ffn_out", (f.placed("s_u") * root * u).clamp(min=0))
        else:
            source = stack.memory if f.kind == "cross_attention" else x
            s_qk = f.placed("s_qk") * (1 / (1 / root))
            query = s_qk * by_head(f.affine("query", x, bias=1 / root))
            key = s_qk * by_head(f.affine("key", source, bias=1 / root))
            value = f.affine("value", source, bias=1 / root)
            mixed = f.attend(query, key, value, math.sqrt(x.shape[-1] // stack.heads))
            branch = f.affine("output", mixed, bias=1 / root)
        alpha = f.placed("step") * (0.05 / (1 / root))
        x = n(x + alpha * (n(branch) - x))
    return x


def ngpt_with_gains(x: Tensor, stack: ReferenceStack) -> Tensor:
    """The same steps with LayerNorm or RMSNorm, whose output has length √d, in place of n: no paper has it."""
    root = math.sqrt(x.shape[-1])
    x = stack.end("start")(x)
    for f in stack.sublayers():
        if f.kind == "feed_forward":
            branch = f(x, hidden=lambda u, f=f: f.placed("s_u") * u)
        else:
            s_qk = f.placed("s_qk") * root
            branch = f(
                x,
                query=lambda q, f=f, s=s_qk: s * f.norm.by_head("query", q, stack.heads),
                key=lambda k, f=f, s=s_qk: s * f.norm.by_head("key", k, stack.heads),
            )
        step = 0.05 * root * f.placed("step")
        x = f.norm((1 - step) * x + step * f.norm.named("branch", branch))
    return x


def logits(root: float) -> Callable[[Tensor, Tensor, dict[str, Tensor]], Tensor]:
    """s_z · (E h), s_z being `root` times what is stored."""
    return lambda hidden, table, w: root * w["head.placed.s_z"][:, 0] * (hidden @ table.T)


ROOT = math.sqrt(WIDTH)
EXPECTED = {
    "ngpt": Expected(
        # With gains the stream is √d long in both, and the logits as ours.
        equations=Equations(stack=ngpt_with_gains, logits=logits(1.0)),
        own_norm_equations=Equations(stack=ngpt, logits=logits(1 / (1 / ROOT)), length=ROOT),
        formula=(
            f"x ← norm(x); attention: x ← norm(x + 0.05√d · step · (norm_branch(F(x, {SCALED})) - x)); "
            "feed_forward: x ← norm(x + 0.05√d · step · (norm_branch(F(x, s_u · hidden)) - x))"
        ),
        added=NUMBERS | NORMS,
        head={"head.placed.s_z": (VOCABULARY, 1)},
        norm="sphere-norm",
        norm_epsilon=1e-12,
        scheme="normal-by-width",
        # Stored at 1/√d behind constants that make them 0.05, 1 and 1.
        first={"s_u": 1} | dict.fromkeys(("step", "s_qk", "s_z"), 96**-0.5),
    )
}
