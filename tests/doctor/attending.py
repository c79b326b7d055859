"""Attention whose scale, softmax, masks and norms are set one by one, in Pre-LN blocks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.wired import WIDTH, Block, Model, Stack, pre

HEADS, HEAD = 2, WIDTH // 2
Setting = Callable[["Heads", int], None]
"""Changes the attention of a block, counted from 0."""


def unchanged(attention: "Heads", block: int) -> None:
    """Leaves it right."""


class Heads(nn.Module):
    """Attention of two heads; right as it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scale, self.axis, self.fused = HEAD**-0.5, -1, False
        self.hides: Callable[[Tensor, Tensor], Tensor] = lambda query, key: key > query
        self.normed: Callable[[Tensor], Tensor] = lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        linears = (self.query, self.key, self.value)
        query, key, value = (
            linear(x).unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for linear in linears
        )
        query, key = self.normed(query), self.normed(key)
        places = torch.arange(x.shape[1])
        hidden = self.hides(places[:, None], places)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=~hidden, scale=self.scale
            )
        else:
            logits = (query @ key.mT * self.scale).masked_fill(hidden, -1e9)
            mixed = logits.softmax(self.axis) @ value
        return self.last(mixed.transpose(1, 2).flatten(2))


def model(change: Setting = unchanged, *, fused: bool = False, blocks: int = 4) -> nn.Module:
    """A Pre-LN model with a final norm whose attentions were changed after N(0, 0.02²) was
    drawn.
    """
    made = [Block((pre, pre)) for _ in range(blocks)]
    built = Model(lambda: Stack(blocks=made, final=1))
    for block in made:
        block.f[0] = Heads()
        block.f[0].fused = fused
    with torch.no_grad():
        for linear in built.encoder.blocks.modules():
            if isinstance(linear, nn.Linear):
                linear.weight.normal_(0, 0.02)
                linear.bias.zero_()
        for place, block in enumerate(made):
            change(block.f[0], place)
    return built


def of(block: int, change: Setting) -> Setting:
    """The change of one block alone."""
    return lambda attention, place: change(attention, place) if place == block else None


def scaled(by: float) -> Setting:
    return lambda attention, _: setattr(attention, "scale", by)


def over(axis: int) -> Setting:
    return lambda attention, _: setattr(attention, "axis", axis)


def hiding(hides: Callable[[Tensor, Tensor], Tensor]) -> Setting:
    return lambda attention, _: setattr(attention, "hides", hides)


def nothing(query: Tensor, key: Tensor) -> Tensor:
    return key < -query


def earlier(query: Tensor, key: Tensor) -> Tensor:
    return key <= query


def drawn(deviation: float) -> Setting:
    """Matrices of queries and keys of another size."""

    def change(attention: Heads, _: int) -> None:
        for linear in (attention.query, attention.key):
            linear.weight.normal_(0, deviation)

    return change


def as_t5(attention: Heads, _: int) -> None:
    """No scale, but queries that are drawn 1/√d smaller."""
    attention.scale = 1.0
    attention.query.weight.mul_(HEAD**-0.5)


def normed_at(scale: float) -> Setting:
    """Root mean square norms of queries and keys."""

    def change(attention: Heads, _: int) -> None:
        attention.normed, attention.scale = lambda x: functional.rms_norm(x, x.shape[-1:]), scale

    return change
