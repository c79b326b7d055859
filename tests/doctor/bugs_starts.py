"""Errors in schemes of initial weights, gains of norms and sizes of embeddings, rebuilt as small
models.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from doctor.bugs_values import BLOCKS, Bug, drawn
from doctor.wired import Join, Model, Stack, post, pre

Numbers = Callable[[int], float]
ROOT = math.sqrt(2 * BLOCKS)


def scheme(
    *, inner: float = 0.02, attention: Numbers = lambda block: 1, ffn: Numbers = lambda block: 1
) -> Callable[[], nn.Module]:
    """N(0, inner²), with what the outputs of attention and of feed-forwards are divided by, from
    block to block.
    """

    def initialise(model: nn.Module) -> None:
        nn.init.normal_(model.embedding.weight, std=0.02)
        for number, (attend, feed) in enumerate((block.f for block in model.encoder.blocks), 1):
            for linear in (attend.query, attend.key, attend.value, feed[0]):
                nn.init.normal_(linear.weight, std=inner)
            nn.init.normal_(attend.last.weight, std=inner / attention(number))
            nn.init.normal_(feed[2].weight, std=inner / ffn(number))
            for linear in (attend.query, attend.key, attend.value, attend.last, feed[0], feed[2]):
                nn.init.zeros_(linear.bias)

    return drawn(pre, initialise, final=1)


def both(divided: Numbers, inner: float = 0.02) -> Callable[[], nn.Module]:
    return scheme(inner=inner, attention=divided, ffn=divided)


class Rms(nn.Module):
    """RMSNorm times w, or times 1 + w, before what was normed or after it."""

    def __init__(self, start: float, *, added: float, first: bool, spread: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(start + spread * torch.randn(16))
        self.added, self.first = added, first

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        gain = self.weight + self.added if self.added else self.weight
        return gain * x * scale if self.first else gain * (x * scale)


def gains(
    start: float, *, added: float = 0.0, first: bool = False, spread: float = 0.0
) -> Callable[[], nn.Module]:
    """GPT-2's scheme over norms of that kind. spread: of the parameters about their mean, as
    training leaves them.
    """

    def build() -> nn.Module:
        model = both(lambda block: ROOT)()

        def made() -> Rms:
            return Rms(start, added=added, first=first, spread=spread)

        for block in model.encoder.blocks:
            block.norms = nn.ModuleList(made() for _ in block.norms)
        model.encoder.final_norm = made()
        return model

    return build


def layer_norms_at(gain: float) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = Model(lambda: Stack(pre, pre, blocks=BLOCKS, final=1))
        for norm in model.modules():
            if isinstance(norm, nn.LayerNorm):
                nn.init.constant_(norm.weight, gain)
        return model

    return build


class Scaled(nn.Module):
    """LayerScale in a Pre-LN stack, or one gate a branch without norms, as ReZero has it."""

    def __init__(self, start: float, *, blocks: int = BLOCKS, normed: bool = True) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=blocks, final=int(normed)))
        shape = (16,) if normed else ()
        self.scales = nn.ParameterList(
            nn.Parameter(torch.full(shape, start)) for _ in range(2 * blocks)
        )
        for number, block in enumerate(self.inner.encoder.blocks):
            block.joins = [
                self._join(self.scales[2 * number + place], normed=normed) for place in (0, 1)
            ]
            block.norms = (
                block.norms if normed else nn.ModuleList(nn.Identity() for _ in block.norms)
            )

    @staticmethod
    def _join(scale: nn.Parameter, *, normed: bool) -> Join:
        return lambda x, f, norm: x + scale * f(norm(x) if normed else x)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


class Tables(nn.Module):
    """A Pre-LN model whose stream starts from a scaled embedding, plus learnt positions, looked up
    or sliced.
    """

    def __init__(
        self, *, tokens: float, factor: float = 1.0, places: float = 0.0, sliced: bool = False
    ) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=BLOCKS, final=1))
        nn.init.normal_(self.inner.embedding.weight, std=tokens)
        self.factor, self.sliced = factor, sliced
        self.places = nn.Embedding(9, 16) if places and not sliced else None
        self.rows = nn.Parameter(places * torch.randn(1, 9, 16)) if sliced else None
        if self.places is not None:
            nn.init.normal_(self.places.weight, std=places)

    def forward(self, tokens: Tensor) -> Tensor:
        x, number = self.inner.embedding(tokens) * self.factor, tokens.shape[1]
        if self.places is not None:
            x = x + self.places(torch.arange(number))
        if self.rows is not None:
            x = x + self.rows[:, :number]
        return self.inner.projection(self.inner.encoder(x))


def sinusoidal(model: Tables) -> nn.Module:
    angles = torch.arange(9)[:, None] / 10000 ** (torch.arange(8) / 8)
    model.places.weight.data.copy_(torch.cat([angles.sin(), angles.cos()], 1))
    return model


def frozen(model: Tables) -> nn.Module:
    model.places.weight.requires_grad_(False)
    return model


def filled(number: float) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = both(lambda block: ROOT)()
        for weight in model.encoder.parameters():
            if weight.ndim > 1:
                nn.init.constant_(weight, number)
        return model

    return build


def with_norm(change: Callable[[nn.Module], object]) -> Callable[[], nn.Module]:
    """Post-LN with a norm behind its small embedding, changed."""

    def build() -> nn.Module:
        model = Model(lambda: Stack(post, post, blocks=BLOCKS, first=1))
        nn.init.normal_(model.embedding.weight, std=0.02)
        change(model)
        return model

    return build


GPT_2 = both(lambda block: ROOT)

BUGS: dict[str, Bug] = {
    # lingua 39: every matrix over √(2L), not only those whose products join the stream.
    "lingua, all projections over √(2L)": Bug(
        build=both(lambda block: 1, inner=0.02 / ROOT),
        rule="initial-scheme",
        severity="warning",
        said="every matrix of the 4 blocks starts at N(0, 0.02²) over √(2 · 4) = 2.83, those that "
        "read the stream too",
        right=GPT_2,
    ),
    "attention's outputs scaled and the feed-forwards' not": Bug(
        build=scheme(attention=lambda block: ROOT),
        rule="initial-scheme",
        severity="warning",
        said="N(0, 0.02²) over √(2 · 4), and feed-forward outputs undivided at 0.02",
        right=both(lambda block: 1),
    ),
    "the feed-forwards' outputs scaled and attention's not": Bug(
        build=scheme(ffn=lambda block: ROOT),
        rule="initial-scheme",
        severity="warning",
        said="and attention outputs undivided at 0.0",
        right=GPT_2,
    ),
    "half of the blocks scaled": Bug(
        build=both(lambda block: ROOT if block > BLOCKS // 2 else 1),
        rule="initial-scheme",
        severity="warning",
        said="in blocks 3-4 and at 0.0",
        right=both(lambda block: math.sqrt(2 * block)),
    ),
    # An initialiser that runs twice, or a loop over modules whose names contain one another.
    "scaled twice": Bug(
        build=both(lambda block: ROOT**2),
        rule="initial-scheme",
        severity="warning",
        said="0.02 over 8 = √(2 · 4)²: it was divided twice",
        right=GPT_2,
    ),
    # A default for 12 blocks left in the initialiser of other depths.
    "scaled for 6 blocks": Bug(
        build=both(lambda block: math.sqrt(2 * 6)),
        rule="initial-scheme",
        severity="warning",
        said=": the scheme of 6 blocks, and here are 4",
        right=GPT_2,
    ),
    # nn.init.constant_ over every matrix.
    "every matrix of one number": Bug(
        build=filled(0.5),
        rule="constant-weights",
        severity="warning",
        said="24 of 24 matrices of sub-layers start with one number in every entry, 0.5",
        right=GPT_2,
    ),
    "a gain of 0 in one Post-LN block": Bug(
        build=with_norm(lambda model: nn.init.zeros_(model.encoder.blocks[2].norms[1].weight)),
        rule="uneven-blocks",
        severity="warning",
        said="block 3 of 4: the gain encoder.blocks.2.norms.1.weight starts at 0 and those of its "
        "counterparts in other blocks do not",
        right=with_norm(lambda model: None),
    ),
    "an ε of 0.01 behind a small embedding": Bug(
        build=with_norm(lambda model: setattr(model.encoder.first[0], "eps", 1e-2)),
        rule="norm-epsilon",
        severity="warning",
        said="the norm of the embedding adds ε = 0.01 to a mean square of 0.00",
        right=with_norm(lambda model: None),
    ),
    "one row of norms at 2": Bug(
        build=with_norm(
            lambda model: [nn.init.constant_(b.norms[0].weight, 2.0) for b in model.encoder.blocks]
        ),
        rule="gain-start",
        severity="warning",
        said="gains of 4 of 9 norms start at 2, where norms start at 1",
        right=with_norm(lambda model: None),
    ),
    "all gains at 2": Bug(
        build=layer_norms_at(2.0),
        rule="gain-start",
        severity="warning",
        said="gains of 9 of 9 norms start at 2, where norms start at 1",
        right=layer_norms_at(1.0),
    ),
    # Gemma's norm filled with ones.
    "ones in norms that add 1": Bug(
        build=gains(1.0, added=1.0, first=True),
        rule="gain-start",
        severity="warning",
        said="the parameters start at 1, and the forward pass adds 1",
        right=gains(0.0, added=1.0, first=True),
    ),
    # Gemma's checkpoints in Llama's norms, and Llama's in Gemma's, before converters knew.
    "Llama's gains in Gemma's norms": Bug(
        build=gains(1.0, added=1.0, spread=0.1),
        rule="gain-convention",
        severity="warning",
        said="9 of 9 norms have parameters about 1",
        right=gains(0.0, added=1.0, spread=0.1),
    ),
    "Gemma's gains in Llama's norms": Bug(
        build=gains(0.0, first=True, spread=0.1),
        rule="gain-convention",
        severity="warning",
        said="they were trained for norms that multiply by 1 + w",
        right=gains(1.0, first=True, spread=0.1),
    ),
    # OpenTau 179: the embedding scales its rows, and so does who calls it.
    "rows times √d times √d": Bug(
        build=lambda: Tables(tokens=0.25, factor=16.0),
        rule="embedding-scaled-twice",
        severity="warning",
        said="are multiplied by 16, the width, and enter the stream at",
        right=lambda: Tables(tokens=0.25, factor=4.0),
    ),
    # torch.nn.Embedding's own draw of positions beside tokens that were drawn for another scheme.
    "positions of N(0, 1) beside small tokens": Bug(
        build=lambda: Tables(tokens=0.1, places=1.0),
        rule="unequal-tables",
        severity="warning",
        said="larger ones of places.weight are added to them",
        right=lambda: Tables(tokens=0.1, places=0.1),
    ),
    "positions of randn, a parameter, beside small tokens": Bug(
        build=lambda: Tables(tokens=0.02, places=1.0, sliced=True),
        rule="unequal-tables",
        severity="warning",
        said="larger ones of rows are added to them",
        right=lambda: Tables(tokens=0.02, places=0.02, sliced=True),
    ),
    # At a width of 512 the factor makes up for 0.02; a table of sinusoids is what it was made for.
    "positions of N(0, 1) beside tokens times √width": Bug(
        build=lambda: Tables(tokens=0.02, factor=4.0, places=1.0),
        rule="unequal-tables",
        severity="warning",
        said="larger ones of places.weight are added to them",
        right=lambda: sinusoidal(Tables(tokens=0.02, factor=4.0, places=1.0)),
    ),
    "sinusoids beside small tokens": Bug(
        build=lambda: frozen(sinusoidal(Tables(tokens=0.1, places=1.0))),
        rule="unequal-tables",
        severity="warning",
        said="larger ones of positions that are computed are added to them",
        right=lambda: frozen(sinusoidal(Tables(tokens=0.25, factor=4.0, places=1.0))),
    ),
    # timm 2605: the value from the configuration is not handed on.
    "LayerScale at 1 in 20 blocks": Bug(
        build=lambda: Scaled(1.0, blocks=20),
        rule="gate-start",
        severity="warning",
        said="the trained factors of 40 branches start at 1; with 20 blocks CaiT starts LayerScale "
        "at 1e-05",
        right=lambda: Scaled(1e-5, blocks=20),
    ),
    "LayerScale at 1 in 4 blocks": Bug(
        build=lambda: Scaled(1.0),
        rule="gate-start",
        severity="info",
        said="with 4 blocks CaiT starts LayerScale at 0.1",
        right=lambda: Scaled(0.1),
    ),
    "ReZero's gates at 1": Bug(
        build=lambda: Scaled(1.0, normed=False),
        rule="gate-start",
        severity="warning",
        said="and no norm, ReZero starts its gates at 0",
        right=lambda: Scaled(0.0, normed=False),
    ),
}
