"""DenseFormer (Pagliardini et al. 2024, arXiv:2402.02622): the states of all blocks, each times a
weight of its own.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.doctor.diagnose import diagnose

WIDTH, BLOCKS = 8, 3
WRITTEN: dict[str, Callable[[list[Tensor], Tensor], Tensor]] = {
    "tensordot": lambda states, w: torch.tensordot(w, torch.stack(states), dims=1),
    "stacked last": lambda states, w: torch.stack(states, -1) @ w,
    "stacked before the width": lambda states, w: w @ torch.stack(states, -2),
    "weights expanded": lambda states, w: w.softmax(0) @ torch.stack(states, -2),
    "einsum": lambda states, w: torch.einsum("l,lbtd->btd", w, torch.stack(states)),
    "linear": lambda states, w: functional.linear(torch.stack(states, -1), w[None]).squeeze(-1),
    "flattened": lambda states, w: (w[None] @ torch.stack(states).flatten(1)).view(states[0].shape),
    "multiplied": lambda states, w: (torch.stack(states) * w[:, None, None, None]).sum(0),
}


class DenseFormer(nn.Module):
    def __init__(self, weighed: Callable[[list[Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.weighed = weighed
        self.embedding, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 20)
        layers = [
            nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=True)
            for _ in range(BLOCKS)
        ]
        self.blocks, self.norm = nn.ModuleList(layers), nn.LayerNorm(WIDTH)
        self.weights = nn.ParameterList(
            torch.rand(block + 2) / (block + 2) for block in range(BLOCKS)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        states = [x]
        for block, w in zip(self.blocks, self.weights, strict=True):
            states.append(block(x))
            x = self.weighed(states, w)
        return self.head(self.norm(x))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("written", WRITTEN)
def test_however_it_is_written_it_is_one_stack_and_nothing_is_wrong(written):
    torch.manual_seed(0)
    model = DenseFormer(WRITTEN[written])
    diagnosis = diagnose(model, torch.randint(20, (2, 5)), advise=False)
    assert [(stack.placement, stack.blocks) for stack in diagnosis.stacks] == [
        ("denseformer", BLOCKS)
    ]
    assert [stack.width for stack in diagnosis.stacks] == [WIDTH]
    assert [finding.id for finding in diagnosis.findings if finding.severity != "info"] == []


class Fused(nn.Module):
    """Pre-LN whose feed-forward reads two views of the stream, put side by side, with one
    matrix.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.fused, self.out = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([norm(x) for norm in self.norms], -1)
        return x + self.out(torch.relu(self.fused(both)))


def test_a_matrix_on_what_is_put_side_by_side_is_a_weight_matrix_all_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(Fused(), Fused(), nn.LayerNorm(WIDTH))
    (stack,) = diagnose(model, torch.randn(2, 5, WIDTH), advise=False).stacks
    assert [sublayer.kind for sublayer in stack.sublayers] == ["feed_forward"] * 2
