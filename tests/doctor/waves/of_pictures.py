"""Faults of models of pictures, and of the steps between pixels and tokens."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault
from doctor.waves.of_branches import Modulated
from doctor.waves.parts import BLOCKS, WIDTH, Attention, Block, SwiGLU, drawn

PATCH, SIDE, COLOURS, CLASSES = 4, 24, 3, 10
PLACES = (SIDE // PATCH) ** 2
PIXELS = PATCH * PATCH * COLOURS


class Plain(Attention):
    """Every token sees every other; places are in the stream."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def seen(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool)


def patches(x: Tensor) -> Tensor:
    """(batch, colours, side, side) -> (batch, places, pixels of a patch)."""
    cut = x.unflatten(2, (-1, PATCH)).unflatten(4, (-1, PATCH))
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def strips(x: Tensor) -> Tensor:
    """The same shape by a reshape: pieces of rows of one colour."""
    return x.reshape(len(x), PLACES, PIXELS)


def pictures(rows: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(rows, COLOURS, SIDE, SIDE, generator=generator)


class Classifier(nn.Module):
    """ViT (Dosovitskiy et al. 2020)."""

    read = 0

    def __init__(self, block: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(PIXELS, WIDTH)
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, PLACES + 1, WIDTH))
        made = block or (lambda number: Block(Plain(number), SwiGLU()))
        self.blocks = nn.ModuleList(made(number) for number in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        drawn(self, BLOCKS)

    def cut(self, x: Tensor) -> Tensor:
        return patches(x)

    def pooled(self, x: Tensor) -> Tensor:
        return x[:, self.read]

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(self.cut(x))
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x, {})
        return self.head(self.norm(self.pooled(x)))


class CutInStrips(Classifier):
    def cut(self, x: Tensor) -> Tensor:
        return strips(x)


class ReadsAPatch(Classifier):
    """The head reads the last patch; the class token stands first."""

    read = -1


