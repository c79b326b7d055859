"""Four residual streams that every sub-layer reads, mixes and writes by weights, mostly of each
token.
"""

import math
from functools import partial

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, Shapes, norms, number
from reference import Equations, ReferenceNorms, ReferenceStack, ReferenceSublayer

N = 4
"""Streams."""


def hyper_connections(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Zhu et al. 2024, algorithm 2: width connection, the layer, depth connection."""

    def dynamic(f: ReferenceSublayer, streams: Tensor, name: str) -> Tensor:
        normed = torch.stack([f.norm.named("streams", part) for part in streams.unbind(-2)], -2)
        return f.placed(f"{name}_scale") * torch.tanh(normed @ f.placed(f"{name}_weight").T)

    return connected(x, stack, dynamic)


def static(x: Tensor, stack: ReferenceStack) -> Tensor:
    return connected(x, stack, lambda f, streams, name: torch.zeros((), dtype=streams.dtype))


def connected(x: Tensor, stack: ReferenceStack, dynamic) -> Tensor:
    streams = torch.stack([x] * N, -2)  # (B, T, 4, D)
    for f in stack.sublayers():
        alpha = f.placed("alpha") + dynamic(f, streams, "alpha").expand(*streams.shape[:-1], N + 1)
        beta = f.placed("beta")[:, None] + dynamic(f, streams, "beta").expand(
            *streams.shape[:-1], 1
        )
        mixed = alpha.transpose(-1, -2) @ streams
        branch = f(f.norm(mixed[..., 0, :]))
        streams = mixed[..., 1:, :] + beta * branch[..., None, :]
    return stack.final_norm(streams.sum(-2))


def alpha_at(name: str) -> list[list[float]]:
    """The identity, after a column that reads one stream after the other."""
    stack, _, block, kind, *_ = name.split(".")
    kinds = (
        ["attention", "feed_forward"]
        if stack == "encoder"
        else ["attention", "cross_attention", "feed_forward"]
    )
    read = (int(block) * len(kinds) + kinds.index(kind)) % N
    return torch.cat([torch.eye(N)[:, read : read + 1], torch.eye(N)], 1).tolist()


CONNECTED = PRE
DYNAMIC = norms("attention.streams", "feed_forward.streams")
for _place in ("attention", "feed_forward"):
    CONNECTED = CONNECTED | number(f"{_place}.alpha", N, N + 1) | number(f"{_place}.beta", N)
    DYNAMIC = (
        DYNAMIC
        | number(f"{_place}.alpha_weight", N + 1, WIDTH)
        | number(f"{_place}.beta_weight", 1, WIDTH)
    )
    DYNAMIC = DYNAMIC | number(f"{_place}.alpha_scale") | number(f"{_place}.beta_scale")


def printed(alpha, beta) -> str:
    """alpha(i, j), beta(j): how the weights print."""
    read = f"{alpha(1, 0)} · x1 + … + {alpha(4, 0)} · x4"
    rows = "; ".join(
        f"x{j} ← {alpha(1, j)} · x1 + … + {alpha(4, j)} · x4 + {beta(j)} · a"
        for j in range(1, N + 1)
    )
    return f"a = F(norm({read})); {rows}; y = norm(x1 + x2 + x3 + x4)"


MEANINGS = "; ".join(
    f"{letter}{i} = tanh({name}_weight · norm_streams(x{i}))"
    for letter, name in (("a", "alpha"), ("b", "beta"))
    for i in range(1, N + 1)
)


def doubly_stochastic(logits: Tensor, rounds: int = 20, epsilon: float = 0.0) -> Tensor:
    """(B, T, 16) -> (B, T, 4, 4), row and column, in the order of the authors' steps."""
    matrix = logits.unflatten(-1, (N, N)).exp()
    matrix = matrix / matrix.sum(-1, keepdim=True) + epsilon
    matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + epsilon)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    return matrix


def mhc(x: Tensor, stack: ReferenceStack, epsilon: float = 0.0) -> Tensor:
    streams = torch.stack([x] * N, -2)  # (B, T, 4, D)
    for f in stack.sublayers():

        def logits(name: str, at: str = f"{f.at}placed.", streams: Tensor = streams) -> Tensor:
            return projected(stack.w, at, name, streams)

        pre, post = logits("pre").sigmoid() + epsilon, 2 * logits("post").sigmoid()
        c = doubly_stochastic(logits("C"), epsilon=epsilon)
        branch = f(f.norm(torch.einsum("bti,btid->btd", pre, streams)))
        streams = torch.einsum("btij,btid->btjd", c, streams) + torch.einsum(
            "btj,btd->btjd", post, branch
        )
    head = projected(stack.w, f"{stack.at}finish.placed.", "head", streams).sigmoid() + epsilon
    return stack.final_norm(torch.einsum("bti,btid->btd", head, streams))


