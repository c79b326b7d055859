"""Attention that looks at more than the tokens, or elsewhere than at its own, and means it."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import normscope
from doctor.wired import VOCABULARY, WIDTH, Attention, Model, Stack, pre
from normscope.doctor.diagnose import Diagnosis

IDS = torch.randint(VOCABULARY, (2, 30), generator=torch.Generator().manual_seed(1))


class BesideGlobalTokens(Attention):
    """Attention to trained tokens, which stand in front of a sequence's own, as Pegasus-X's."""

    def __init__(self) -> None:
        super().__init__()
        self.everywhere = nn.Parameter(torch.randn(8, WIDTH))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        rows = self.everywhere.expand(len(x), -1, -1)
        key = torch.cat([self.key(rows), self.key(x)], 1)
        value = torch.cat([self.value(rows), self.value(x)], 1)
        weights = (self.query(x) @ key.mT / WIDTH**0.5).softmax(-1)
        return self.last(weights @ value)


class Deformable(nn.Module):
    """Adds up values two places before a token and one behind it, by weights made from the token
    alone: deformable attention (Zhu et al. 2021, arXiv:2010.04159) as it starts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.value, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weights = nn.Linear(WIDTH, 2)
        nn.init.zeros_(self.weights.weight)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        value = self.value(x)
        sampled = torch.stack([value.roll(2, 1), value.roll(-1, 1)], -1)
        return self.last((sampled * self.weights(x).softmax(-1)[:, :, None]).sum(-1))


def looking(attention: type[nn.Module]) -> Diagnosis:
    torch.manual_seed(0)
    model = Model(lambda: Stack(pre, pre, blocks=3, final=1))
    for block in model.encoder.blocks:
        block.f[0] = attention()
    return normscope.diagnose(model, (IDS,), advise=False)


@pytest.mark.parametrize("attention", [BesideGlobalTokens, Deformable])
def test_what_looks_elsewhere_by_design_is_not_warned_of(attention):
    found = looking(attention)
    told = {"misplaced-positions", "own-place-missed", "mirrored-places"}
    assert told.isdisjoint(one.id for one in found.findings)


class Pictures(nn.Module):
    """A picture's patches of 8 channels by width 8, normed by batch, beside a stream as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.ModuleList(Square() for _ in range(3))
        self.encoder = Stack(pre, pre, blocks=3, final=1)
        self.head = nn.Linear(WIDTH, 5)
        nn.init.zeros_(self.head.weight)

    def forward(self, picture: Tensor) -> Tensor:
        x = self.patches(picture)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.encoder(x.flatten(2).mT).mean(1))


class Square(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.BatchNorm2d(WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, padding=1))


def test_a_picture_as_wide_as_a_stream_and_a_head_of_zeros_are_neither_tokens_nor_a_cap():
    torch.manual_seed(0)
    picture = torch.randn(2, 3, 4 * WIDTH, 4 * WIDTH)
    found = normscope.diagnose(Pictures(), (picture,), advise=False)
    told = {"batch-norm-of-tokens", "capped-logits"}
    assert told.isdisjoint(one.id for one in found.findings)


class PlacedByBlock(nn.Module):
    """Positions of one table for each block of tokens, (blocks, tokens, features), as NesT's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(1, 3, 4, WIDTH))
        self.encoder = Stack(pre, pre, blocks=3, final=1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids).unflatten(1, (3, 4)) + self.places
        return self.head(self.encoder(x))


def test_a_table_of_several_blocks_is_read():
    torch.manual_seed(0)
    found = normscope.diagnose(PlacedByBlock(), (IDS[:, :12],), advise=False)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]


class Complex(Attention):
    """Attention whose queries and keys are turned by complex numbers, as Llama 4's."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        turns = torch.arange(x.shape[1])[:, None] * torch.logspace(0, -2, WIDTH // 2)
        by = torch.polar(torch.ones_like(turns), turns)
        query, key = (
            torch.view_as_real(torch.view_as_complex(one.unflatten(-1, (-1, 2))) * by).flatten(-2)
            for one in (self.query(x), self.key(x))
        )
        weights = (query @ key.mT / WIDTH**0.5).softmax(-1)
        return self.last(weights @ self.value(x))


def test_complex_turns_are_read_without_a_word_of_torchs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = looking(Complex)
    assert "misplaced-positions" not in [one.id for one in found.findings]
