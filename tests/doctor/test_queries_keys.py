"""Norms of queries and keys: head by head or over all heads, of both or of one, in all blocks or in
some.
"""

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
        self.norms = nn.ModuleList(
            nn.RMSNorm(sizes[side]) if side else nn.Identity() for side in sides
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self._split(n, f(x)) for n, f in enumerate((self.query, self.key, self.value))
        )
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


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("rows", "severities", "said"),
    [
        ([("", "")] * 3, [], ""),
        ([("head", "head")] * 3, [], ""),
        ([("all", "all")] * 3, ["info"], "over all heads together"),
        ([("head", "all")] * 3, ["warning"], "one of queries and keys is normalised head by head"),
        ([("head", "")] * 3, ["warning"], "the other of the two is not: 3 of the sub-layers"),
        ([("", "head")] * 3, ["warning"], "the other of the two is not: 3 of the sub-layers"),
        (
            [("head", "head"), ("", ""), ("head", "head")],
            ["info"],
            "otherwise than in most blocks: 1 of 3",
        ),
    ],
)
def test_how_queries_and_keys_are_normed(rows, severities, said):
    torch.manual_seed(0)
    found = list(WIRING["query-key-norms"].check(patient(model(*rows))))
    assert [finding.severity for finding in found] == severities
    assert all(said in finding.message for finding in found)


class Turned(Normed):
    """Queries and keys that are rotated by their places before they are normed, head by head."""

    def _split(self, number: int, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        if number == len(self.sides):
            return x
        one, other = x.chunk(2, -1)
        angles = torch.arange(x.shape[-2])[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
        first = one * angles.cos() - other * angles.sin()
        second = other * angles.cos() + one * angles.sin()
        return self.norms[number](torch.cat([first, second], -1))


def test_norms_of_heads_behind_a_rotation_are_norms_of_heads():
    built = model(*[("head", "head")] * 3)
    for block in built.encoder.blocks:
        block.f[0].__class__ = Turned
    found = patient(built)
    assert list(WIRING["query-key-norms"].check(found)) == []
    attending = [one for one in found.stacks[0].sublayers if one.kind == "attention"]
    places = [place for one in attending for place in one.formula.branch.inside]
    assert [(place.name, place.by_head) for place in places] == [("score", True)] * 6


class Apart(nn.Module):
    """Attention of queries, keys and values that are made from what they are given one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, of_query: Tensor, of_key: Tensor, of_value: Tensor) -> Tensor:
        weights = (self.query(of_query) @ self.key(of_key).mT / WIDTH**0.5).softmax(-1)
        return self.last(weights @ self.value(of_value))


class Reading(Block):
    """A Pre-LN block whose queries, keys and values are made from norm(x), or from x where it is
    not in `normed`.
    """

    def __init__(self, normed: str) -> None:
        super().__init__((pre, pre))
        self.f[0], self.normed = Apart(), normed

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.f[0](*(y if side in self.normed else x for side in "qkv"))
        return pre(x, self.f[1], self.norms[1])


@pytest.mark.parametrize(
    ("normed", "told"),
    [
        ("qkv", ""),
        ("q", "keys and values are made from the stream"),
        ("qk", "values are made from the stream"),
    ],
)
def test_what_queries_keys_and_values_are_made_from(normed, told):
    built = Model(lambda: Stack(blocks=[Reading(normed) for _ in range(3)], final=1))
    found = list(WIRING["query-key-norms"].check(patient(built)))
    assert [str(finding.severity) for finding in found] == ["warning"] * bool(told)
    assert all(
        finding.message.startswith(told) and "3 of 3 attentions" in finding.message
        for finding in found
    )


def test_the_side_is_named_and_norms_of_values_are():
    """Norms meant for queries and keys that stand on keys and values."""
    built = model(*[("", "head")] * 3)
    for block in built.encoder.blocks:
        block.f[0].sides = ("", "head", "head")
        block.f[0].norms.append(nn.RMSNorm(WIDTH // HEADS))
    (finding,) = WIRING["query-key-norms"].check(patient(built))
    assert (
        "the keys are normalised, and the other of the two is not, but the values are: 3 of"
        in finding.message
    )
