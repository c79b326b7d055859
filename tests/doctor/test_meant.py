"""What models do on purpose is no error and no warning: designs that were taken for mistakes, each
rebuilt small.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from doctor.test_lint_values import above_info
from doctor.wired import VOCABULARY, WIDTH, Attention, Block, F, Model, Stack, post, pre, tokens
from normscope.doctor.lint.linter import lint
from normscope.doctor.lint.patient import Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))


def found(model: nn.Module) -> list[Finding]:
    stacks, observed = examined(model, tokens(model))
    of = Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)
    return above_info(lint(of))


class SharedExperts(nn.Module):
    """A block whose feed-forward is a dense one, or several added at once, as DeepSeek-V3's."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.attention, self.norms = (
            Attention(),
            nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2)),
        )
        self.experts = nn.ModuleList(feed_forward() for _ in range(1 + shared))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        read = self.norms[1](x)
        routed, *shared = (expert(read) for expert in self.experts)
        return x + (routed + shared[0] if shared else routed)


class ValueResidual(nn.Module):
    """Every block's values are mixed with those of the first, as in ResFormer
    (arXiv:2410.17897).
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.attentions = nn.ModuleList(Attention() for _ in range(4))
        self.ffns = nn.ModuleList(feed_forward() for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(9))

    def forward(self, source: Tensor) -> Tensor:
        x, first = self.embedding(source), None
        for n, (attention, ffn) in enumerate(zip(self.attentions, self.ffns, strict=True)):
            y = self.norms[2 * n](x)
            value = attention.value(y)
            first = value if first is None else first
            weights = (attention.query(y) @ attention.key(y).mT / WIDTH**0.5).softmax(-1)
            x = x + attention.last(weights @ (0.5 * value + 0.5 * first))
            x = x + ffn(self.norms[2 * n + 1](x))
        return self.head(0.1 * self.norms[8](x))


class FromTheStart(nn.Module):
    """x ← λ x + μ x₀ before every block, as nanochat's and modded-nanogpt's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, final=1))
        self.skip, self.start = (
            nn.Parameter(torch.full((4,), 0.95)),
            nn.Parameter(torch.full((4,), 0.05)),
        )

    def forward(self, source: Tensor) -> Tensor:
        start = x = self.inner.embedding(source)
        for n, block in enumerate(self.inner.encoder.blocks):
            x = block(self.skip[n] * x + self.start[n] * start)
        return self.inner.projection(self.inner.encoder.final_norm(x))


class UNet(nn.Module):
    """Blocks of the second half add what came out of those of the first, as modded-nanogpt's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, final=1))
        self.weights = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, source: Tensor) -> Tensor:
        x, kept = self.inner.embedding(source), []
        for n, block in enumerate(self.inner.encoder.blocks):
            if n >= 2:
                x = x + self.weights[n - 2] * kept.pop()
            x = block(x)
            kept += [x] if n < 2 else []
        return self.inner.projection(self.inner.encoder.final_norm(x))


class TwoStreams(nn.Module):
    """Two streams in a list; every sub-layer reads their sum and is added to both, as
    hyper-connections start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=2, final=1))
        self.out = nn.Parameter(torch.tensor([[1.0, 0.5], [0.5, 1.0], [1.0, 0.5], [0.5, 1.0]]))

    def forward(self, source: Tensor) -> Tensor:
        streams = [self.inner.embedding(source)] * 2
        number = 0
        for block in self.inner.encoder.blocks:
            for f, norm in zip(block.f, block.norms, strict=True):
                y = f(norm(streams[0] + streams[1]))
                streams = [x + self.out[number, n] * y for n, x in enumerate(streams)]
                number += 1
        return self.inner.projection(self.inner.encoder.final_norm(streams[0] + streams[1]))


class Queries(nn.Module):
    """Learnt queries read an encoder once, without a sum around that, as Perceiver's decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=3, final=1))
        self.queries = nn.Parameter(torch.randn(7, WIDTH))
        self.reading, self.norms = Attention(), nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.ffn = feed_forward()

    def forward(self, source: Tensor) -> Tensor:
        x = self.inner.encoder(self.inner.embedding(source))
        y = self.reading(self.norms[0](self.queries.expand(len(x), -1, -1)), x)
        y = y + self.ffn(self.norms[1](y))
        return self.inner.projection(y)


def first_unnormed(x: Tensor, f: F, norm: F) -> Tensor:
    return x + f(x)


def alternating() -> nn.Module:
    rows = [(post, post) if n % 2 else (pre, pre) for n in range(4)]
    return Model(lambda: Stack(blocks=[Block(row) for row in rows], final=1))


def modern_bert() -> nn.Module:
    """Its first attention has no norm of its own, since the embedding has one."""
    blocks = [Block(row) for row in [(first_unnormed, pre), (pre, pre), (pre, pre), (pre, pre)]]
    blocks[0].norms[0] = nn.Identity()
    return Model(lambda: Stack(blocks=blocks, first=1, final=1))


MEANT: dict[str, Callable[[], nn.Module]] = {
    "shared experts from the second block on": lambda: Model(
        lambda: Stack(blocks=[SharedExperts(n > 0) for n in range(4)], final=1)
    ),
    "shared experts in every block": lambda: Model(
        lambda: Stack(blocks=[SharedExperts(True) for _ in range(4)], final=1)
    ),
    "value residuals": ValueResidual,
    "multiples of the start": FromTheStart,
    "skips from block to block": UNet,
    "two streams": TwoStreams,
    "a decoder of queries without a sum": Queries,
    "alternating placements": alternating,
    "a first block without a norm": modern_bert,
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", MEANT)
def test_a_design_is_no_mistake(name):
    assert found(MEANT[name]()) == []
