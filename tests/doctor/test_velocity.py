"""A model whose sub-layers move a velocity, which moves the state: both are read twice."""

import torch
from torch import Tensor, nn

import normscope


class Moved(nn.Module):
    """v ← LN(v/2 + F(LN(x + v/2))), x ← x + v."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        read = self.norms[0](x + 0.5 * v)
        v = self.norms[1](0.5 * v + self.attention(read, read, read, need_weights=False)[0])
        x = x + v
        v = self.norms[3](0.5 * v + self.ffn(self.norms[2](x + 0.5 * v)))
        return x + v, v


class Model(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.velocity = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList(Moved(16) for _ in range(blocks))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x, v = self.embedding(ids), self.velocity(ids)
        for block in self.blocks:
            x, v = block(x, v)
        return self.head(self.norm(x))


def test_a_deep_stack_of_two_streams_that_read_each_other_is_judged() -> None:
    """Written out as a tree, twelve sub-layers would have more than 10^8 nodes."""
    torch.manual_seed(0)
    found = normscope.diagnose(
        Model(blocks=12), torch.arange(10).view(2, 5), advise=False, laws=False
    )
    assert [one.rule for one in found.findings if one.severity == "error"] == []
    (stack,) = found.stacks
    assert len(stack.sublayers) == 24
