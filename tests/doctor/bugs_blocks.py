"""Blocks that are one, are lost, or disturb the stream on its way, each rebuilt as a small
model.
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from doctor.bugs import RIGHT_POST, RIGHT_PRE, Bug, both
from doctor.wired import WIDTH, Block, F, Model, Stack, pre


def detached(x: Tensor, f: F, norm: F) -> Tensor:
    return x.detach() + f(norm(x))


def detached_post(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(x.data + f(x))


class Watched(Block):
    """Keeps what it was given, as logging and caches do."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        self.seen = x.detach()
        return super().forward(x, memory)


def watched() -> nn.Module:
    return Model(lambda: Stack(blocks=[Watched((pre, pre)) for _ in range(4)], final=1))


def one_detached() -> nn.Module:
    return Model(
        lambda: Stack(blocks=[Block((detached if n == 2 else pre, pre)) for n in range(4)], final=1)
    )


def listed(times: int) -> nn.Module:
    """`[layer] * n`, or a layer for every block."""
    return Model(
        lambda: Stack(
            blocks=[Block((pre, pre))] * times + [Block((pre, pre)) for _ in range(4 - times)],
            final=1,
        )
    )


class Looped(nn.Module):
    """A stack some of whose blocks are called several times."""

    def __init__(self, *times: int) -> None:
        super().__init__()
        self.blocks, self.times = nn.ModuleList(Block((pre, pre)) for _ in times), times
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for block, times in zip(self.blocks, self.times, strict=True):
            for _ in range(times):
                x = block(x)
        return self.norm(x)


def configured(depth: int) -> nn.Module:
    model = Model(lambda: Stack(pre, pre, blocks=4, final=1))
    model.config = SimpleNamespace(n_layer=depth)
    return model


class Positioned(nn.Module):
    """Pre-LN that adds its table of positions at the start, so many times, or in every block."""

    def __init__(self, *, every: bool = False, times: int = 1) -> None:
        super().__init__()
        self.table, self.every, self.times = nn.Embedding(16, WIDTH), every, times
        self.blocks, self.norm = (
            nn.ModuleList(Block((pre, pre)) for _ in range(4)),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            for _ in range(self.times if self.every or number == 0 else 0):
                x = x + self.table(torch.arange(x.shape[1]))
            x = block(x)
        return self.norm(x)


def dropping(drop: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[], nn.Module]:
    """Pre-LN with dropout on the stream behind its second block."""

    class Dropping(Block):
        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            return drop(self, super().forward(x, memory))

    return lambda: Model(
        lambda: Stack(
            blocks=[(Dropping if n == 1 else Block)((pre, pre)) for n in range(4)], final=1
        )
    )


BUGS: dict[str, Bug] = {
    "every skip detached": Bug(
        build=both(detached, final=1),
        rule="detached-skip",
        said="the skip of 7 of 8 sub-layers goes through a detach, in blocks 1, 2, 3, 4",
        where="encoder.blocks.0.f.1",
        severity="error",
        right=RIGHT_PRE,
    ),
    "every skip read by .data, under a norm": Bug(
        build=both(detached_post),
        rule="detached-skip",
        said="the skip of 7 of 8 sub-layers goes through a detach",
        where="encoder.blocks.0.f.1",
        severity="error",
        right=RIGHT_POST,
    ),
    "one skip detached": Bug(
        build=one_detached,
        rule="detached-skip",
        said="the skip of 1 of 8 sub-layers goes through a detach, in block 3",
        where="encoder.blocks.2.f.0",
        severity="warning",
        right=watched,
    ),
    "a list of one layer": Bug(
        build=lambda: listed(4),
        rule="shared-blocks",
        said="attention and feed-forward of blocks 1, 2, 3, 4 (of 4) are computed with the same "
        "weights",
        where="encoder.blocks.0",
        severity="warning",
        right=lambda: listed(1),
    ),
    "one layer looped": Bug(
        build=lambda: Model(lambda: Looped(4)),
        rule="shared-blocks",
        said="1 block applied 4 times in turn with the same weights, 4 in all",
        where="encoder.blocks.0",
        severity="info",
        right=lambda: Model(lambda: Looped(1, 1, 1, 1)),
    ),
    "one block called twice": Bug(
        build=lambda: Model(lambda: Looped(1, 2, 1, 1)),
        rule="shared-blocks",
        said=(
            "of blocks 2, 3 (of 5) are computed with the same weights: one layer is called 2 times"
        ),
        where="encoder.blocks.1",
        severity="warning",
        right=lambda: Model(lambda: Looped(1, 1, 1, 1, 1)),
    ),
    "a block lost": Bug(
        build=lambda: configured(5),
        rule="depth-unlike-configuration",
        said="encoder.blocks has 4 blocks, and the configuration says n_layer = 5",
        where="encoder.blocks",
        severity="warning",
        right=lambda: configured(4),
    ),
    "positions in every block": Bug(
        build=lambda: Model(lambda: Positioned(every=True)),
        rule="positions-added-again",
        said="encoder.table.weight is added to the stream 4 times",
        where="encoder.table.weight",
        severity="warning",
        right=lambda: Model(Positioned),
    ),
    "positions twice at the start": Bug(
        build=lambda: Model(lambda: Positioned(times=2)),
        rule="positions-added-again",
        said="encoder.table.weight is added to the stream 2 times",
        where="encoder.table.weight",
        severity="info",
        right=lambda: Model(Positioned),
    ),
    # torch.nn.functional.dropout, whose `training` is True unless it is given.
    "dropout that is always on": Bug(
        build=dropping(lambda block, x: nn.functional.dropout(x, 0.1)),
        rule="random-in-evaluation",
        said="at 1 place, first in block 2, after encoder.blocks.1.f.1",
        where="encoder.blocks.1",
        severity="warning",
        right=dropping(lambda block, x: nn.functional.dropout(x, 0.1, block.training)),
    ),
}
