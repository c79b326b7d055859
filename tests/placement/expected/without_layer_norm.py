"""What stands in the place of LayerNorm: gates, weights scaled to the depth, or vectors of one
length.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from placement.expectations import (
    FFN_WIDTH,
    HEADS,
    PRE,
    VOCABULARY,
    WIDTH,
    Expected,
    Gain,
    norms,
    number,
)
from reference import Equations, ReferenceStack, length

from .pre_and_post import PRE_FORMULA, pre_ln


def rezero(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        for f in block:
            x = x + stack.w[f"{stack.at}blocks.{f.block - 1}.placed.gate"] * f(x)
    return x


BRANCH_GAIN = {"encoder": 0.67 * 2**-0.25, "decoder": (9 * 2) ** -0.25}


def t_fixup(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(x)
    return x


def gain(of: Gain) -> float:
    return 1.0 if of.matrix in ("query", "key") else BRANCH_GAIN[of.stack]


SCALED = "√d · s_qk · norm_query(query), √d · s_qk · norm_key(key)"
# Its own norm, on the sphere, has no parameters: these are all.
NUMBERS = (
    number("attention.step", WIDTH)
    | number("attention.s_qk", WIDTH)
    | number("feed_forward.step", WIDTH)
    | number("feed_forward.s_u", FFN_WIDTH)
)
NORMS = norms(
    "start.main", "attention.main", "attention.branch", "feed_forward.main", "feed_forward.branch"
) | norms("attention.query.each", "attention.key.each", width=WIDTH // HEADS)


def ngpt(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Loshchilov et al. 2024 on the unit sphere: softmax scale √d_k, u times √d, numbers stored at
    1/√d.

    Its matrices have no biases; a bias b beside a stream of length √d is b/√d beside one of length
    1.
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
    """The same steps with LayerNorm or RMSNorm, whose output has length √d, in place of n: no paper
    has it.
    """
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
    "rezero": Expected(
        equations=Equations(stack=rezero),
        formula="x ← x + gate · F(x)",
        added={"blocks.0.placed.gate": ()},
        scheme="rezero",
        first={"gate": 0},
        starts_closed=True,
    ),
    "t-fixup": Expected(
        equations=Equations(stack=t_fixup),
        formula="x ← x + F(x)",
        added={},
        models=frozenset({"encoder-decoder"}),
        scheme="xavier-uniform",
        gain=gain,
        embedding_gain=18**-0.25,
    ),
    "scale-norm": Expected(
        # Nguyen & Salazar 2019, section 2.3: unit rows, times √d where they enter.
        equations=Equations(
            stack=pre_ln,
            rows=lambda rows: math.sqrt(rows.shape[-1]) * rows / length(rows),
            logits=lambda hidden, table, w: hidden @ (table / length(table)).T,
        ),
        formula=PRE_FORMULA,
        added=PRE,
        norm="scale-norm",
        scheme="small-attention",
        # Embeddings of fixed length are not looked at; without them it is Pre-LN with another norm.
        named_for_sure=False,
    ),
    "ngpt": Expected(
        # With gains the stream is √d long in both, and the logits as ours.
        equations=Equations(stack=ngpt_with_gains, logits=logits(1.0)),
        own_norm_equations=Equations(stack=ngpt, logits=logits(1 / (1 / ROOT)), length=ROOT),
        formula=(
            f"x ← norm(x); attention: x ← norm(x + 0.05√d · step · (norm_branch(F(x, {SCALED})) - "
            "x)); feed_forward: x ← norm(x + 0.05√d · step · (norm_branch(F(x, s_u · hidden)) - x))"
        ),
        added=NUMBERS | NORMS,
        head={"head.placed.s_z": (VOCABULARY, 1)},
        norm="sphere-norm",
        norm_epsilon=1e-12,
        scheme="normal-by-width",
        # Stored at 1/√d behind constants that make them 0.05, 1 and 1.
        first={"s_u": 1} | dict.fromkeys(("step", "s_qk", "s_z"), 96**-0.5),
    ),
}
