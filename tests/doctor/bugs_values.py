"""Errors in weights, gates and numbers that were made in public code, each rebuilt as a small
model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from doctor import attending
from doctor.wired import VOCABULARY, F, Join, Model, Stack, post, pre

BLOCKS = 4
ALPHA, BETA = (2 * BLOCKS) ** 0.25, (8 * BLOCKS) ** -0.25
"""DeepNorm's factors for the skip and for initial weights, in a model of one stack (Wang et al.
2022, figure 2).
"""


@dataclass(frozen=True, kw_only=True)
class Bug:
    build: Callable[[], nn.Module]
    rule: str
    severity: str
    said: str
    """What the message must contain."""
    right: Callable[[], nn.Module]
    """The same model without the error, in which the rule finds nothing above info."""


def deepnorm(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(ALPHA * x + f(x))


def drawn(
    join: Join, initialise: Callable[[nn.Module], None], final: int = 0
) -> Callable[[], nn.Module]:
    """A model of four blocks, in which a function has drawn the weights."""

    def build() -> nn.Module:
        model = Model(lambda: Stack(join, join, blocks=BLOCKS, final=final))
        with torch.no_grad():
            initialise(model)
        return model

    return build


def glorot(*, value: float, output: float, feed_forward: float) -> Callable[[nn.Module], None]:
    """Glorot normal with a gain for each purpose; queries and keys at gain 1, biases 0."""

    def initialise(model: nn.Module) -> None:
        for attention, ffn in (block.f for block in model.encoder.blocks):
            gains = {
                attention.query: 1.0,
                attention.key: 1.0,
                attention.value: value,
                attention.last: output,
            }
            for linear, gain in (gains | {ffn[0]: feed_forward, ffn[2]: feed_forward}).items():
                nn.init.xavier_normal_(linear.weight, gain=gain)
                nn.init.zeros_(linear.bias)

    return initialise


def divided(model: nn.Module) -> None:
    """torch's default for linear layers, over DeepNorm's 1 / beta."""
    for attention, ffn in (block.f for block in model.encoder.blocks):
        for linear in (attention.value, attention.last, ffn[0], ffn[2]):
            linear.weight.mul_(BETA)
            linear.bias.mul_(BETA)


class Packed(nn.Module):
    """Attention with one matrix for queries, keys and values, one after another or head by head."""

    def __init__(self, *, by_head: bool, value_gain: float, width: int) -> None:
        super().__init__()
        self.qkv, self.last, self.by_head = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            by_head,
        )
        nn.init.xavier_normal_(self.last.weight, gain=BETA)
        with torch.no_grad():
            for part, gain in zip(
                self._parts(self.qkv.weight.T), (1.0, 1.0, value_gain), strict=True
            ):
                drawn = torch.empty(width, width)
                nn.init.xavier_normal_(drawn, gain=gain)
                part.copy_(drawn.view(part.shape))

    def _parts(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, with heads of width 4 in a dimension of their own."""
        if self.by_head:
            return list(x.unflatten(-1, (-1, 3, 4)).unbind(-2))
        return [part.unflatten(-1, (-1, 4)) for part in x.chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in self._parts(self.qkv(x)))
        return self.last(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))


class PackedModel(nn.Module):
    """DeepNorm over packed attention."""

    def __init__(self, value_gain: float, *, by_head: bool = False, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.f = nn.ModuleList()
        for _ in range(BLOCKS):
            ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for linear in (ffn[0], ffn[2]):
                nn.init.xavier_normal_(linear.weight, gain=BETA)
            self.f += [Packed(by_head=by_head, value_gain=value_gain, width=width), ffn]
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.f)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for f, norm in zip(self.f, self.norms, strict=True):
            x = norm(ALPHA * x + f(x))
        return self.head(x)


class Gated(nn.Module):
    """ReZero, one gate at 0 for each block."""

    def __init__(
        self, *, read: Callable[[nn.Parameter], Tensor] = lambda gate: gate, trained: bool = True
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = Model(lambda: Stack(pre, pre, blocks=BLOCKS))
        self.gates = nn.ParameterList(
            nn.Parameter(torch.zeros(()), requires_grad=trained) for _ in range(BLOCKS)
        )
        for block, gate in zip(self.inner.encoder.blocks, self.gates, strict=True):
            block.joins = [lambda x, f, norm, gate=gate: x + read(gate) * f(x)] * 2
            block.norms = nn.ModuleList(nn.Identity() for _ in block.norms)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


class Twice(nn.Module):
    """ReZero whose branches end in a matrix of zeros, so that neither of the two ever moves."""

    def __init__(self, *, zeros: bool) -> None:
        super().__init__()
        self.gated = Gated()
        with torch.no_grad():
            for attention, ffn in (block.f for block in self.gated.inner.encoder.blocks):
                for linear in (attention.last, ffn[2]):
                    linear.weight.mul_(float(not zeros))
                    linear.bias.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gated(tokens)


class Copied(nn.Module):
    """Pre-LN of one block's copies, as `copy.deepcopy` of a layer makes them, or of blocks of their
    own.
    """

    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=BLOCKS, final=1))
        first, *others = self.inner.encoder.blocks
        for block in others if copied else ():
            block.load_state_dict(first.state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


class CopiedLater(nn.Module):
    """Pre-LN whose blocks from the third on are copies of the second, or are drawn."""

    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=BLOCKS, final=1))
        _, second, *others = self.inner.encoder.blocks
        for block in others if copied else ():
            block.load_state_dict(second.state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens)


