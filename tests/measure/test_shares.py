"""Shares of the stream against tensors computed by hand, and what they add up to."""

import math

import pytest
import torch
from torch import nn

from normscope.measure import Point, sublayer_shares


class PreBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.branch = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(self.norm(x))


def stack(width: int = 8, depth: int = 3) -> tuple[nn.ModuleList, torch.Tensor]:
    torch.manual_seed(3)
    return nn.ModuleList(PreBlock(width) for _ in range(depth)).double(), torch.randn(2, 5, width).double()


def run(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = block(x)
    return x


def power(x: torch.Tensor) -> float:
    return float(x.detach().square().mean())


def test_against_the_tensors_themselves():
    blocks, x = stack()
    keep = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    branches = {f"branch {i}": Point(block.branch) for i, block in enumerate(blocks)}
    found = sublayer_shares(branches, Point(blocks[-1]), lambda: run(blocks, x), keep_BT=keep)
    last, state = run(blocks, x)[keep], x
    for (name, share), block in zip(found.items(), blocks, strict=True):
        expected = block.branch(block.norm(state))[keep]
        assert share.branch == pytest.approx(power(expected), rel=1e-12), name
        assert share.stream == pytest.approx(power(last), rel=1e-12), name
        assert share.ratio == pytest.approx(power(expected) / power(last), rel=1e-12), name
        state = block(state)


def test_each_branch_beside_its_own_sum():
    blocks, x = stack()
    branches = {str(i): Point(block.branch) for i, block in enumerate(blocks)}
    sums = {str(i): Point(block) for i, block in enumerate(blocks)}
    found, state = sublayer_shares(branches, sums, lambda: run(blocks, x)), x
    for share, block in zip(found.values(), blocks, strict=True):
        state = block(state)
        assert share.stream == pytest.approx(power(state), rel=1e-12)


def test_uncorrelated_branches_and_the_embedding_make_up_the_stream():
    """Wide enough that random directions are orthogonal: each cross term is 1/√(tokens · width) = 0.6 % of a branch."""
    torch.manual_seed(0)
    width, blocks = 256, nn.ModuleList(PreBlock(256) for _ in range(4))
    x = torch.randn(100, width)
    parts = {"embedding": Point(blocks[0], "input")} | {str(i): Point(b.branch) for i, b in enumerate(blocks)}
    found = sublayer_shares(parts, Point(blocks[-1]), lambda: run(blocks, x))
    assert math.fsum(share.ratio for share in found.values()) == pytest.approx(1, abs=0.02)
    assert 0.3 < found["embedding"].ratio < 0.6


def test_a_branch_that_is_zero_and_a_stream_that_is():
    block = PreBlock(4)
    nn.init.zeros_(block.branch.weight)
    nn.init.zeros_(block.branch.bias)
    branches, stream = {"f": Point(block.branch)}, Point(block)
    assert sublayer_shares(branches, stream, lambda: block(torch.ones(2, 4)))["f"].ratio == 0.0
    assert math.isnan(sublayer_shares(branches, stream, lambda: block(torch.zeros(2, 4)))["f"].ratio)
    with torch.no_grad():
        block.branch.bias.fill_(1.0)
    assert sublayer_shares(branches, stream, lambda: block(-torch.ones(2, 4)))["f"].ratio == math.inf


def test_what_is_missing_is_named():
    blocks, x = stack()
    branches = {str(i): Point(block.branch) for i, block in enumerate(blocks)}
    with pytest.raises(ValueError, match="no stream to compare 1, 2 with"):
        sublayer_shares(branches, {"0": Point(blocks[0])}, lambda: run(blocks, x))
    with pytest.raises(ValueError, match="'branch 2' was not called"):
        sublayer_shares(branches, Point(blocks[0]), lambda: run(blocks[:2], x))
    with pytest.raises(ValueError, match="'stream of 0' was not called"):
        sublayer_shares({"0": branches["0"]}, Point(blocks[2]), lambda: run(blocks[:2], x))