class OverTokens(nn.Module):
    """BatchNorm1d of (batch, tokens, features): each token is a channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class OverFeatures(OverTokens):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


def batch_normed(norm: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def block(number: int) -> nn.Module:
        made = Block(Plain(number), SwiGLU())
        made.first_norm, made.second_norm = norm(), norm()
        return made

    return lambda: Classifier(block)


class Shifted(Plain):
    """Windows of four places, in every other block moved by two (Liu et al. 2021)."""

    back = True

    def seen(self, length: int) -> Tensor:
        window = torch.arange(length) // 4
        return window[:, None] == window

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        by = 2 * (self.number % 2)
        y = super().forward(x.roll(-by, 1), memo)
        return y.roll(by, 1) if self.back else y


class NotShiftedBack(Shifted):
    """What attention makes of moved tokens is added to tokens that were not moved."""

    back = False


class Windows(Classifier):
    """The mean of all places is read."""

    def __init__(self, mixer: type[Shifted]) -> None:
        super().__init__(lambda number: Block(mixer(number), SwiGLU()))
        del self.first
        self.places = nn.Parameter(0.02 * torch.randn(1, PLACES, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(self.cut(x)) + self.places
        for block in self.blocks:
            x = block(x, {})
        return self.head(self.norm(x).mean(1))


def classified(model: nn.Module, x: Tensor | None = None) -> Case:
    labels = torch.tensor([1, 3, 5, 7])
    return Case(
        model=model,
        inputs=(pictures() if x is None else x,),
        loss=lambda scores: functional.cross_entropy(scores, labels),
    )


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016)."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.chance
        return x * torch.bernoulli(torch.full((len(x), 1, 1), keep)) / keep


class Stochastic(Block):
    def __init__(self, number: int) -> None:
        super().__init__(Plain(number), SwiGLU())
        self.drop = DropPath(0.2)

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        x = x + self.drop(self.mixer(self.first_norm(x), memo))
        return x + self.drop(self.feed_forward(self.second_norm(x)))


class StochasticSum(Stochastic):
    """What is dropped is the whole sum: nothing goes through a block that is left out."""

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        x = self.drop(x + self.mixer(self.first_norm(x), memo))
        return self.drop(x + self.feed_forward(self.second_norm(x)))


class GatedSum(Modulated):
    """The gate multiplies the skip as well."""

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        parts = self.modulation(functional.silu(condition))[:, None].chunk(6, -1)
        x = (1 + parts[2]) * (x + self.block.mixer(self.scaled(x, parts[0], parts[1]), {}))
        return (1 + parts[5]) * (x + self.block.feed_forward(self.scaled(x, parts[3], parts[4])))


class Painter(nn.Module):
    """Predicts noise in pictures, under a time."""

    def __init__(self, block: type[Modulated] = Modulated) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out = nn.Linear(PIXELS, WIDTH), nn.Linear(WIDTH, PIXELS)
        self.of_time = nn.Linear(WIDTH, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(PLACES, WIDTH))
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        for one in self.blocks:
            one.block.mixer = Plain(0)
        drawn(self, BLOCKS)
        for one in self.blocks:
            nn.init.zeros_(one.modulation.weight)

    def put_back(self, made: Tensor) -> Tensor:
        """(batch, places, pixels of a patch) -> (batch, colours, side, side)."""
        side = SIDE // PATCH
        cut = made.unflatten(1, (side, side)).unflatten(3, (PATCH, PATCH, COLOURS))
        return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        waves = times[:, None] * 1e4 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
        condition = self.of_time(torch.cat([waves.sin(), waves.cos()], -1))
        x = self.into(patches(x)) + self.places
        for block in self.blocks:
            x = block(x, condition)
        return self.put_back(self.out(functional.layer_norm(x, (WIDTH,))))


class Mirrored(Painter):
    """Rows and columns of patches change places where they are put back."""

    def put_back(self, made: Tensor) -> Tensor:
        side = SIDE // PATCH
        return super().put_back(made.unflatten(1, (side, side)).transpose(1, 2).flatten(1, 2))


def painted(model: nn.Module) -> Case:
    noise = pictures().flip(0)
    return Case(
        model=model,
        inputs=(pictures(), torch.tensor([10.0, 200.0, 500.0, 900.0])),
        loss=lambda output: functional.mse_loss(output, noise),
    )


def of_classifier(
    title: str,
    bug: Callable[[], nn.Module],
    says: str,
    twin: Callable[[], nn.Module] = Classifier,
) -> Fault:
    return Fault(
        title=title, bug=lambda: classified(bug()), twin=lambda: classified(twin()), says=says
    )


def of_painter(title: str, bug: Callable[[], nn.Module], says: str) -> Fault:
    return Fault(
        title=title, bug=lambda: painted(bug()), twin=lambda: painted(Painter()), says=says
    )


FAULTS = [
    of_classifier("patches are strips of memory", CutInStrips, r"patch|pixel|picture"),
    of_classifier("the head reads a patch", ReadsAPatch, r"class token|first|place|token"),
    of_classifier(
        "a BatchNorm whose channels are tokens",
        batch_normed(lambda: OverTokens(PLACES + 1)),
        r"batch.?norm|channels|dimension",
        batch_normed(lambda: OverFeatures(WIDTH)),
    ),
    Fault(
        title="pixels from 0 to 255",
        bug=lambda: classified(Classifier(), 127 + 60 * pictures()),
        twin=lambda: classified(Classifier()),
        says=r"pixel|input|embed",
    ),
    of_classifier(
        "windows are not shifted back",
        lambda: Windows(NotShiftedBack),
        r"own|shift|roll|place",
        lambda: Windows(Shifted),
    ),
    of_classifier(
        "stochastic depth of the whole sum",
        lambda: Classifier(StochasticSum),
        r"lost|skip|the whole",
        lambda: Classifier(Stochastic),
    ),
    of_painter("a gate over the skip as well", lambda: Painter(GatedSum), r"gate|skip|factor"),
    of_painter("patches are put back mirrored", Mirrored, r"place|patch|transposed|order"),
]
