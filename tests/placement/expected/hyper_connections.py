"""Hyper-connections, dynamic and static."""

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, norms, number
from reference import Equations, ReferenceStack, ReferenceSublayer

N = 4


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
        beta = f.placed("beta")[:, None] + dynamic(f, streams, "beta").expand(*streams.shape[:-1], 1)
        mixed = alpha.transpose(-1, -2) @ streams
        branch = f(f.norm(mixed[..., 0, :]))
        streams = mixed[..., 1:, :] + beta * branch[..., None, :]
    return stack.final_norm(streams.sum(-2))


def alpha_at(name: str) -> list[list[float]]:
    """The identity, after a column that reads one stream after the other."""
    stack, _, block, kind, *_ = name.split(".")
    kinds = ["attention", "feed_forward"] if stack == "encoder" else ["attention", "cross_attention", "feed_forward"]
    read = (int(block) * len(kinds) + kinds.index(kind)) % N
    return torch.cat([torch.eye(N)[:, read : read + 1], torch.eye(N)], 1).tolist()


ADDED = PRE
DYNAMIC = norms("attention.streams", "feed_forward.streams")
for _place in ("attention", "feed_forward"):
    ADDED = ADDED | number(f"{_place}.alpha", N, N + 1) | number(f"{_place}.beta", N)
    DYNAMIC = DYNAMIC | number(f"{_place}.alpha_weight", N + 1, WIDTH) | number(f"{_place}.beta_weight", 1, WIDTH)
    DYNAMIC = DYNAMIC | number(f"{_place}.alpha_scale") | number(f"{_place}.beta_scale")


def printed(alpha, beta) -> str:
    """alpha(i, j), beta(j): how the weights print."""
    read = f"{alpha(1, 0)} · x1 + … + {alpha(4, 0)} · x4"
    rows = "; ".join(f"x{j} ← {alpha(1, j)} · x1 + … + {alpha(4, j)} · x4 + {beta(j)} · a" for j in range(1, N + 1))
    return f"a = F(norm({read})); {rows}; y = norm(x1 + x2 + x3 + x4)"


MEANINGS = "; ".join(
    f"{letter}{i} = tanh({name}_weight · norm_streams(x{i}))"
    for letter, name in (("a", "alpha"), ("b", "beta"))
    for i in range(1, N + 1)
)
EXPECTED = {
    "hyper-connections": Expected(
        equations=Equations(stack=hyper_connections),
        formula=f"{MEANINGS}; "
        + printed(
            lambda i, j: f"(alpha_{i}{j + 1} + alpha_scale · a{i}_{j + 1})",
            lambda j: f"(beta_{j} + beta_scale · b{j})",
        ),
        added=ADDED | DYNAMIC,
        scheme="normal-0.02",
        first={"alpha": alpha_at, "beta": 1.0, "alpha_weight": 0.0, "beta_weight": 0.0}
        | {"alpha_scale": 0.01, "beta_scale": 0.01},
    ),
    "hyper-connections-static": Expected(
        equations=Equations(stack=static),
        formula=printed(lambda i, j: f"alpha_{i}{j + 1}", lambda j: f"beta_{j}"),
        added=ADDED,
        scheme="normal-0.02",
        first={"alpha": alpha_at, "beta": 1.0},
    ),
}
