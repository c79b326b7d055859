"""Wiring errors that were made in public code, each rebuilt as a small model, and the rule that
must find it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from doctor import attending
from doctor.several_streams import STREAMS, Dynamic, SeveralStreams, as_it_is, by_matmul
from doctor.wired import WIDTH, Attention, Block, F, Join, Model, Stack, post, pre


def with_idle_norms(blocks: int) -> list[nn.Module]:
    """Pre-LN blocks whose attention has norms of queries and keys, half as wide as the stream, that
    it never calls.
    """
    made = [Block((pre, pre)) for _ in range(blocks)]
    for block in made:
        block.f[0].query_norm, block.f[0].key_norm = nn.RMSNorm(WIDTH // 2), nn.RMSNorm(WIDTH // 2)
    return made


@dataclass(frozen=True, kw_only=True)
class Bug:
    build: Callable[[], nn.Module]
    rule: str
    said: str
    """What the message must contain."""
    where: str
    """What `where` must contain."""
    severity: str
    right: Callable[[], nn.Module]
    """The same model without the error, in which the rule finds nothing."""
    wanted_placement: str | None = None


class SoftmaxAlone(Dynamic):
    """mHC without its rounds."""

    def connecting(self, logits: Tensor) -> Tensor:
        return (5 * logits).softmax(-1)


class NotDoubled(Dynamic):
    """mHC without the factor 2 of what is added."""

    def expanding(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


class FirstAlone(Dynamic):
    """mHC whose weights of what is added come from a mask of one stream, as a one-hot start of
    theirs reads.
    """

    def expanding(self, logits: Tensor) -> Tensor:
        return 2 * logits.sigmoid() * torch.eye(STREAMS)[0]


class Wide(Dynamic):
    """mHC whose logits have the standard deviation of DeepSeek-V4's at its width of 4,096: 0.02 √(4
    · 4,096).
    """

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.weight.mul_((4096 / WIDTH) ** 0.5)


class OneForAll(Dynamic):
    """mHC with one weight of what is added for each token, not for each of its streams."""

    def expanding(self, logits: Tensor) -> Tensor:
        return 2 * logits.mean(-1, keepdim=True).sigmoid().expand_as(logits)


class WithoutNorm(SeveralStreams):
    """mHC whose streams are collapsed to what the output reads, with no norm between."""

    def __init__(self) -> None:
        super().__init__(by_matmul)
        self.final = nn.Identity()


def hyper() -> nn.Module:
    return SeveralStreams(by_matmul)


def weighed(alpha: float) -> Join:
    return lambda x, f, norm: norm(alpha * x + f(x))


def scaled_by(number: Callable[[int, int], float], blocks: int = 4) -> Callable[[], nn.Module]:
    """x + F(LN(x) / √n), n a function of the block and the sub-layer, both counted from 0."""

    def join(n: float) -> Join:
        return lambda x, f, norm: x + f(norm(x) / n**0.5)

    rows = [[join(number(block, sublayer)) for sublayer in (0, 1)] for block in range(blocks)]
    return lambda: Model(lambda: Stack(blocks=[Block(row) for row in rows], final=1))


def onto_the_stream(x: Tensor, f: F, norm: F) -> Tensor:
    x = norm(x)
    return x + f(x)


def twice_normed(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(x) + f(norm(x))


class Numbered(nn.Module):
    """A Pre-LN block whose norms have numbers."""

    def __init__(self, order: tuple[str, str]) -> None:
        super().__init__()
        self.inner, self.order = Block((pre, pre)), order
        self.ln_1, self.ln_2 = self.inner.norms
        self.inner.norms = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        for f, name in zip(self.inner.f, self.order, strict=True):
            x = pre(x, f, self.get_submodule(name))
        return x


def numbered(*order: str) -> Callable[[], nn.Module]:
    return lambda: Model(lambda: Stack(blocks=[Numbered(order) for _ in range(4)], final=1))


def without_skip(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(f(x))


def pre_without_skip(x: Tensor, f: F, norm: F) -> Tensor:
    return f(norm(x))


def dropped(x: Tensor, f: F, norm: F) -> Tensor:
    f(norm(x))
    return x


def one_block_of(
    *joins: Join, others: Join, at: int = 2, final: int = 0
) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        blocks = [Block(joins if number == at else (others, others)) for number in range(4)]
        return Model(lambda: Stack(blocks=blocks, final=final))

    return build


def encoder_decoder(
    join: Join, *, final: int, alphas: tuple[float, float] | None = None
) -> Callable[[], nn.Module]:
    of_encoder, of_decoder = (weighed(alpha) for alpha in alphas) if alphas else (join, join)
    return lambda: Model(
        lambda: Stack(of_encoder, of_encoder, blocks=3, final=final),
        lambda: Stack(of_decoder, of_decoder, of_decoder, blocks=3, final=int(join is pre)),
    )


class Idle(nn.Module):
    """A block whose type of norm no case matches."""

    def __init__(self, norm_type: str) -> None:
        super().__init__()
        self.norm_type, self.inner = norm_type.lower(), Block((pre, pre))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if self.norm_type in ("pre", "LNS") else x


class Unnormed(nn.Module):
    """A block that builds its norms and leaves one of them out."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.mixing, self.norm, self.second_norm = (
            Attention(),
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
        )
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.used = used

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixing(self.norm(x))
        return x + self.ffn((self.second_norm if self.used else self.norm)(x))