def one_zero(model: nn.Module) -> None:
    """The last matrix of one feed-forward."""
    nn.init.zeros_(model.encoder.blocks[2].f[1][2].weight)
    nn.init.zeros_(model.encoder.blocks[2].f[1][2].bias)


def frozen(wanted: Callable[[str], bool]) -> Callable[[nn.Module], None]:
    """Parameters by name that are not trained."""

    def initialise(model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            weight.requires_grad_(not wanted(name))

    return initialise


class InBfloat(nn.Module):
    """A feed-forward whose weights, or whose products alone, are of bfloat16."""

    def __init__(self, inner: nn.Module, *, weights: bool) -> None:
        super().__init__()
        self.inner, self.weights = inner.bfloat16() if weights else inner, weights

    def forward(self, x: Tensor) -> Tensor:
        if self.weights:
            return self.inner(x.bfloat16()).float()
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x).float()


def in_bfloat(*blocks: int, weights: bool = False) -> Callable[[nn.Module], None]:
    def initialise(model: nn.Module) -> None:
        for number in blocks:
            f = model.encoder.blocks[number].f
            f[1] = InBfloat(f[1], weights=weights)

    return initialise


def one_larger(model: nn.Module) -> None:
    """The matrices of one feed-forward."""
    for linear in (model.encoder.blocks[2].f[1][0], model.encoder.blocks[2].f[1][2]):
        linear.weight.mul_(50.0)


def post_embedding(deviation: float) -> Callable[[], nn.Module]:
    """An embedding under a norm and under an output that is tied to it, as BERT's."""

    def build() -> nn.Module:
        model = Model(lambda: Stack(post, post, blocks=BLOCKS, first=1))
        nn.init.normal_(model.embedding.weight, std=deviation)
        model.projection.weight = model.embedding.weight
        return model

    return build


def rows_of(deviation: float) -> Callable[[nn.Module], None]:
    """Embeddings of that deviation, and the output projection tied to them."""

    def initialise(model: nn.Module) -> None:
        nn.init.normal_(model.embedding.weight, std=deviation)
        model.projection.weight = model.embedding.weight

    return initialise


def embedding_of(deviation: float) -> Callable[[nn.Module], None]:
    def initialise(model: nn.Module) -> None:
        nn.init.normal_(model.embedding.weight, std=deviation)

    return initialise


RIGHT_DEEPNORM = drawn(deepnorm, glorot(value=BETA, output=BETA, feed_forward=BETA))
GLOROT = "initialisation-unlike-placement"

