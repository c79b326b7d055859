"""Every placement's equations as its paper writes them, over plain tensors: what our formulas must agree with.

Nothing of ours is imported. Where a paper has no equation for a case (cross-attention, biases), the note says how it
was read.
"""

# D = width, I = values of a history
import math
from collections.abc import Callable

import torch
from torch import Tensor

from reference import Equations, ReferenceStack, ReferenceSublayer, length

Formula = Callable[[Tensor, ReferenceStack], Tensor]


def post_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + f(x))
    return x


def pre_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x))
    return stack.final_norm(x)


def weighed_skip(scale: Callable[[ReferenceStack], float]) -> Formula:
    """LN(scale · x + F(x)): DeepNorm, admin-torch."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = f.norm(scale(stack) * x + f(x))
        return x

    return formula


def deepnorm_alpha(stack: ReferenceStack) -> float:
    """Wang et al. 2022, figure 2, for 2 encoder and 3 decoder blocks, or 3 alone."""
    return {"": 6**0.25, "encoder.": 0.81 * (2**4 * 3) ** (1 / 16), "decoder.": 9**0.25}[stack.at]


def sublayers_of(stack: ReferenceStack) -> int:
    return stack.blocks * len(stack.kinds)


def admin_log_n(stack: ReferenceStack) -> float:
    n = sublayers_of(stack)
    return math.sqrt((n + 1) / math.log(n + 1) - 1)


def admin(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(f.placed("skip_scale") * x + f(x))
    return x


def residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    branches = [x]
    for f in stack.sublayers():
        branches.append(f(x))
        x = f.norm(x + branches[-1])
    return x + stack.final_norm(sum(branches))


def b2t(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Takase et al. 2022: LN(x_inp + x_ffn + FFN(x_ffn)), x_inp the input of the block, x_ffn that of its FFN."""
    for block in stack.by_block():
        x_inp, x_ffn = x, x
        for f in block[:-1]:
            x_ffn = f.norm(x_ffn + f(x_ffn))
        x = block[-1].norm(x_inp + x_ffn + block[-1](x_ffn))
    return x


def branch_norm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + stack.scheduled * f(x))
    return x


def pre_to_post(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: a straight line between the values of Pre-LN and those of Post-LN, wherever either has a norm."""

    def between(pre: Tensor, post: Tensor) -> Tensor:
        return pre + stack.scheduled * (post - pre)

    for f in stack.sublayers():
        z = x + f(between(f.norm.named("pre", x), x))
        x = between(z, f.norm.named("post", z))
    return between(stack.final_norm(x), x)


def rezero(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        for f in block:
            x = x + stack.w[f"{stack.at}blocks.{f.block - 1}.placed.gate"] * f(x)
    return x


def t_fixup(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(x)
    return x


def sub_ln(*plain: str) -> Formula:
    """plain: sub-layers without the inner norm."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            inside = {} if f.kind in plain else {"output": lambda y, f=f: f.norm.named("inner", y)}
            x = x + f(f.norm(x), **inside)
        return stack.final_norm(x)

    return formula


def layer_norm_scaling(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x) * f.block**-0.5)
    return stack.final_norm(x)


def mix_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    post = {4: 1, 5: 1, 9: 2}[stack.blocks]
    for f in stack.sublayers():
        x = f.norm(x + f(x)) if f.block <= post else x + f(f.norm(x))
    return stack.final_norm(x)


def keel(pre_blocks: int) -> Formula:
    """pre_blocks: how many blocks at the bottom are plain Pre-LN."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            branch = f(f.norm.named("inner", x))
            x = x + branch if f.block <= pre_blocks else f.norm.named("outer", sublayers_of(stack) * x + branch)
        return x

    return formula


def reordered(*normed: str) -> Formula:
    """normed: the projections normed over their whole width, of attention and cross-attention."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            places = normed if f.kind != "feed_forward" else ()
            x = x + f.norm(f(x, **{p: lambda y, f=f, p=p: f.norm.named(p, y) for p in places}))
        return stack.final_norm(x)

    return formula


def sandwich(*, embedding_normed: bool) -> Formula:
    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        if embedding_normed:
            x = stack.end("start")(x)
        for f in stack.sublayers():
            x = x + f.norm.named("after", f(f.norm.named("before", x)))
        return stack.final_norm(x)

    return formula


def hybrid_norm(*, star: bool = False, by_head: bool = True) -> Formula:
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

    return formula


