"""One norm a sub-layer, after the sum or before the branch, and what is drawn or read beside
that.
"""

from collections.abc import Sequence

from ..base import End, Norms, Placement, Site, StackShape, Sublayer, Value, residual_gain
from ..registry import register


@register
class PostLN(Placement):
    """x ← LN(x + F(x)); no final norm, as every block ends in one.

    Vaswani et al. 2017, section 3.1; Xiong et al. 2020, table 1 (left).
    """

    name = "post-ln"
    title = "Post-LN"
    citation = "Vaswani et al. 2017, arXiv:1706.03762, section 3.1"
    year = 2017

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + sublayer(x))


@register
class DSInit(PostLN):
    """x ← LN(x + F(x)), every matrix of block l (counted from 1 in its stack) drawn at gain 1/√l.

    Zhang, Titov & Sennrich 2019, section 3: Glorot uniform on (-γ/√l, γ/√l), so the standard
    deviation falls as 1/√l.
    """

    name = "ds-init"
    title = "DS-Init"
    gist = "Post-LN, weights of block l divided by √l"
    citation = "Zhang et al. 2019, arXiv:1908.11365, section 3"
    year = 2019
    initialisation = "xavier-uniform"
    exponent = -0.5

    def gain(self, weight: str, site: Site) -> float:
        return float(site.block**self.exponent)


@register
class DSInitCode(DSInit):
    """A variant of `ds-init` with gain l^-1/4: the authors' code (`zero`) gives 1/√l to the
    variance, not to the bound.
    """

    name = "ds-init-code"
    title = "DS-Init, as its code"
    gist = "Post-LN, weights of block l over l^(1/4)"
    variant_of = "ds-init"
    exponent = -0.25


@register
class BottomToTop(Placement):
    """a ← LN(x + F(x)) for all sub-layers but the last; x ← LN(x + a + F(a)), x being the block's
    input.

    Takase et al. 2022, section 3, figure 1(c): the skip passes over every norm of the block but the
    last.
    """

    name = "b2t"
    title = "B2T"
    gist = "Post-LN, and the block's input at its end"
    citation = "Takase et al. 2022, arXiv:2206.00330, section 3"
    year = 2022

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        *others, last = sublayers
        x = state
        for sublayer in others:
            x = sublayer.norm(x + sublayer(x))
        return last.norm(state + x + last(x))


@register
class BottomToTopRescaled(BottomToTop):
    """A variant of `b2t` with every matrix divided by √(blocks of the stack), as the authors' later
    code does for deep stacks.
    """

    name = "b2t-rescaled"
    title = "B2T, rescaled"
    gist = "b2t, matrices divided by √blocks"
    variant_of = "b2t"

    def gain(self, weight: str, site: Site) -> float:
        return float(self.stack.blocks**-0.5)


@register
class PreLN(Placement):
    """x ← x + F(LN(x)); y = LN(x) after every stack.

    Xiong et al. 2020, table 1 (right); Baevski & Auli 2018; Wang et al. 2019.
    """

    name = "pre-ln"
    title = "Pre-LN"
    citation = "Xiong et al. 2020, arXiv:2002.04745, table 1"
    year = 2019

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(norm(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class GPT2(PreLN):
    """x ← x + F(LN(x)); y = LN(x), with every matrix from N(0, 0.02²), the last of each F over
    √(residual layers).

    Radford et al. 2019, section 2.3: "scale the weights of residual layers at initialization by a
    factor of 1/√N where N is the number of residual layers". The paper does not say whether a block
    has one or two of them; nanoGPT, Megatron and Hugging Face count its sub-layers, 2L, and so do
    we (3L where a decoder attends to an encoder).
    """

    name = "gpt2"
    title = "GPT-2 Pre-LN"
    gist = "Pre-LN, small weights, last ones by depth"
    citation = (
        "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3"
    )
    year = 2019
    initialisation = "normal-0.02"

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)


@register
class ParallelBlock(PreLN):
    """n = LN(x); x ← x + A(n) + F(n); y = LN(x): one norm a block, read by attention A and
    feed-forward F.

    GPT-J (Wang & Komatsuzaki 2021), which has no paper; PaLM (Chowdhery et al. 2022, section 2)
    writes it down. Phi, Cohere and Falcon 7B do the same (Hugging Face transformers 5.23). In a
    decoder that attends to an encoder, which none of them is, cross-attention is one branch more
    that reads the same n. Weights from N(0, 0.02²), as in GPT-J's configuration.
    """

    name = "parallel"
    title = "Parallel block"
    gist = "attention and feed-forward read one norm(x)"
    citation = "Wang & Komatsuzaki 2021, GPT-J-6B, mesh-transformer-jax"
    year = 2021
    initialisation = "normal-0.02"

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        normed = sublayers[0].norm(state)
        for sublayer in sublayers:
            state = state + sublayer(normed)
        return state


@register
class ParallelTwoNorms(ParallelBlock):
    """A variant of `parallel` with a norm for every sub-layer: x ← x + A(LN(x)) + F(LN(x)).

    GPT-NeoX (Black et al. 2022, section 2.1): one norm was meant, two were trained.
    """

    name = "parallel-two-norms"
    title = "Parallel block, two norms"
    gist = "parallel, each sub-layer with its own norm"
    citation = "Black et al. 2022, arXiv:2204.06745, section 2.1"
    year = 2022
    variant_of = "parallel"

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        branches = [sublayer(sublayer.norm(state)) for sublayer in sublayers]
        for branch in branches:
            state = state + branch
        return state


@register
class MixLN(PreLN):
    """x ← LN(x + F(x)) in the first ⌊L/4⌋ blocks, x ← x + F(LN(x)) in the rest; y = LN(x).

    Li et al. 2024, section 3 (α = 0.25, found by search: 3 of 12 blocks, 6 of 24). A stack of fewer
    than 4 blocks is Pre-LN throughout. Weights are drawn from N(0, 0.02²), as in the authors' code.
    There the embedding alone has the standard deviation √(2/5) = 0.63, at which it enters the first
    block, with an output projection of its own; ours is drawn from N(0, 1/d) and enters times √d,
    so at 1, as under every placement of that scheme.
    """

    name = "mix-ln"
    title = "Mix-LN"
    gist = "first quarter Post-LN, then Pre-LN"
    citation = "Li et al. 2024, arXiv:2412.13795, section 3"
    year = 2024
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.post_blocks = stack.blocks // 4

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.block <= self.post_blocks:
            return norm(x + sublayer(x))
        return x + sublayer(norm(x))