BUGS: dict[str, Bug] = {
    # pixeli99/MixLN and lmsdss/LayerNorm-Scaling, the baseline "deeppost": (8L)^(+1/4) for
    # (8L)^(-1/4).
    "MixLN, the gain's exponent": Bug(
        build=drawn(deepnorm, glorot(value=1 / BETA, output=1 / BETA, feed_forward=1 / BETA)),
        rule=GLOROT,
        severity="error",
        said="in place of 0.42 (4 of 4 blocks)",
        right=RIGHT_DEEPNORM,
    ),
    # torchscale 16, 68: reset_parameters is never called, and torch's own draw is divided by 1 /
    # beta.
    "torchscale, a default divided": Bug(
        build=drawn(deepnorm, divided),
        rule=GLOROT,
        severity="warning",
        said="attention output 0.24 in place of 0.42 (4 of 4 blocks)",
        right=RIGHT_DEEPNORM,
    ),
    # xformers 284: the values' part of the packed matrix is not scaled.
    "xformers, values in a packed matrix": Bug(
        build=lambda: PackedModel(1.0),
        rule=GLOROT,
        severity="warning",
        said="and these are others: value",
        right=lambda: PackedModel(BETA),
    ),
    "the same, head by head": Bug(
        build=lambda: PackedModel(1.0, by_head=True),
        rule=GLOROT,
        severity="warning",
        said="and these are others: value",
        right=lambda: PackedModel(BETA, by_head=True),
    ),
    "DeepNorm's constants without its weights": Bug(
        build=drawn(deepnorm, glorot(value=1, output=1, feed_forward=1)),
        rule=GLOROT,
        severity="warning",
        said="in place of 0.42 (4 of 4 blocks), last feed-forward",
        right=RIGHT_DEEPNORM,
    ),
    # torch.nn.TransformerEncoder and every layer stack made with copy.deepcopy.
    "copies of one layer": Bug(
        build=lambda: Copied(copied=True),
        rule="identical-blocks",
        severity="warning",
        said="all 4 blocks start with the same weights",
        right=lambda: Copied(copied=False),
    ),
    "copies of the second layer": Bug(
        build=lambda: CopiedLater(copied=True),
        rule="identical-blocks",
        severity="warning",
        said="every matrix of blocks 3-4 is a copy of that of block 2",
        right=lambda: CopiedLater(copied=False),
    ),
    "a block left frozen": Bug(
        build=drawn(pre, frozen(lambda name: "blocks.2." in name), final=1),
        rule="frozen-unlike-others",
        severity="warning",
        said="block 3 of 4: encoder.blocks.2.f.0.query.weight is frozen (requires_grad is False), "
        "and so are 15 more",
        right=drawn(pre, frozen(lambda name: "blocks" in name), final=1),
    ),
    "all norms frozen": Bug(
        build=drawn(pre, frozen(lambda name: "norm" in name), final=1),
        rule="frozen-unlike-others",
        severity="warning",
        said="18 of 18 gains and shifts of norms are frozen at their initial values",
        right=drawn(pre, frozen(lambda name: False), final=1),
    ),
    "a feed-forward computed in bfloat16": Bug(
        build=drawn(pre, in_bfloat(1), final=1),
        rule="precision-unlike-others",
        severity="warning",
        said="block 2 of 4: encoder.blocks.1.f.1.inner is computed in bfloat16, while most of its "
        "counterparts",
        right=drawn(pre, in_bfloat(0, 1, 2, 3), final=1),
    ),
    # One block at std 1 where the others have 0.02: the stream jumps there.
    "a block drawn by another scheme": Bug(
        build=drawn(pre, one_larger, final=1),
        rule="uneven-blocks",
        severity="warning",
        said="block 3 of 4: encoder.blocks.2.f.1.2.weight starts 50.2 times as large as",
        right=drawn(pre, lambda model: None, final=1),
    ),
    "one matrix of zeros among many that are drawn": Bug(
        build=drawn(pre, one_zero, final=1),
        rule="dead-sublayer",
        severity="warning",
        said="though most of their counterparts in the other blocks do not: 1 of 8",
        right=drawn(pre, lambda model: None, final=1),
    ),
    "BERT's rows times 1,000": Bug(
        build=post_embedding(20.0),
        rule="embedding-too-large",
        severity="warning",
        said="The output matrix is the same table, so that logits are as much too large",
        right=post_embedding(0.02),
    ),
    # performer-pytorch 28: gates at 0 that get no gradient and stay there.
    "performer, gates read through .detach()": Bug(
        build=lambda: Gated(read=lambda gate: gate.detach()),
        rule="dead-gate",
        severity="error",
        said="for ever: 8. The gradient of their gates is exactly 0",
        right=Gated,
    ),
    "gates that do not train": Bug(
        build=lambda: Gated(trained=False),
        rule="dead-gate",
        severity="error",
        said="for ever: 8. The factor is no trainable parameter",
        right=Gated,
    ),
    "gates at 0 before matrices of zeros": Bug(
        build=lambda: Twice(zeros=True),
        rule="dead-gate",
        severity="error",
        said="for ever: 8. The gradient of their gates is exactly 0",
        right=lambda: Twice(zeros=False),
    ),
    # torch.nn.Embedding's own N(0, 1), tied to the output.
    "rows of N(0, 1), tied": Bug(
        build=drawn(pre, rows_of(1.0), final=1),
        rule="loss-far-from-chance",
        severity="warning",
        said="above ln 24 = 3.18: the model is sure of what it cannot know",
        right=drawn(pre, rows_of(0.1), final=1),
    ),
    # The same N(0, 1) under Vaswani et al.'s factor √d of a wide model.
    "rows of N(0, 1) times √1024": Bug(
        build=drawn(pre, embedding_of(32.0), final=1),
        rule="embedding-swamps-blocks",
        severity="warning",
        said="blocks barely change what the next one reads",
        right=drawn(pre, embedding_of(1.0), final=1),
    ),
    "rows of U(-1/d, 1/d) of a wide model under a norm": Bug(
        build=drawn(pre, embedding_of(1e-4), final=1),
        rule="norm-epsilon",
        severity="warning",
        said="adds ε = 1e-05 to a mean square of",
        right=drawn(pre, embedding_of(0.02), final=1),
    ),
    # Gemma 4 as transformers had it: norms of queries and keys, and a scale of 1.
    "norms of queries and keys under another scale": Bug(
        build=lambda: attending.model(attending.normed_at(2.0)),
        rule="attention-saturated",
        severity="warning",
        said="q·k is multiplied by 2, not by 1/√8",
        right=lambda: attending.model(attending.normed_at(8**-0.5)),
    ),
    "attention without 1/√d under small weights": Bug(
        build=lambda: attending.model(attending.scaled(1.0)),
        rule="attention-scale",
        severity="warning",
        said="no 1/√d takes off what the width of a head multiplies logits with",
        right=lambda: attending.model(attending.as_t5),
    ),
}
