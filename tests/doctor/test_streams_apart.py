"""Several streams in tensors of their own, mixed by numbers of each token."""

import torch
from torch import Tensor, nn

from doctor.wired import VOCABULARY, WIDTH, Attention
from normscope.doctor import find_stacks


class Apart(nn.Module):
    """Two streams that are mixed for every token, and to which what F makes of their mean is added
    as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.f = nn.ModuleList(
            Attention()
            if n % 2 == 0
            else nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH))
            for n in range(4)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(5))
        self.logits = nn.ModuleList(nn.Linear(2 * WIDTH, 4) for _ in self.f)

    def forward(self, ids: Tensor) -> Tensor:
        one = two = self.embedding(ids)
        for f, norm, logits in zip(self.f, self.norms[:-1], self.logits, strict=True):
            share = logits(torch.cat([one, two], -1)).sigmoid()
            branch = f(norm((one + two) / 2))
            one, two = (
                share[..., n : n + 1] * one + share[..., n + 2 : n + 3] * two + branch
                for n in (0, 1)
            )
        return self.head(self.norms[-1](one + two))


class Routed(nn.Module):
    """Pre-LN of which each token's feed-forward reads the stream times one number for each of two
    experts.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.mixing = nn.ModuleList(Attention() for _ in range(2))
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.router = nn.Linear(WIDTH, 2)
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for number, mixing in enumerate(self.mixing):
            x = x + mixing(self.norm(x))
            read = self.norm(x)
            share = self.router(read).sigmoid()
            parts = [
                self.experts[2 * number + n](share[..., n : n + 1] * read).relu() for n in (0, 1)
            ]
            x = x + parts[0] + parts[1]
        return self.head(self.norm(x))


def test_streams_that_are_only_mixed_are_found():
    (stack,) = find_stacks(Apart(), (torch.randint(VOCABULARY, (2, 5)),))
    assert (stack.blocks, stack.width, len(stack.sublayers)) == (2, WIDTH, 4)
    assert [s.kind for s in stack.sublayers] == ["attention", "feed_forward"] * 2
    # What sums of the numbers are is not seen, so that no name for them is sure.
    assert {s.confidence for s in stack.sublayers} == {"unsure"}
    assert "a2 = token · x + token · x + a1; a3 = token · x + token · x + a1" in str(
        stack.sublayers[0].formula
    )


def test_what_experts_read_is_no_stream():
    (stack,) = find_stacks(Routed(), (torch.randint(VOCABULARY, (2, 5)),))
    assert {s.placement for s in stack.sublayers} == {"pre-ln"}
    assert {s.confidence for s in stack.sublayers} == {"sure"}