def mean_over_depth(values: list[Tensor], query: Tensor, key: Callable[[Tensor], Tensor]) -> Tensor:
    """Kimi team 2026, eq. 2 to 4: Σ_i softmax_i(query · key(v_i)) v_i."""
    scores_I = torch.stack([(query * key(v)).sum(-1) for v in values], -1).exp()
    shares_I = scores_I / scores_I.sum(-1, keepdim=True)
    return sum(shares_I[..., i, None] * v for i, v in enumerate(values))


def last_mean(values: list[Tensor], stack: ReferenceStack) -> Tensor:
    query, final_norm = stack.w[f"{stack.at}finish.placed.query"], stack.final_norm
    return final_norm(mean_over_depth(values, query, lambda v: final_norm.named("key", v)))


def attention_residuals(x: Tensor, stack: ReferenceStack) -> Tensor:
    values = [x]
    for f in stack.sublayers():
        h = mean_over_depth(values, f.placed("query"), lambda v, f=f: f.norm.named("key", v))
        values.append(f(f.norm(h)))
    return last_mean(values, stack)


def block_attention_residuals(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Kimi team 2026, figure 2, line by line: `layer_number` counts Transformer layers from 0, and a group is closed
    before a layer alone. 8 groups at most."""
    layers_a_group = math.ceil(stack.blocks / 8)
    blocks: list[Tensor] = []
    partial_block = x
    for layer_number, layer in enumerate(stack.by_block()):
        for f in layer:
            h = mean_over_depth([*blocks, partial_block], f.placed("query"), lambda v, f=f: f.norm.named("key", v))
            if f is layer[0] and layer_number % layers_a_group == 0:
                blocks.append(partial_block)
                partial_block = torch.zeros_like(x)
            partial_block = partial_block + f(f.norm(h))
    return last_mean([*blocks, partial_block], stack)


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


def ngpt_logits(root: float) -> Callable[[Tensor, Tensor, dict[str, Tensor]], Tensor]:
    """s_z · (E h), s_z being `root` times what is stored."""
    return lambda hidden, table, w: root * w["head.placed.s_z"][:, 0] * (hidden @ table.T)


FIX_NORM = {
    "rows": lambda rows: math.sqrt(rows.shape[-1]) * rows / length(rows),
    "logits": lambda hidden, table, w: hidden @ (table / length(table)).T,
}
"""Nguyen & Salazar 2019, section 2.3: unit rows, times √d where they enter."""

EQUATIONS: dict[str, Equations] = {
    "admin": Equations(stack=admin),
    "admin-clinic": Equations(stack=admin),
    "admin-constant": Equations(stack=weighed_skip(lambda stack: math.sqrt(sublayers_of(stack)))),
    "admin-log-n": Equations(stack=weighed_skip(admin_log_n)),
    "attn-res": Equations(stack=attention_residuals),
    "attn-res-block": Equations(stack=block_attention_residuals),
    "b2t": Equations(stack=b2t),
    "b2t-rescaled": Equations(stack=b2t),
    "branch-norm": Equations(stack=branch_norm),
    "deepnorm": Equations(stack=weighed_skip(deepnorm_alpha)),
    "ds-init": Equations(stack=post_ln),
    "ds-init-code": Equations(stack=post_ln),
    "gpt2": Equations(stack=pre_ln),
    "hybrid-norm": Equations(stack=hybrid_norm()),
    "hybrid-norm-star": Equations(stack=hybrid_norm(star=True)),
    "hybrid-norm-width": Equations(stack=hybrid_norm(by_head=False)),
    "keel": Equations(stack=keel(0)),
    "keel-pre-first": Equations(stack=keel(1)),
    "lns": Equations(stack=layer_norm_scaling),
    "mix-ln": Equations(stack=mix_ln),
    # With gains the stream is √d long in both, and the logits as ours.
    "ngpt": Equations(stack=ngpt_with_gains, logits=ngpt_logits(1.0)),
    "olmo-2": Equations(stack=reordered("query", "key")),
    "peri-ln": Equations(stack=sandwich(embedding_normed=True)),
    "post-ln": Equations(stack=post_ln),
    "pre-ln": Equations(stack=pre_ln),
    "pre-to-post": Equations(stack=pre_to_post),
    "reordered": Equations(stack=reordered()),
    "residual": Equations(stack=residual),
    "rezero": Equations(stack=rezero),
    "sandwich": Equations(stack=sandwich(embedding_normed=False)),
    "scale-norm": Equations(stack=pre_ln, **FIX_NORM),
    "sub-ln": Equations(stack=sub_ln("cross_attention")),
    "sub-ln-cross": Equations(stack=sub_ln()),
    "t-fixup": Equations(stack=t_fixup),
}


def ngpt_of_the_paper(width: int) -> Equations:
    root = math.sqrt(width)
    return Equations(stack=ngpt, logits=ngpt_logits(1 / (1 / root)), length=root)
