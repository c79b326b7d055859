"""Small Transformers with several residual streams in one tensor, written in the ways of public
code.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from doctor.wired import VOCABULARY, WIDTH, Attention

STREAMS = 4


def rms(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def sinkhorn(logits: Tensor, rounds: int = 20) -> Tensor:
    """Positive, with rows and columns that add up to 1."""
    matrix = logits.softmax(-1)
    for _ in range(rounds):
        matrix = matrix / matrix.sum(-2, keepdim=True)
        matrix = matrix / matrix.sum(-1, keepdim=True)
    return matrix


class Dynamic(nn.Module):
    """Weights for every token from all streams, as mHC makes them (Xie et al. 2026)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(STREAMS * (2 + STREAMS), STREAMS * WIDTH))
        self.bias = nn.Parameter(0.02 * torch.randn(STREAMS * (2 + STREAMS)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, n, D) to (B, T, n), (B, T, n, n) and (B, T, n)."""
        pre, post, mixing = (rms(x.flatten(-2)) @ self.weight.mT + self.bias).split(
            [STREAMS, STREAMS, STREAMS**2], -1
        )
        return (
            pre.sigmoid(),
            self.connecting(mixing.unflatten(-1, (STREAMS, STREAMS))),
            self.expanding(post),
        )

    def connecting(self, logits: Tensor) -> Tensor:
        return sinkhorn(logits)

    def expanding(self, logits: Tensor) -> Tensor:
        return 2 * logits.sigmoid()


class Static(nn.Module):
    """Trained numbers, as static hyper-connections have them (Zhu et al. 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.pre, self.post = nn.Parameter(torch.rand(STREAMS)), nn.Parameter(torch.rand(STREAMS))
        self.mixing = nn.Parameter(torch.eye(STREAMS) + 0.1 * torch.randn(STREAMS, STREAMS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.pre, self.mixing, self.post


Join = Callable[[Tensor, Callable[[Tensor], Tensor], nn.Module], Tensor]
"""Streams (B, T, n, D), F, what makes the weights -> the streams after it."""


def by_matmul(x: Tensor, f: Callable[[Tensor], Tensor], weights: nn.Module) -> Tensor:
    pre, mixing, post = weights(x)
    return post.unsqueeze(-1) * f((pre.unsqueeze(-1) * x).sum(-2)).unsqueeze(-2) + mixing @ x


def by_einsum(x: Tensor, f: Callable[[Tensor], Tensor], weights: nn.Module) -> Tensor:
    pre, mixing, post = weights(x)
    y = f(torch.einsum("...n,...nd->...d", pre, x))
    return torch.einsum("...mn,...nd->...md", mixing, x) + torch.einsum("...n,...d->...nd", post, y)


def flat(x: Tensor, f: Callable[[Tensor], Tensor], weights: nn.Module) -> Tensor:
    """The streams as (B, T, n·D) between the sub-layers."""
    pre, _, post = weights(x)
    y = (pre.unsqueeze(-1) * x).mean(-2)
    return (x.flatten(-2) + (post.unsqueeze(-1) * f(y).unsqueeze(-2)).flatten(-2)).unflatten(
        -1, x.shape[-2:]
    )


def as_it_is(x: Tensor, f: Callable[[Tensor], Tensor], weights: nn.Module) -> Tensor:
    pre, mixing, _ = weights(x)
    return mixing @ x + f((pre.unsqueeze(-1) * x).sum(-2)).unsqueeze(-2)


@dataclass(frozen=True, kw_only=True)
class Wiring:
    join: Join
    weights: Callable[[], nn.Module] = Dynamic


class SeveralStreams(nn.Module):
    """Embedding, blocks of attention and feed-forward between streams, a sum of the streams, a
    norm, and logits.
    """

    def __init__(
        self, join: Join, weights: Callable[[], nn.Module] = Dynamic, *, blocks: int = 3
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.join = join
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.f = nn.ModuleList(
            Attention()
            if n % 2 == 0
            else nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
            for n in range(2 * blocks)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in self.f)
        self.weights = nn.ModuleList(weights() for _ in self.f)
        self.final = nn.RMSNorm(WIDTH, eps=1e-6)
        self.projection = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids).unsqueeze(-2).expand(-1, -1, STREAMS, -1).contiguous()
        for f, norm, weights in zip(self.f, self.norms, self.weights, strict=True):
            x = self.join(x, lambda y, f=f, norm=norm: f(norm(y)), weights)
        return self.projection(self.final(self.collapsed(x)))

    def collapsed(self, x: Tensor) -> Tensor:
        return x.mean(-2)


def ids() -> tuple[Tensor]:
    return (torch.randint(VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1)),)
