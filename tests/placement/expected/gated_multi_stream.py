"""Gated multi-stream."""

import torch
from torch import Tensor

from placement.expectations import WIDTH, Expected, Shapes, norms, number
from reference import Equations, ReferenceNorms, ReferenceStack

N, RANK = 4, 1


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
    return number(f"{place}.down_weight", 1, RANK, N * WIDTH) | number(f"{place}.up_weight", N, WIDTH, RANK)


ADDED = weights("finish") | norms(*(f"finish.x{i}" for i in range(1, N + 1)))
for _place in ("attention", "feed_forward"):
    ADDED = ADDED | weights(_place) | number(f"{_place}.write_weight", N, N * WIDTH)
    ADDED = ADDED | norms(*(f"{_place}.x{i}" for i in range(1, N + 1)))

R = f"beside({', '.join(f'norm_x{i}(x{i})' for i in range(1, N + 1))})"
GATES = f"low = silu(0.25 · down_weight · {R}); gate = σ(up_weight · low); "
MEAN = "(gate_1 · norm_x1(x1) + … + gate_4 · norm_x4(x4)) / 4"

EXPECTED = {
    "gated-multi-stream": Expected(
        equations=Equations(stack=gated),
        formula=(
            f"write = σ(0.25 · write_weight · {R}); {GATES}a = F({MEAN}); "
            + "; ".join(f"x{j} ← x{j} + 2 · write_{j} · a" for j in range(1, N + 1))
            + f"; {GATES}y = {MEAN}"
        ),
        added=ADDED,
        norm_epsilon=1e-6,
        scheme="normal-0.02",
        drawn={f"{name}_weight": 0.02 for name in ("write", "down", "up")},
        found_by_doctor=False,
    )
}
