"""Norms of queries and keys: head by head or over all heads, of both or of one, in all blocks or in some."""

import pytest
import torch
from torch import Tensor, nn

from doctor.rules import WIRING
from doctor.wired import WIDTH, Block, Model, Stack, patient, pre

HEADS = 2


class Normed(nn.Module):
    """Attention of two heads; sides: for queries and keys "head", "all" or ""."""

    def __init__(self, *sides: str) -> None:
        super().__init__()
        self.sides = sides
        self.query, self.key, self.value, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        sizes = {"head": WIDTH // HEADS, "all": WIDTH}
        self.norms = nn.ModuleList(nn.RMSNorm(sizes[side]) if side else nn.Identity() for side in sides)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._split(n, f(x)) for n, f in enumerate((self.query, self.key, self.value)))
        mixed = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(-1) @ value
        return self.last(mixed.transpose(1, 2).flatten(2))

    def _split(self, number: int, x: Tensor) -> Tensor:
        side = self.sides[number] if number < len(self.sides) else ""
        x = self.norms[number](x) if side == "all" else x
        x = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return self.norms[number](x) if side == "head" else x


def model(*rows: tuple[str, str]) -> nn.Module:
    blocks = [Block((pre, pre)) for _ in rows]
    built = Model(lambda: Stack(blocks=blocks, final=1))
    for block, sides in zip(blocks, rows, strict=True):
        block.f[0] = Normed(*sides)
    return built


@pytest.mark.parametrize(
    ("rows", "severities", "said"),
    [
        ([("", "")] * 3, [], ""),
        ([("head", "head")] * 3, [], ""),
        ([("all", "all")] * 3, ["info"], "over all heads together"),
        ([("head", "all")] * 3, ["warning"], "one of queries and keys is normed head by head"),
        ([("head", "")] * 3, ["warning"], "the other of the two is not: 3 of the sub-layers"),
        ([("", "head")] * 3, ["warning"], "the other of the two is not: 3 of the sub-layers"),
        ([("head", "head"), ("", ""), ("head", "head")], ["info"], "otherwise than in most blocks: 1 of 3"),
    ],
)
def test_how_queries_and_keys_are_normed(rows, severities, said):
    torch.manual_seed(0)
    found = list(WIRING["query-key-norms"].check(patient(model(*rows))))
    assert [finding.severity for finding in found] == severities
    assert all(said in finding.message for finding in found)
