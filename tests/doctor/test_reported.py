"""Bugs that people reported of Transformers they wrote: found by rule and words, with the right
twin silent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.doctor.diagnose import Diagnosis

WIDTH, HEADS, CLASSES, TOKENS, BLOCKS = 32, 4, 41, 12, 3
IDS = torch.randint(4, CLASSES, (3, TOKENS), generator=torch.Generator().manual_seed(1))
PADDED = IDS.masked_fill(torch.arange(TOKENS) >= torch.tensor([[8], [TOKENS], [10]]), 0)
Map = Callable[[Tensor], Tensor]


def next_token(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())


def drawn_tokens(logits: Tensor) -> Tensor:
    targets = torch.randint(CLASSES, IDS.shape, generator=torch.Generator().manual_seed(2))
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def heads(y: Tensor) -> Tensor:
    return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def merged(y: Tensor) -> Tensor:
    return y.transpose(1, 2).flatten(2)


def pre(x: Tensor, of: "Block") -> Tensor:
    x = x + of.attend(of.norms[0](x))
    return x + of.feed(of.norms[1](x))


def one_matrix(of: "Block", x: Tensor) -> Tensor:
    return of.down(of.up(x))


def ended(x: Tensor, of: "Block") -> Tensor:
    x = x + of.attend(of.norms[0](x))
    return of.norms[1](x + of.feed(x))


def with_a_resting_tower(model: "Model") -> None:
    """One that waits for inputs of another kind, a matrix of which has the head's shape."""
    model.tower = nn.MultiheadAttention(WIDTH, HEADS)
    model.tower.in_proj_weight = nn.Parameter(torch.randn(CLASSES, WIDTH))


def query_for_key(block: "Block") -> None:
    block.key_of = block.query


def normed_skip(x: Tensor, of: "Block") -> Tensor:
    x = of.norms[0](x) + of.attend(of.norms[0](x))
    return x + of.feed(of.norms[1](x))


def skip_from_its_norm(x: Tensor, of: "Block") -> Tensor:
    x = of.norms[0](x)
    x = x + of.attend(x)
    return x + of.feed(of.norms[1](x))


def skipped_twice(x: Tensor, of: "Block") -> Tensor:
    first = of.norms[0](x)
    x = x + first + of.attend(first)
    second = of.norms[1](x)
    return x + second + of.feed(second)


def norm_on_the_skip(x: Tensor, of: "Block") -> Tensor:
    x = of.norms[0](x) + of.attend(x)
    return of.norms[1](x) + of.feed(x)


@dataclass(kw_only=True)
class How:
    """What is done otherwise than in the right model."""

    block: Callable[[Tensor, "Block"], Tensor] = pre
    split: Map = heads
    normed: Map = lambda y: y
    """Of queries and of keys."""
    turned: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] = lambda *made: made
    """Of queries, keys and values, of (B, H, T, E)."""
    bias: Callable[["Block", Tensor], Tensor] = lambda of, logits: logits
    merge: Map = merged
    causal: bool = True
    blocks: int = BLOCKS
    axis: int = -1
    """Of the softmax."""
    mask: float = -1e9
    first_hidden: int = 1
    """The first diagonal that the causal mask hides."""
    hidden: Callable[[Tensor], Tensor] | None = None
    """Of a mask of padding, which logits are hidden."""
    feed: Callable[["Block", Tensor], Tensor] = lambda of, x: of.down(functional.gelu(of.up(x)))
    positions: Callable[[Tensor, Tensor], Tensor] = lambda x, table: x + table[: x.shape[1]]
    head: Callable[["Model", Tensor], Tensor] = lambda model, x: model.head(x)
    change: Callable[["Model"], object] = lambda model: None
    loss: Callable[[Tensor], Tensor] = next_token
    inputs: tuple[Tensor, ...] = field(default_factory=lambda: (IDS,))


