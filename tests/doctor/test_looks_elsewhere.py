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