def projected(w: dict[str, Tensor], at: str, name: str, streams: Tensor) -> Tensor:
    flat = streams.flatten(-2)
    root = ((flat * flat).mean(-1, keepdim=True) + 1e-6).sqrt()
    return (
        w[f"{at}{name}_scale"] * (flat @ w[f"{at}{name}_weight"].T) / root + w[f"{at}{name}_bias"]
    )


def numbers(place: str, name: str, rows: int) -> Shapes:
    return (
        number(f"{place}.{name}_weight", rows, N * WIDTH)
        | number(f"{place}.{name}_bias", rows)
        | number(f"{place}.{name}_scale")
    )


MHC = PRE | numbers("finish", "head", N)
for _place in ("attention", "feed_forward"):
    MHC = MHC | numbers(_place, "pre", N) | numbers(_place, "post", N) | numbers(_place, "C", N * N)

R = "rms(x1, x2, x3, x4)"


def formula(pre: str, head: str) -> str:
    """With an entry of pre and of head as it is printed, `#` for its number."""

    def read(entry: str) -> str:
        return " + … + ".join(f"{entry.replace('#', i)} · x{i}" for i in "14")

    return (
        f"C = doubly_stochastic(C_scale · C_weight · {R} + C_bias); "
        f"post = σ(post_scale · post_weight · {R} + post_bias); "
        f"pre = σ(pre_scale · pre_weight · {R} + pre_bias); "
        f"a = F(norm({read(pre)})); "
        + "; ".join(f"x{j} ← C_1{j} · x1 + … + C_4{j} · x4 + 2 · post_{j} · a" for j in range(1, 5))
        + f"; head = σ(head_scale · head_weight · {R} + head_bias); y = norm({read(head)})"
    )


DRAWN = {f"{name}_weight": 0.02 for name in ("pre", "post", "C", "head")}
FIRST_MIXTURE = tuple(f"blocks.0.attention.placed.C_{part}" for part in ("weight", "bias", "scale"))
"""One of equal streams, so that no output depends on it."""


def independent(x: Tensor, stack: ReferenceStack) -> Tensor:
    """As transformers' HYV4HyperConnection and its decoder layer."""
    streams = torch.stack([x] * N, -2)
    for f in stack.sublayers():
        at = f"{f.at}placed."
        pre = projected(stack.w, at, "pre", streams).sigmoid() + 1e-6
        post = 2 * projected(stack.w, at, "post", streams).sigmoid() + 1e-6
        branch = f(f.norm((pre[..., None] * streams).sum(-2)))
        streams = streams + post[..., None] * branch[..., None, :]
    head = projected(stack.w, f"{stack.at}finish.placed.", "head", streams).sigmoid() + 1e-6
    return stack.final_norm((head[..., None] * streams).sum(-2))


INDEPENDENT = PRE | numbers("finish", "head", N)
for _place in ("attention", "feed_forward"):
    INDEPENDENT = INDEPENDENT | numbers(_place, "pre", N) | numbers(_place, "post", N)


RANK = 1


def gated(x: Tensor, stack: ReferenceStack) -> Tensor:
    """As transformers' Qwen4ExpTextGatedResidual and its decoder layer."""
    streams = [x] * N
    for f in stack.sublayers():
        r = normed(streams, f.norm)
        write = 2 * (r @ f.placed("write_weight").T / N).sigmoid()
        branch = f(mean(r, stack.w, f"{f.at}placed."))
        streams = [stream + write[..., [i]] * branch for i, stream in enumerate(streams)]
    return mean(normed(streams, stack.final_norm), stack.w, f"{stack.at}finish.placed.")


def normed(streams: list[Tensor], norm: ReferenceNorms) -> Tensor:
    return torch.cat([norm.named(f"x{i}", stream) for i, stream in enumerate(streams, 1)], -1)


def mean(r: Tensor, w: dict[str, Tensor], at: str) -> Tensor:
    low = r @ w[f"{at}down_weight"].flatten(0, 1).T / N
    gates = (low / (1 + (-low).exp())) @ w[f"{at}up_weight"].flatten(0, 1).T
    return (gates.sigmoid() * r).unflatten(-1, (N, -1)).mean(-2)


def weights(place: str) -> Shapes:
    return number(f"{place}.down_weight", 1, RANK, N * WIDTH) | number(
        f"{place}.up_weight", N, WIDTH, RANK
    )


