"""Post-LN whose skip weighs more than the branch, by a constant of the depth or by what a batch
measures.
"""

import math
from collections.abc import Mapping, Sequence

from ..base import Norms, Placement, Profiling, Site, StackShape, Sublayer, Value
from ..registry import register


@register
class DeepNorm(Placement):
    """x ← LN(skip_scale · x + F(x)), with value, output and feed-forward weights drawn at gain
    `branch_gain`.

    Wang et al. 2022, figure 2 (there: alpha for `skip_scale`, beta for `branch_gain`). N encoder, M
    decoder blocks: encoder-only (2N)^1/4, (8N)^-1/4; decoder-only (2M)^1/4, (8M)^-1/4;
    encoder-decoder: encoder 0.81 (N^4 M)^1/16,
    0.87 (N^4 M)^-1/16, decoder (3M)^1/4, (12M)^-1/4.
    """

    name = "deepnorm"
    title = "DeepNorm"
    gist = "norm(s · x + F(x)), s rising with depth"
    citation = "Wang et al. 2022, arXiv:2203.00555, figure 2"
    year = 2022
    initialisation = "xavier-normal"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        n, m = stack.encoder_blocks, stack.decoder_blocks
        if n and m and stack.kind == "encoder":
            self.skip_scale, self.branch_gain = (
                0.81 * (n**4 * m) ** (1 / 16),
                0.87 * (n**4 * m) ** (-1 / 16),
            )
        elif n and m:
            self.skip_scale, self.branch_gain = (3 * m) ** 0.25, (12 * m) ** -0.25
        else:
            self.skip_scale, self.branch_gain = (
                (2 * stack.blocks) ** 0.25,
                (8 * stack.blocks) ** -0.25,
            )

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + sublayer(x))

    def gain(self, weight: str, site: Site) -> float:
        return 1.0 if weight in ("query", "key") else self.branch_gain


@register
class Admin(Placement):
    """x ← LN(skip_scale · x + F(x)), skip_scale a trainable vector set from one profiled batch.

    Liu et al. 2020, section 4 (there: ω_i): skip_scale_i = √(Σ_{j<i} Var F_j), the sum over the
    sub-layers before it in its stack, encoder and decoder each on their own. Every variance is over
    all elements of a branch, measured in one forward pass in which all scales are 1; we measure it
    without dropout, of which the paper does not speak. The first scale of a stack is 1, as in the
    authors' code: the sum over nothing would take the embedding out of the stream. The authors'
    code computes another sum, which is `admin-clinic`.
    """

    name = "admin"
    title = "Admin"
    gist = "Post-LN, skip scaled by a profiled batch"
    citation = "Liu et al. 2020, arXiv:2004.08249, section 4"
    year = 2020

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(
            sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,)) * x
            + sublayer(x)
        )

    def profiled(
        self, branch_variances: Sequence[float], input_variance: float
    ) -> Mapping[str, float]:
        return {"skip_scale": math.sqrt(sum(branch_variances))}


@register
class AdminClinic(Admin):
    """A variant of `admin` with skip_scale²_i = Var x_0 + Σ_{j<i} Var F_j: the variance of the
    embedding x_0 counts as well.

    The authors' code (Transformer-Clinic, `fairseq/modules/transformer_layer.py`), where the paper
    has the sum of branches alone. It walks the stack once in order, so that a branch is measured
    with all the scales before it in place, and measures with dropout on, which makes every variance
    larger by 1 / (1 - dropout).
    """

    name = "admin-clinic"
    title = "Admin, as its code"
    gist = "admin, the embedding's variance counted too"
    variant_of = "admin"
    profiling = Profiling(in_order=True, dropout=True)

    def profiled(
        self, branch_variances: Sequence[float], input_variance: float
    ) -> Mapping[str, float]:
        return {"skip_scale": math.sqrt(sum(branch_variances, input_variance))}


@register
class AdminLogN(Placement):
    """x ← LN(skip_scale · x + F(x)), skip_scale² = (n + 1) / ln(n + 1) - 1 for n sub-layers of the
    stack; not trained.

    admin-torch, `O(log n)`: no batch to profile. It counts residual layers, 2 a block; a decoder's
    cross-attention is a third.
    """

    name = "admin-log-n"
    title = "Admin, O(log n)"
    gist = "Post-LN, skip scaled by about √(n / ln n)"
    citation = "Liu 2022, admin-torch (github.com/microsoft/admin-torch), after arXiv:2004.08249"
    year = 2022
    variant_of = "admin"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.skip_scale = math.sqrt(self.squared_scale(stack.sublayers))

    def squared_scale(self, sublayers: int) -> float:
        return (sublayers + 1) / math.log(sublayers + 1) - 1

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + sublayer(x))


@register
class AdminConstant(AdminLogN):
    """A variant of `admin-log-n` with skip_scale² = n (`O(1)`): a stack's output moves as much as
    that of one sub-layer.
    """

    name = "admin-constant"
    title = "Admin, O(1)"
    gist = "Post-LN, skip scaled by √(sub-layers)"

    def squared_scale(self, sublayers: int) -> float:
        return float(sublayers)


@register
class DeepLoop(AdminConstant):
    """A variant of `admin-constant` with skip_scale² the number of sub-layers times that of their
    passes (`loops`), and DeepNorm's weights at gain `branch_gain` = 1/(2 skip_scale).

    arXiv:2607.13491: what the same matrices give in every pass adds up in line, so that DeepNorm's
    constants of the unrolled stack are squared: (2N)^1/2 and (8N)^-1/2 for N blocks of two
    sub-layers. Where passes are not alike, the exponents are DeepNorm's again. The source has one
    stack alone; in an encoder-decoder we count the sub-layers of each.
    """

    name = "deeploop"
    title = "DeepLoop"
    gist = "deepnorm for loops: constants squared"
    citation = "arXiv:2607.13491"
    year = 2026
    variant_of = ""
    initialisation = "xavier-normal"

    def squared_scale(self, sublayers: int) -> float:
        return float(sublayers * self.stack.loops)

    def gain(self, weight: str, site: Site) -> float:
        return 1.0 if weight in ("query", "key") else 1 / (2 * self.skip_scale)


@register
class KEEL(Placement):
    """x ← LN(skip_scale · x + F(LN(x))), skip_scale the number of sub-layers of the stack, not
    trained.

    Chen & Wei 2026 (there: α = L, sub-layers counted), section 3. Digests that give a gated form
    contradict the authors' own implementations and are not followed.
    """

    name = "keel"
    title = "KEEL"
    gist = "norm(n · x + F(norm(x))), n the sub-layers"
    citation = "Chen & Wei 2026, arXiv:2601.19895, section 3"
    year = 2026
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.skip_scale = float(stack.sublayers)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm.outer(self.skip_scale * x + sublayer(norm.inner(x)))


@register
class KEELPreFirst(KEEL):
    """A variant of `keel` whose first block is plain Pre-LN: x ← x + F(LN(x)), as reproductions of
    the paper have it.
    """

    name = "keel-pre-first"
    title = "KEEL, Pre-LN first"
    gist = "keel, its first block Pre-LN"
    variant_of = "keel"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.block > 1:
            return super().join(x, sublayer, norm)
        return x + sublayer(norm.inner(x))
