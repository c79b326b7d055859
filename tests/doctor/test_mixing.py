"""Branches that are known by their operations alone to work on each token, and those that must be
computed to tell.
"""

import pytest
import torch
from torch import Tensor, nn

from normscope.doctor.trace.flow import keeps_rows, mixes_positions
from normscope.doctor.trace.graph import Graph
from normscope.doctor.trace.recording import recorded

TOKENS, WIDTH = 5, 4
MATRIX = torch.linspace(-1, 1, WIDTH * WIDTH).view(WIDTH, WIDTH).cos()


def with_the_next(x: Tensor) -> Tensor:
    return x + torch.cat([x[:, 1:], x[:, :1]], 1)


BRANCHES = {
    "feed-forward": (lambda x: nn.functional.gelu(x @ MATRIX + 1) @ MATRIX, True, False),
    "gated": (
        lambda x: torch.mul(*(nn.functional.silu(part) for part in (x @ MATRIX).chunk(2, -1))),
        True,
        False,
    ),
    "softmax over features": (lambda x: x.softmax(-1) @ MATRIX, False, False),
    "mean over tokens": (lambda x: x + x.mean(1, keepdim=True), False, True),
    "matrix from the left": (lambda x: torch.ones(TOKENS, TOKENS) @ (x @ MATRIX)[0], False, True),
    "transposed": (lambda x: x.mT.reshape(2, TOKENS, WIDTH) @ MATRIX, False, True),
    "with the next": (with_the_next, False, True),
    "through its own transpose": (lambda x: (x[0] @ MATRIX) @ (x[0].mT @ x[0]), False, True),
    "nothing": (lambda x: x @ torch.zeros(WIDTH, WIDTH) * x.softmax(-1), False, None),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_whether_tokens_are_mixed(name: str) -> None:
    branch, by_operations, mixes = BRANCHES[name]
    x = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    trace = recorded(nn.Identity(), lambda: branch(x), [x])
    graph = Graph(trace)
    read = next(value.number for value in trace.values if value.tensor is x)
    (output,) = trace.results
    assert keeps_rows(graph, read, output) == by_operations
    assert mixes_positions(graph, read, output) == mixes