class Block(nn.Module):
    """Attention and feed-forward, with their norms."""

    def __init__(self, how: How) -> None:
        super().__init__()
        self.how, self.padding, self.key_of, self.table, self.out_of = how, None, None, None, True
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def attend(self, x: Tensor) -> Tensor:
        made = (self.query, self.key if self.key_of is None else self.key_of, self.value)
        query, key, value = (self.how.split(linear(x)) for linear in made)
        query, key, value = self.how.turned(self.how.normed(query), self.how.normed(key), value)
        logits = self.how.bias(self, query @ key.mT * query.shape[-1] ** -0.5)
        if self.how.causal:
            hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(self.how.first_hidden)
            logits = logits.masked_fill(hidden, self.how.mask)
        if self.padding is not None and self.how.hidden is not None:
            logits = logits.masked_fill(self.how.hidden(self.padding), -1e9)
        mixed = self.how.merge(logits.softmax(self.how.axis) @ value).reshape(x.shape)
        return self.out(mixed) if self.out_of else mixed

    def feed(self, x: Tensor) -> Tensor:
        return self.how.feed(self, x)

    def forward(self, x: Tensor) -> Tensor:
        return self.how.block(x, self)


class Model(nn.Module):
    """Embedding, positions, blocks, norm and head, by GPT-2's scheme."""

    def __init__(self, how: How) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.tokens, self.places = (
            nn.Embedding(CLASSES, WIDTH),
            nn.Parameter(torch.zeros(64, WIDTH)),
        )
        self.blocks = nn.ModuleList(Block(how) for _ in range(how.blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                nn.init.normal_(
                    weight,
                    std=0.02 * (2 * how.blocks) ** (-0.5 * ("out." in name or "down." in name)),
                )
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        how.change(self)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.how.positions(self.tokens(ids), self.places)
        for block in self.blocks:
            block.padding = mask
            x = block(x)
        return self.how.head(self, self.norm(x))


def judged(how: How) -> Diagnosis:
    return normscope.diagnose(Model(how), how.inputs, loss=how.loss, advise=False)


def loud(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    return [
        (one.id, one.message, one.where)
        for one in diagnosis.findings
        if one.severity.value != "info"
    ]


def of_padding(hidden: Callable[[Tensor], Tensor] | None) -> How:
    return How(causal=False, hidden=hidden, inputs=(PADDED, PADDED != 0), loss=drawn_tokens)


def without_projection(x: Tensor, of: Block) -> Tensor:
    of.out_of = False
    x = x + of.attend(of.norms[0](x))
    return x + of.feed(of.norms[1](x))


def factor_on_the_sum(x: Tensor, of: Block) -> Tensor:
    x = of.norms[0](1.7 * (x + of.attend(x)))
    return of.norms[1](1.7 * (x + of.feed(x)))


def without_end(model: Model) -> None:
    model.norm = nn.Identity()


def in_a_list(model: Model) -> None:
    blocks = list(model.blocks)
    del model.blocks
    model.blocks = blocks


def copied(model: Model) -> None:
    model.head.weight.data = model.tokens.weight.data.clone()


def tied(model: Model) -> None:
    model.head.weight = model.tokens.weight


class Sized(nn.Module):
    """A norm by hand, times or over a power of a token's mean square."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power, self.gain = power, nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).pow(self.power) * self.gain


def sized(power: float) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        for block in model.blocks:
            block.norms = nn.ModuleList(Sized(power) for _ in range(2))
        model.norm = Sized(power)

    return change


def turn(x: Tensor, dimension: int = -2, sign: int = 1) -> Tensor:
    """Rotates pairs of features by an angle for each place along a dimension."""
    count, pairs = x.shape[dimension], x.shape[-1] // 2
    angles = sign * torch.arange(count)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    angles = angles[:, None] if dimension == 1 else angles
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).flatten(-2)


def rotated(query: int = 1, key: int = 1, value: int = 0, dimension: int = -2) -> How:
    """Signs of the angles; 0 where nothing is rotated."""
    signs = (query, key, value)
    return How(
        turned=lambda *made: tuple(
            turn(one, dimension, sign) if sign else one
            for one, sign in zip(made, signs, strict=True)
        )
    )


def by_halves(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def two_conventions(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries by neighbours as pairs, keys by halves."""
    pairs = key.shape[-1] // 2
    angles = torch.arange(key.shape[-2])[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return turn(query), by_halves(key, angles), value


def by_one_angle(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    angles = torch.arange(key.shape[-2])[:, None].expand(-1, key.shape[-1] // 2).float()
    return by_halves(query, angles), by_halves(key, angles), value


def sloped(sign: int) -> How:
    """ALiBi, right at -1."""

    def bias(_: Block, logits: Tensor) -> Tensor:
        places = torch.arange(TOKENS)
        slopes = 2.0 ** -torch.arange(2.0, 2.0 + HEADS)
        return logits + sign * slopes[:, None, None] * (places[:, None] - places).abs()

    return How(bias=bias)


def in_first_alone(of: Block, logits: Tensor) -> Tensor:
    distances = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    return logits + of.table[:, distances.clamp(min=0)] if of.table is not None else logits


def with_tables(count: int) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        for block in model.blocks[:count]:
            block.table = nn.Parameter(torch.randn(HEADS, TOKENS))

    return change


def summed(norm: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Model], None]:
    """RMS norms by hand, with what is done with the sum of squares of their inputs."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return norm(x, x.square().sum(-1, keepdim=True)) * self.gain

    def change(model: Model) -> None:
        for block in model.blocks:
            block.norms = nn.ModuleList(Own() for _ in range(2))
        model.norm = Own()

    return change


def normed_twice(x: Tensor, of: Block) -> Tensor:
    x = x + of.norms[0](of.attend(of.norms[0](x)))
    return x + of.norms[1](of.feed(of.norms[1](x)))


def on_the_sum(curve: Map) -> Callable[[Tensor, Block], Tensor]:
    def block(x: Tensor, of: Block) -> Tensor:
        x = curve(x + of.attend(of.norms[0](x)))
        return curve(x + of.feed(of.norms[1](x)))

    return block


def beside(skips: int) -> Callable[[Tensor, Block], Tensor]:
    return lambda x, of: skips * x + of.attend(of.norms[0](x)) + of.feed(of.norms[1](x))


def dropped(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.1, training=False)


def on_the_branch(x: Tensor, of: Block) -> Tensor:
    x = x + dropped(of.attend(of.norms[0](x)))
    return x + dropped(of.feed(of.norms[1](x)))


def redrawn(of: Callable[[str, nn.Parameter], float | None]) -> Callable[[Model], None]:
    """Draws parameters of blocks anew at the deviation that is given for their name, if any is."""

    def change(model: Model) -> None:
        for name, weight in model.blocks.named_parameters():
            if (deviation := of(name, weight)) is not None:
                nn.init.normal_(weight, std=deviation)

    return change


def inner_divided(name: str, _: nn.Parameter) -> float | None:
    return (
        0.02 * (2 * BLOCKS) ** -0.5
        if "up.weight" in name
        else 0.02
        if "down.weight" in name
        else None
    )


def of_depth(blocks: int) -> Callable[[str, nn.Parameter], float | None]:
    return lambda name, weight: (
        0.02 * (2 * blocks) ** -0.5
        if weight.ndim > 1 and ("out." in name or "down." in name)
        else None
    )


def wide_biases(name: str, _: nn.Parameter) -> float | None:
    return (
        1.0
        if name.endswith(
            ("query.bias", "key.bias", "value.bias", "out.bias", "up.bias", "down.bias")
        )
        else None
    )


def of_one_sign(model: Model) -> None:
    for weight in model.blocks.parameters():
        weight.data.abs_() if weight.ndim > 1 else None


def over(*dims: int) -> Map:
    return lambda y: y * torch.rsqrt(y.square().mean(dims, keepdim=True) + 1e-6)


class Router(nn.Module):
    """A vector that stands alone and is no norm's, as the bias of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self) -> Tensor:
        return self.bias.sum()


def with_more_heads(model: Model) -> None:
    del model.head
    model.heads = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(3))
    for head in model.heads:
        nn.init.normal_(head.weight, std=0.02)


def any_head(model: Model, x: Tensor) -> Tensor:
    return torch.stack([head(x) for head in model.heads[: 3 if model.training else 1]]).mean(0)


def each(make: Callable[[], nn.Module]) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        for block in model.blocks:
            block.more = make()

    return change


def convolved(x: Tensor, of: Block) -> Tensor:
    x = of.more((x + of.attend(of.norms[0](x))).mT).mT
    return x + of.feed(of.norms[1](x))


def shifted(places: int) -> Callable[[Tensor], Tensor]:
    return lambda logits: functional.cross_entropy(
        logits[:, : TOKENS - places].flatten(0, 1), IDS[:, places:].flatten()
    )


def attending(attend: Callable[[Block, Tensor], Tensor]) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        for block in model.blocks:
            block.attend = lambda x, of=block: attend(of, x)

    return change


def of_all_heads(of: Block, x: Tensor) -> Tensor:
    """A softmax over heads and keys at once."""
    query, key, value = (heads(linear(x)) for linear in (of.query, of.key, of.value))
    logits = (query @ key.mT * query.shape[-1] ** -0.5).transpose(1, 2)
    weights = logits.flatten(2).softmax(-1).view(logits.shape).transpose(1, 2)
    return of.out(merged(weights @ value))


def by_key_alone(of: Block, x: Tensor) -> Tensor:
    one = heads(of.key(x))
    return of.out(merged((one @ one.mT * one.shape[-1] ** -0.5).softmax(-1) @ one))


def folded(repeat: Callable[[Tensor], Tensor]) -> Callable[[Block, Tensor], Tensor]:
    """Heads before sequences in one dimension, and what makes a mask of sequences one of both."""

    def attend(of: Block, x: Tensor) -> Tensor:
        made = (linear(x).unflatten(-1, (HEADS, -1)) for linear in (of.query, of.key, of.value))
        query, key, value = (y.permute(2, 0, 1, 3).flatten(0, 1) for y in made)
        logits = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(
            ~repeat(of.padding)[:, None], -1e9
        )
        mixed = (logits.softmax(-1) @ value).unflatten(0, (HEADS, -1))
        return of.out(mixed.permute(1, 2, 0, 3).flatten(2))

    return attend


def routed(of: Block, x: Tensor) -> Tensor:
    """A weight of one expert over its own sum, beside the one that counts."""
    weight = of.more(x).softmax(-1).topk(1, -1)[0]
    return of.down(functional.gelu(of.up(x))) * (weight / weight.sum(-1, keepdim=True))


def says_tied(model: Model) -> None:
    model.config = SimpleNamespace(tie_word_embeddings=True)


ENCODER, CAUSAL = How(causal=False, loss=drawn_tokens), How()
BUGS: dict[str, tuple[How, str, str]] = {
    "a variance for a deviation": (
        How(change=redrawn(lambda _, weight: 0.02**2 if weight.ndim > 1 else None)),
        "initial-scheme",
        "is the square of 0.02, as where a variance is given for a deviation",
    ),
    "queries of N(0, 1) alone": (
        How(change=redrawn(lambda name, _: 1.0 if "query.weight" in name else None)),
        "initial-scheme",
        "no scheme has them so far apart",
    ),
    "x twice beside two branches": (
        How(block=beside(2)),
        "amplified-stream",
        "multiplies the stream by 8",
    ),
    "a softmax over heads and keys at once": (
        replace(ENCODER, change=attending(of_all_heads)),
        "softmax-axis",
        "heads and keys at once: 4 heads share one sum",
    ),
    "one matrix for queries, keys and values": (
        replace(ENCODER, change=attending(by_key_alone)),
        "unused-parameters",
        "6 of the matrices are built and never read",
    ),
    "a mask repeated in another order than heads": (
        replace(
            of_padding(None),
            change=attending(folded(lambda mask: mask.repeat_interleave(HEADS, 0))),
        ),
        "attention-mask",
        "of their weight to padding",
    ),
    "a router's weight over itself": (
        How(feed=routed, change=each(lambda: nn.Linear(WIDTH, 3, bias=False))),
        "rounded-gradient",
        "3 of 9 matrices get a gradient of",
    ),
    "a head that is tied in the configuration alone": (
        How(change=says_tied),
        "untied-head",
        "head.weight is a matrix of its own",
    ),
    "heads split by view alone": (
        How(split=lambda y: y.view(len(y), HEADS, TOKENS, -1)),
        "attention-mask",
        "attention, make of a token what depends on later ones",
    ),
    "heads merged by view alone": (
        How(merge=lambda y: y),
        "attention-mask",
        "Tokens change places",
    ),
    "a mean over the sequence in the feed-forward": (
        How(feed=lambda of, x: of.down(functional.gelu(of.up(x + x.mean(1, keepdim=True))))),
        "attention-mask",
        "what depends on later ones",
    ),
    "attention over the batch": (
        How(
            causal=False,
            split=lambda y: heads(y.transpose(0, 1)),
            merge=lambda y: merged(y).transpose(0, 1),
        ),
        "sequences-mixed",
        "3 of 6 sub-layers make of a token what depends on other rows of the batch's first "
        "dimension",
    ),
    "positions over the batch": (
        How(positions=lambda x, table: x + table[: len(x), None], causal=False, loss=drawn_tokens),
        "sequences-mixed",
        "sequences are numbered, and tokens have no place",
    ),
    "a mask of padding over queries": (
        of_padding(lambda mask: ~mask[:, None, :, None]),
        "attention-mask",
        "of their weight to padding",
    ),
    "a mean square that multiplies": (
        How(change=sized(0.5)),
        "norm-without-root",
        "7 modules scale each token by its own mean square, and what comes out grows with the "
        "token's size to the power 2",
    ),
    "a variance without its root": (
        How(change=sized(-1.0)),
        "norm-without-root",
        "to the power -1",
    ),
    "a mask that hides the diagonal": (
        How(first_hidden=0),
        "attention-mask",
        "and not at themselves",
    ),
    "a factor on the whole sum": (
        How(block=factor_on_the_sum, change=without_end),
        "misplaced-step",
        "takes it away",
    ),
    "blocks in a plain list": (How(change=in_a_list), "unused-parameters", "none of the model's"),
    "queries and keys normed over heads": (
        How(normed=over(1)),
        "query-key-norms",
        "they bound no logit",
    ),
    "the skip from a norm that is called again": (
        How(block=normed_skip),
        "misplaced-step",
        "in 3 of 6 sub-layers",
    ),
    "attention's skip from the norm that it reads": (
        How(block=skip_from_its_norm),
        "misplaced-step",
        "attention: the norm in front of it is in the skip too",
    ),
    "a skip of x and one of its norm": (
        How(block=skipped_twice),
        "misplaced-step",
        "is added where x is meant",
    ),
    "the norm on the skip": (How(block=norm_on_the_skip), "misplaced-step", "in 6 of 6 sub-layers"),
    "keys by the matrix of queries": (
        How(change=lambda model: [query_for_key(block) for block in model.blocks]),
        "unused-parameters",
        "3 of the matrices are built and never read",
    ),
    "no output projection": (
        How(block=without_projection),
        "unused-parameters",
        "3 of the matrices are built and never read",
    ),
    "another matrix in the head's place": (
        How(head=lambda model, x: x @ model.tokens.weight.T),
        "unused-parameters",
        "1 of the matrices are built and never read",
    ),
    "a feed-forward without a curve": (
        How(feed=one_matrix),
        "misplaced-curve",
        "nothing but sums between them",
    ),
    "a curve behind the last matrix": (
        How(feed=lambda of, x: of.down(of.up(x)).relu()),
        "misplaced-curve",
        "end in a nonlinearity, behind their last matrix",
    ),
    "a softmax before a cross-entropy": (
        How(head=lambda model, x: model.head(x).softmax(-1)),
        "scores-not-logits",
        "sum to 1 already",
    ),
    "logits cut at 0": (
        How(head=lambda model, x: model.head(x).relu()),
        "scores-not-logits",
        "cut off at 0",
    ),
    "targets that are not shifted": (How(loss=shifted(0)), "targets-misplaced", "the very tokens"),
    "targets that are shifted twice": (
        How(loss=shifted(2)),
        "targets-misplaced",
        "two places later",
    ),
    "a head that is tied by value": (
        How(change=copied),
        "identical-blocks",
        "starts as a copy of tokens.weight",
    ),
    "values that are rotated too": (
        rotated(value=1),
        "misplaced-positions",
        "values are turned by their place too",
    ),
    "queries and keys are turned by two conventions": (
        How(turned=two_conventions),
        "misplaced-positions",
        "of a token with itself is another number at every place",
    ),
    "all channels are turned by one angle": (
        How(turned=by_one_angle),
        "misplaced-positions",
        "places a turn apart look alike",
    ),
    "heads are rotated in the place of tokens, behind norms of queries and keys": (
        replace(rotated(dimension=1), normed=lambda y: functional.rms_norm(y, y.shape[-1:])),
        "misplaced-positions",
        "places are counted along the heads",
    ),
    "queries alone are rotated": (rotated(key=0), "misplaced-positions", "the same for every key"),
    "keys are rotated the other way": (
        rotated(key=-1),
        "misplaced-positions",
        "the sum of two tokens' places",
    ),
    "rotations along the heads": (
        rotated(dimension=1),
        "misplaced-positions",
        "counted along the heads",
    ),
    "a bias that grows with distance": (
        sloped(1),
        "misplaced-positions",
        "the farthest key gets the most weight",
    ),
    "a bias in the first block alone": (
        How(bias=in_first_alone, change=with_tables(1), blocks=4),
        "misplaced-positions",
        "places in the first block alone",
    ),
    "a sum in place of a mean": (
        How(change=summed(lambda x, squares: x * torch.rsqrt(squares + 1e-6))),
        "norm-without-root",
        "entries leave them at 1/√32",
    ),
    "a mean taken away alone": (
        How(change=summed(lambda x, squares: x - x.mean(-1, keepdim=True))),
        "norm-without-root",
        "take each token's mean away alone",
    ),
    "a variance in place of a mean square": (
        How(change=summed(lambda x, squares: x * (x.var(-1, keepdim=True) + 1e-6).rsqrt())),
        "norm-without-root",
        "7 of the 7 norms of 3 blocks divide each token by its deviation about its mean, and leave "
        "the mean in",
    ),
    "statistics without a gradient": (
        How(change=summed(lambda x, squares: x * torch.rsqrt(squares / WIDTH + 1e-6).detach())),
        "norm-without-root",
        "7 of the 7 norms of 3 blocks detach their statistics",
    ),
    "one norm before and behind": (
        How(block=normed_twice),
        "shared-norm",
        "twice around one sub-layer",
    ),
    "a dropout on the sum": (How(block=on_the_sum(dropped)), "altered-stream", "a dropout 5 times"),
    "a curve on the sum": (How(block=on_the_sum(torch.relu)), "altered-stream", "relu 5 times"),
    "a bound on the sum": (
        How(block=on_the_sum(lambda x: x.clamp(-0.01, 0.01))),
        "altered-stream",
        "(clamp)",
    ),
    "the inner matrix divided by depth": (
        How(change=redrawn(inner_divided)),
        "initial-scheme",
        "at the matrix that reads the stream",
    ),
    "divided for another depth": (
        How(change=redrawn(of_depth(48))),
        "initial-scheme",
        "and here are 3",
    ),
    "biases of N(0, 1)": (How(change=redrawn(wide_biases)), "drawn-shifts", "18 of 18 biases"),
    "weights of one sign": (How(change=of_one_sign), "constant-weights", "18 of 18 matrices"),
    "a softmax over heads, with -inf": (
        How(change=lambda model: None, axis=1, mask=-torch.inf),
        "no-gradient",
        "rows of nothing but -inf",
    ),
    "a mask of padding that is not used": (
        of_padding(None),
        "attention-mask",
        "of their weight to padding",
    ),
}
RIGHT = {
    "branches side by side": How(block=beside(1)),
    "a mask repeated in the order of heads": replace(
        of_padding(None), change=attending(folded(lambda mask: mask.repeat(HEADS, 1)))
    ),
    "a head that is tied as the configuration says": How(
        change=lambda model: (says_tied(model), tied(model))
    ),
    "causal": CAUSAL,
    "encoder": ENCODER,
    "tied": How(change=tied),
    "log-probabilities": How(
        head=lambda model, x: model.head(x).log_softmax(-1),
        loss=lambda scores: functional.nll_loss(scores[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()),
    ),
    "a gated feed-forward": How(feed=lambda of, x: of.down(of.up(x).sigmoid() * of.up(x))),
    "a norm by hand": How(change=sized(-0.5)),
    "queries and keys normed by head": How(normed=over(-1)),
    "a tower that rests": How(change=with_a_resting_tower),
    "heads for training alone": How(change=with_more_heads, head=any_head),
    "a frozen bias of a router": How(
        change=each(Router), feed=lambda of, x: of.down(functional.gelu(of.up(x)) + of.more())
    ),
    "padding": of_padding(lambda mask: ~mask[:, None, None]),
    "rotations": rotated(),
    "rotations behind norms of queries and keys": replace(
        rotated(), normed=lambda y: functional.rms_norm(y, y.shape[-1:])
    ),
    # As where sequences are cut into chunks, and the last one is filled up.
    "values that are zeros at the end": How(
        turned=lambda query, key, value: (
            query,
            key,
            value * (torch.arange(TOKENS) < TOKENS - 2)[:, None],
        )
    ),
    "queries that are zeros at the end": How(
        turned=lambda query, key, value: (
            query * (torch.arange(TOKENS) < TOKENS - 2)[:, None],
            key,
            value,
        )
    ),
    "ALiBi": sloped(-1),
    "a bias in every block": How(bias=in_first_alone, change=with_tables(4), blocks=4),
    "a mean by hand": How(
        change=summed(lambda x, squares: x * torch.rsqrt(squares / WIDTH + 1e-6))
    ),
    "a dropout on the branch": How(block=on_the_branch),
    "bounds that nothing reaches": How(block=on_the_sum(lambda x: x.clamp(-1e4, 1e4))),
    "divided for this depth": How(change=redrawn(of_depth(BLOCKS))),
    "turned to tokens first inside": How(
        positions=lambda x, table: (x + table[: x.shape[1]]).transpose(0, 1),
        split=lambda y: heads(y.transpose(0, 1)),
        merge=lambda y: merged(y).transpose(0, 1),
        head=lambda model, x: model.head(x.transpose(0, 1)),
    ),
    # As Conformer's: the last one stands where a final norm would.
    "a norm at the end of every block": How(block=ended, change=without_end),
    # A user who hands over (T, B) and has positions of T.
    "tokens first": How(
        causal=False,
        split=lambda y: heads(y.transpose(0, 1)),
        merge=lambda y: merged(y).transpose(0, 1),
        positions=lambda x, table: x + table[: len(x), None],
        inputs=(IDS.T,),
        loss=lambda logits: drawn_tokens(logits.transpose(0, 1)),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_what_was_reported_is_found(name):
    how, rule, told = BUGS[name]
    assert [
        (found, message)
        for found, message, _ in loud(judged(how))
        if found == rule and told in message
    ]


def test_an_optimiser_of_another_model_is_an_error():
    other = torch.optim.AdamW(Model(CAUSAL).parameters(), weight_decay=0.0)
    found = normscope.diagnose(
        Model(CAUSAL), (IDS,), loss=next_token, optimizer=other, advise=False
    ).findings
    ((rule, severity, message),) = [(one.id, one.severity.value, one.message) for one in found]
    assert (rule, severity) == ("unused-in-optimizer", "error")
    assert "none of which is this model's" in message


def test_a_block_at_a_rate_of_0_is_named():
    model = Model(CAUSAL)
    inside = list(model.blocks[1].parameters())
    held = {id(weight) for weight in inside}
    rest = [weight for weight in model.parameters() if id(weight) not in held]
    groups = [{"params": inside, "lr": 0.0}, {"params": rest}]
    found = normscope.diagnose(
        model,
        (IDS,),
        loss=next_token,
        optimizer=torch.optim.AdamW(groups, weight_decay=0.0),
        advise=False,
    )
    assert [
        one for one in loud(found) if one[0] == "optimizer-unlike-others" and "block 2 of" in one[1]
    ]


def test_an_optimiser_without_any_block_is_a_warning():
    model = Model(CAUSAL)
    outside = [weight for name, weight in model.named_parameters() if not name.startswith("blocks")]
    found = normscope.diagnose(
        model,
        (IDS,),
        loss=next_token,
        optimizer=torch.optim.AdamW(outside, weight_decay=0.0),
        advise=False,
    )
    ((rule, message, _),) = loud(found)
    assert rule == "unused-in-optimizer"
    assert "none of any block" in message


def test_a_convolution_between_two_sublayers_needs_no_skip():
    how = How(
        block=convolved, change=each(lambda: nn.Conv1d(WIDTH, WIDTH, 3, padding=1)), causal=False
    )
    assert "lost-residual" not in {rule for rule, *_ in loud(judged(how))}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_silent(name):
    assert loud(judged(RIGHT[name])) == []