GATED = weights("finish") | norms(*(f"finish.x{i}" for i in range(1, N + 1)))
for _place in ("attention", "feed_forward"):
    GATED = GATED | weights(_place) | number(f"{_place}.write_weight", N, N * WIDTH)
    GATED = GATED | norms(*(f"{_place}.x{i}" for i in range(1, N + 1)))

BESIDE = f"beside({', '.join(f'norm_x{i}(x{i})' for i in range(1, N + 1))})"
GATES = f"low = silu(0.25 · down_weight · {BESIDE}); gate = σ(up_weight · low); "
MEAN = "(gate_1 · norm_x1(x1) + … + gate_4 · norm_x4(x4)) / 4"


EXPECTED = {
    "hyper-connections": Expected(
        equations=Equations(stack=hyper_connections),
        formula=f"{MEANINGS}; "
        + printed(
            lambda i, j: f"(alpha_{i}{j + 1} + alpha_scale · a{i}_{j + 1})",
            lambda j: f"(beta_{j} + beta_scale · b{j})",
        ),
        added=CONNECTED | DYNAMIC,
        scheme="normal-0.02",
        first={"alpha": alpha_at, "beta": 1.0, "alpha_weight": 0.0, "beta_weight": 0.0}
        | {"alpha_scale": 0.01, "beta_scale": 0.01},
    ),
    "hyper-connections-static": Expected(
        equations=Equations(stack=static),
        formula=printed(lambda i, j: f"alpha_{i}{j + 1}", lambda j: f"beta_{j}"),
        added=CONNECTED,
        scheme="normal-0.02",
        first={"alpha": alpha_at, "beta": 1.0},
    ),
    "mhc": Expected(
        equations=Equations(stack=mhc),
        formula=formula("pre_#", "head_#"),
        added=MHC,
        scheme="normal-0.02",
        first={"pre_bias": -math.log(3), "post_bias": 0.0, "head_bias": -math.log(3)}
        | {f"{name}_scale": 0.01 for name in ("pre", "post", "C", "head")}
        | {"C_bias": tuple(torch.eye(N).flatten().tolist())},
        drawn=DRAWN,
        # Four tensors do not show whether the weights between them sum to 1.
        named_for_sure=False,
        idle=FIRST_MIXTURE,
    ),
    "mhc-deepseek-v4": Expected(
        equations=Equations(stack=partial(mhc, epsilon=1e-6)),
        formula=formula("(pre_# + 1e-06)", "(head_# + 1e-06)"),
        added=MHC,
        scheme="normal-0.02",
        first={f"{name}_bias": 0.0 for name in ("pre", "post", "C", "head")}
        | {f"{name}_scale": 1.0 for name in ("pre", "post", "C", "head")},
        drawn=DRAWN,
        named_for_sure=False,
        same_formula="mhc",
        refused_by_theory="drawn with a standard deviation of 0.91 over 2,048 features",
        # But for the ε, by which sums of C differ from 1.
        idle=FIRST_MIXTURE,
    ),
    "independent-hyper-connections": Expected(
        equations=Equations(stack=independent),
        formula=(
            f"post = σ(post_scale · post_weight · {R} + post_bias); "
            f"pre = σ(pre_scale · pre_weight · {R} + pre_bias); "
            "a = F(norm((pre_1 + 1e-06) · x1 + … + (pre_4 + 1e-06) · x4)); "
            + "; ".join(f"x{j} ← x{j} + (2 · post_{j} + 1e-06) · a" for j in range(1, 5))
            + f"; head = σ(head_scale · head_weight · {R} + head_bias); "
            "y = norm((head_1 + 1e-06) · x1 + … + (head_4 + 1e-06) · x4)"
        ),
        added=INDEPENDENT,
        scheme="normal-0.02",
        first={"pre_bias": -math.log(3), "post_bias": 0.0, "head_bias": -math.log(3)}
        | {f"{name}_scale": 0.01 for name in ("pre", "post", "head")},
        drawn={f"{name}_weight": 0.02 for name in ("pre", "post", "head")},
    ),
    "gated-multi-stream": Expected(
        equations=Equations(stack=gated),
        formula=(
            f"write = σ(0.25 · write_weight · {BESIDE}); {GATES}a = F({MEAN}); "
            + "; ".join(f"x{j} ← x{j} + 2 · write_{j} · a" for j in range(1, N + 1))
            + f"; {GATES}y = {MEAN}"
        ),
        added=GATED,
        norm_epsilon=1e-6,
        scheme="normal-0.02",
        drawn={f"{name}_weight": 0.02 for name in ("write", "down", "up")},
        found_by_doctor=False,
    ),
}