class Torch(nn.Module):
    def __init__(self, final: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.embedding = nn.Embedding(24, WIDTH)
        self.inner = nn.TransformerEncoder(
            layer, 3, norm=nn.LayerNorm(WIDTH) if final else None, enable_nested_tensor=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.embedding(x))


def both(join: Join, *, blocks: int = 4, final: int = 0, first: int = 0) -> Callable[[], nn.Module]:
    return lambda: Model(lambda: Stack(join, join, blocks=blocks, final=final, first=first))


def rows(*others: tuple[Join, Join], final: int) -> Callable[[], nn.Module]:
    return lambda: Model(lambda: Stack(blocks=[Block(row) for row in others], final=final))


def with_shared_norms(*, across: bool) -> nn.Module:
    """Pre-LN whose sub-layers of a block, or those of one place in all blocks, have one norm."""
    blocks = [Block((pre, pre)) for _ in range(4)]
    for block in blocks:
        if across:
            block.norms = blocks[0].norms
        else:
            block.norms[1] = block.norms[0]
    return Model(lambda: Stack(blocks=blocks, final=1))


def over(*dimensions: int) -> Join:
    """Pre-LN, standardised over some dimensions of (B, T, D)."""

    def standard(x: Tensor) -> Tensor:
        return (x - x.mean(dimensions, keepdim=True)) / (
            x.var(dimensions, keepdim=True, correction=0) + 1e-5
        ).sqrt()

    return lambda x, f, norm: x + f(norm.weight * standard(x))


class Chained(nn.Module):
    """A block whose join joins both of its sub-layers with its two norms."""

    def __init__(self, join: Callable[[Tensor, nn.ModuleList, nn.ModuleList], Tensor]) -> None:
        super().__init__()
        self.inner, self.join = Block((pre, pre)), join

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x, self.inner.f, self.inner.norms)


def chained(
    join: Callable[[Tensor, nn.ModuleList, nn.ModuleList], Tensor], *, final: int = 0
) -> Callable[[], nn.Module]:
    return lambda: Model(lambda: Stack(blocks=[Chained(join) for _ in range(4)], final=final))


def normed_between(x: Tensor, f: nn.ModuleList, norms: nn.ModuleList) -> Tensor:
    x = norms[1](x + f[0](norms[0](x)))
    return x + f[1](x)


def normed_for_the_branch(x: Tensor, f: nn.ModuleList, norms: nn.ModuleList) -> Tensor:
    x = x + f[0](x)
    return norms[1](x + f[1](norms[0](x)))


def from_the_input(x: Tensor, f: nn.ModuleList, norms: nn.ModuleList) -> Tensor:
    return norms[1](x + f[1](norms[0](x + f[0](x))))


RIGHT_PRE, RIGHT_POST = both(pre, final=1), both(post)
RIGHT_LNS = scaled_by(lambda block, sublayer: block + 1)

BUGS: dict[str, Bug] = {
    "mHC without Sinkhorn's rounds": Bug(
        build=lambda: SeveralStreams(by_matmul, SoftmaxAlone),
        rule="mixing-not-doubly-stochastic",
        severity="warning",
        said="in 6 sub-layers",
        where="f.0",
        right=hyper,
    ),
    "mHC without the 2 of what is added": Bug(
        build=lambda: SeveralStreams(by_matmul, NotDoubled),
        rule="branches-halved",
        severity="warning",
        said="about 0.5",
        where="f.0",
        right=hyper,
    ),
    "mHC that adds the branch to every stream as it is": Bug(
        build=lambda: SeveralStreams(as_it_is),
        rule="streams-stay-copies",
        severity="error",
        said=(
            "4 streams start as copies of each other and are copies after every one of 6 sub-layers"
        ),
        where="f.0",
        right=hyper,
    ),
    "mHC with one weight for all streams": Bug(
        build=lambda: SeveralStreams(by_matmul, OneForAll),
        rule="streams-stay-copies",
        severity="error",
        said="they do the work of one",
        where="f.0",
        right=hyper,
    ),
    "mHC that adds the branch to one stream alone": Bug(
        build=lambda: SeveralStreams(by_matmul, FirstAlone),
        rule="stream-not-written",
        severity="warning",
        said="added to 3 of 4 streams (number 2, 3, 4)",
        where="f.0",
        right=hyper,
    ),
    "mHC with DeepSeek-V4's logits": Bug(
        build=lambda: SeveralStreams(by_matmul, Wide),
        rule="stream-weights-drawn-wide",
        severity="info",
        said=(
            "streams which start as copies are unlike after the first sub-layers; after its rounds"
        ),
        where="f.0",
        right=hyper,
    ),
    "mHC without a norm at its end": Bug(
        build=WithoutNorm,
        rule="missing-final-norm",
        severity="warning",
        said="no norm",
        where="",
        right=hyper,
    ),
    # joeynmt: with `layer_norm` left out, layers default to Pre-LN and the encoder to Post-LN,
    # without a final norm.
    "joeynmt, no final norm": Bug(
        build=both(pre),
        rule="missing-final-norm",
        said="Pre-LN ends in one: weights read a stream of mean square",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # marian 699: the decoder's memory in pre-norm mode.
    "marian, un-normed memory": Bug(
        build=encoder_decoder(pre, final=0),
        rule="unnormed-memory",
        said=(
            "cross-attention of 3 blocks reads the sum that encoder.blocks ends in, of mean square"
        ),
        where="decoder.blocks",
        severity="error",
        right=encoder_decoder(pre, final=1),
    ),
    # pytorch 24930, 50086: nn.Transformer norms once more after Post-LN's own last norm.
    "pytorch, second final norm": Bug(
        build=lambda: Torch(True),
        rule="double-final-norm",
        said="each of the 3 Post-LN blocks ends in one",
        where="inner.layers",
        severity="info",
        right=lambda: Torch(False),
    ),
    "a final norm after Post-LN": Bug(
        build=both(post, final=1),
        rule="double-final-norm",
        said="each of the 4 Post-LN blocks ends in one",
        where="encoder",
        severity="warning",
        right=RIGHT_POST,
    ),
    "two norms after Pre-LN": Bug(
        build=both(pre, final=2),
        rule="double-final-norm",
        said="1 times in 4 blocks: after the last block",
        where="encoder.final_norm.1",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # As when one renames them, and the code is that of another family.
    "norms in each other's places": Bug(
        build=numbered("ln_2", "ln_1"),
        rule="norms-swapped",
        said=(
            "encoder.blocks.[0–3].ln_2, encoder.blocks.[0–3].ln_1 are used in this order, 8 of the "
            "9 norms"
        ),
        where="ln_2",
        severity="warning",
        right=numbered("ln_1", "ln_2"),
    ),
    # snowfall 184: the norm of Post-LN, and that of Pre-LN after it.
    "snowfall, each sum normed twice": Bug(
        build=both(lambda x, f, norm: norm(nn.functional.layer_norm(x + f(x), (WIDTH,)))),
        rule="double-final-norm",
        said="8 times in 4 blocks: at encoder.blocks.0.f.0",
        where="norms.0",
        severity="warning",
        right=RIGHT_POST,
    ),
    # OLMo 222: `attn_norm` for both.
    "OLMo, one norm for both sub-layers": Bug(
        build=lambda: with_shared_norms(across=False),
        rule="shared-norm",
        said="encoder.blocks.0.norms.0 at encoder.blocks.0.f.0, encoder.blocks.0.f.1",
        where="norms.0",
        severity="warning",
        right=RIGHT_PRE,
    ),
    "one norm of each kind for all blocks": Bug(
        build=lambda: with_shared_norms(across=True),
        rule="shared-norm",
        said="2 norms of 4 blocks",
        where="norms.0",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # attention-is-all-you-need-pytorch 17: mean and deviation over the sequence.
    "a norm over the sequence": Bug(
        build=both(over(1), final=1),
        rule="norm-over-others",
        said="8 of the 9 norms of 4 blocks take their statistics over dimension 1 of (2, 7, 16), 7 "
        "numbers",
        where="norms.0",
        severity="warning",
        right=both(over(-1), final=1),
    ),
    "a norm over the batch": Bug(
        build=both(over(0), final=1),
        rule="norm-over-others",
        said="over dimension 0 of (2, 7, 16)",
        where="norms.0",
        severity="warning",
        right=both(over(-1), final=1),
    ),
    # GATr 8: over all that is not the batch.
    "a norm over tokens and features": Bug(
        build=both(
            lambda x, f, norm: x + f(norm.weight * nn.functional.layer_norm(x, x.shape[1:])),
            final=1,
        ),
        rule="norm-over-others",
        said="over dimensions 1 and 2 of (2, 7, 16), 7 × 16 numbers; the features, which matrices "
        "after them read, are",
        where="encoder.blocks",
        severity="warning",
        right=both(
            lambda x, f, norm: x + f(norm.weight * nn.functional.layer_norm(x, x.shape[2:])),
            final=1,
        ),
    ),
    "a LayerNorm of the transposed stream": Bug(
        build=both(
            lambda x, f, norm: (
                x + f(norm.weight * nn.functional.layer_norm(x.mT, (x.shape[1],)).mT)
            ),
            final=1,
        ),
        rule="norm-over-others",
        said="over dimension 2 of (2, 16, 7), 7 numbers",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # faster-trajectory-transformer 3, with the norm at its end.
    "every skip from the normed stream, before a final norm": Bug(
        build=both(onto_the_stream, final=1),
        rule="misplaced-step",
        said="the first norm of the first block, encoder.blocks.0.norms.0, is written onto the "
        "stream",
        where="encoder.blocks",
        severity="warning",
        right=both(post, first=1),
    ),
    # Compact-Transformers 25: src = norm1(src) between the sub-layers.
    "one skip from the normed stream": Bug(
        build=chained(normed_between, final=1),
        rule="misplaced-step",
        said="feed-forward: the norm in front of it is in the skip too, norm(x) + F(norm(x)), in 4 "
        "of 8 sub-layers",
        where="inner.f.1",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # multimodal 317: the norm of attention's sum feeds the feed-forward alone.
    "a norm that the skip goes around": Bug(
        build=chained(normed_for_the_branch),
        rule="misplaced-step",
        said="in 4 of 8 sub-layers, while the skips of the others have theirs there",
        where="inner.f.",
        severity="warning",
        right=RIGHT_POST,
    ),
    # transformer-tensorflow2.0 14: the feed-forward is added to the block's input.
    "a feed-forward added to the block's input": Bug(
        build=chained(from_the_input),
        rule="misplaced-step",
        said="feed-forward reads the sum of the sub-layer before it, and is added to what stood "
        "before that one, in 3",
        where="inner.f.1",
        severity="warning",
        right=RIGHT_POST,
    ),
    # labmlai 145: DeepNorm's alpha on the branch.
    "DeepNorm's alpha on the branch": Bug(
        build=both(lambda x, f, norm: norm(x + 8**0.25 * f(x))),
        rule="misplaced-step",
        said="are multiplied by 1.682, which",
        where="encoder.blocks",
        severity="warning",
        right=both(weighed(8**0.25)),
    ),
    "one branch subtracted": Bug(
        build=one_block_of(lambda x, f, norm: x - f(norm(x)), pre, others=pre, final=1),
        rule="misplaced-step",
        said="1 of 8 branches are subtracted from the stream",
        where="encoder.blocks.2.f.0",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # pytorch 61165: the first norm_first wrote the normed x over x.
    "pytorch, norm onto the stream": Bug(
        build=both(onto_the_stream),
        rule="lost-residual",
        said="every skip of 4 blocks carries the normalised stream",
        where="encoder.blocks",
        severity="error",
        right=RIGHT_PRE,
    ),
    "the same, the norm computed twice": Bug(
        build=both(twice_normed),
        rule="lost-residual",
        said="every skip of 4 blocks carries the normalised stream",
        where="encoder.blocks",
        severity="error",
        right=RIGHT_PRE,
    ),
    "the same, hidden by a final norm, but not from the flag": Bug(
        build=both(onto_the_stream, final=1),
        rule="placement-flag-contradicts",
        said="the configuration says Pre-LN (pre-ln), but 8 of 8 sub-layers are not: most of these "
        "compute post-ln",
        where="encoder.blocks",
        severity="error",
        right=RIGHT_PRE,
        wanted_placement="pre-ln",
    ),
    # OpenNMT-py 2199: Post-LN whose attention is normed without its residual.
    "OpenNMT-py, attention without its sum": Bug(
        build=lambda: Model(lambda: Stack(without_skip, post)),
        rule="lost-residual",
        said="the output of attention takes the place of the stream",
        where="encoder.blocks.1.f.1",
        severity="error",
        right=RIGHT_POST,
    ),
    "feed-forward without its sum": Bug(
        build=lambda: Model(lambda: Stack(pre, pre_without_skip, final=1)),
        rule="lost-residual",
        said="the output of feed-forward takes the place of the stream",
        where="encoder.blocks.1.f.0",
        severity="error",
        right=RIGHT_PRE,
    ),
    "one block's attention without its sum": Bug(
        build=one_block_of(pre_without_skip, pre, others=pre, final=1),
        rule="lost-residual",
        said="between encoder.blocks.1.f.1 and encoder.blocks.2.f.1: 1 of the sums",
        where="encoder.blocks.2.f.1",
        severity="error",
        right=RIGHT_PRE,
    ),
    "one block's feed-forward computed and dropped": Bug(
        build=one_block_of(pre, dropped, others=pre, final=1),
        rule="lost-residual",
        said="feed-forward of block 3 joins no sum",
        where="encoder.blocks",
        severity="error",
        right=RIGHT_PRE,
    ),
    "the last feed-forward without its sum": Bug(
        build=one_block_of(post, without_skip, others=post, at=3),
        rule="lost-residual",
        said="feed-forward of block 4 joins no sum",
        where="encoder.blocks",
        severity="error",
        right=RIGHT_POST,
    ),
    # LayerNorm-Scaling: 'LNS' is lower-cased before it is compared with 'LNS'.
    "LayerNorm-Scaling, blocks that return their input": Bug(
        build=lambda: Model(
            lambda: Stack(blocks=[Idle("pre"), Idle("LNS"), Idle("pre"), Idle("LNS")], final=1)
        ),
        rule="unused-parameters",
        said="2 of the modules in a row of counterparts do nothing",
        where="encoder.blocks.1, encoder.blocks.3",
        severity="error",
        right=lambda: Model(lambda: Stack(blocks=[Idle("pre") for _ in range(4)], final=1)),
    ),
    "norms built and not applied": Bug(
        build=lambda: Model(lambda: Stack(blocks=[Unnormed(False) for _ in range(3)], final=1)),
        rule="unused-parameters",
        said="3 norms are built and never applied",
        where="encoder.blocks.0.second_norm",
        severity="warning",
        right=lambda: Model(lambda: Stack(blocks=[Unnormed(True) for _ in range(3)], final=1)),
    ),
    # Cerebras/modelzoo 85: norms of queries and keys, as wide as a head.
    "norms of queries and keys built and not applied": Bug(
        build=lambda: Model(lambda: Stack(pre, pre, blocks=with_idle_norms(3), final=1)),
        rule="unused-parameters",
        said="6 norms are built and never applied",
        where="encoder.blocks.0.f.0.key_norm",
        severity="warning",
        right=RIGHT_PRE,
    ),
    # MixLN and LayerNorm-Scaling, DeepNorm baseline: 2.8284 in 12 layers.
    "DeepNorm, alpha of another depth": Bug(
        build=both(weighed(2.8284), blocks=12),
        rule="wrong-constants",
        said="2.828, Admin, O(1)'s in a single stack of 4 blocks and DeepLoop's",
        where="encoder.blocks",
        severity="warning",
        right=both(weighed(24**0.25), blocks=12),
    ),
    "DeepNorm, an encoder-decoder with the constants of single stacks": Bug(
        build=encoder_decoder(post, final=0, alphas=(6**0.25, 6**0.25)),
        rule="wrong-constants",
        said="1.565, DeepNorm's in a single stack of 3 blocks; with 3 blocks DeepNorm has 1.142",
        where="encoder.blocks",
        severity="warning",
        right=encoder_decoder(post, final=0, alphas=(0.81 * 3 ** (5 / 16), 9**0.25)),
    ),
    "LNS, blocks counted from 2": Bug(
        build=scaled_by(lambda block, sublayer: block + 2),
        rule="wrong-constants",
        said="LayerNorm scaling's of the block after each",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_LNS,
    ),
    "LNS, sub-layers counted": Bug(
        build=scaled_by(lambda block, sublayer: 2 * block + sublayer + 1),
        rule="wrong-constants",
        said="LayerNorm scaling's of sub-layers counted one by one: blocks",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_LNS,
    ),
    "LNS, 1/l for 1/√l": Bug(
        build=scaled_by(lambda block, sublayer: (block + 1) ** 2),
        rule="wrong-constants",
        said="LayerNorm scaling's raised to the power 2",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_LNS,
    ),
    "a flag that did not reach one block": Bug(
        build=one_block_of(post, post, others=pre, final=1),
        rule="mixed-placements",
        said="block 3 of 4 is wired unlike all others, with matrices of the same names and shapes: "
        "attention(x);",
        where="encoder.blocks.2.f",
        severity="warning",
        right=RIGHT_PRE,
    ),
    "Mix-LN with a share of its own": Bug(
        build=rows((post, post), (post, post), (pre, pre), (pre, pre), final=1),
        rule="mixed-placements",
        said="blocks 1-2: x ← norm(x + F(x)); blocks 3-4: x ← x + F(norm(x))",
        where="encoder.blocks.",
        severity="info",
        right=rows(*[(post, post)] * 2, *[(pre, pre)] * 6, final=1),
    ),
    "norms forgotten": Bug(
        build=both(lambda x, f, norm: x + f(x)),
        rule="no-norm",
        said="no norm in 4 blocks",
        where="encoder.blocks",
        severity="warning",
        right=RIGHT_PRE,
    ),
    "a softmax over the queries": Bug(
        build=lambda: attending.model(attending.over(-2)),
        rule="softmax-axis",
        severity="error",
        said="in all 4 attentions the softmax runs over dimension 2 (queries)",
        where="f.0",
        right=attending.model,
    ),
    "one block without its causal mask": Bug(
        build=lambda: attending.model(attending.of(2, attending.hiding(attending.nothing))),
        rule="attention-mask",
        severity="warning",
        said="in 1 of 4 attentions (block 3) 100% of the tokens look at later ones",
        where="blocks.2.f.0",
        right=attending.model,
    ),
}
