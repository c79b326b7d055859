"""Pre-LN whose branch or sum is scaled: by a constant, most often one of the depth, or by trained
numbers.
"""

import math

from ..base import Constant, End, Norms, StackShape, Sublayer, Value
from ..operations import at_most_1, silu, softplus, stopped
from ..registry import register
from .pre_and_post import PreLN


@register
class CompleteP(PreLN):
    """x ← x + F(LN(x)) / L; y = LN(x), L the blocks of the stack.

    Dey et al. 2025, table 1 at α = 1 and a base depth of 1. The authors' code (nanoGPT-mup, branch
    `completep`) divides both branches of a block by L over the base's blocks, so L counts blocks,
    not sub-layers. What their table says of rates, of the optimiser's ε and of widths is no part of
    a placement: N(0, 0.02²) is their code's scheme at its base width, which here has no smaller
    last matrices.
    """

    name = "completep"
    title = "CompleteP"
    citation = "Dey et al. 2025, arXiv:2505.01618, table 1"
    year = 2025
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.branch_scale = self.scale()

    def scale(self) -> float:
        """Returns the factor of every branch."""
        return Constant(1 / self.stack.blocks, "1/L")

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + self.branch_scale * sublayer(norm(x))


@register
class DepthMuP(CompleteP):
    """A variant of `completep` with branches over √L: the depth-µP of Yang et al. 2023, section 1,
    α = 1/2 in CompleteP's table.
    """

    name = "depth-mup"
    title = "Depth-µP"
    citation = "Yang et al. 2023, arXiv:2310.02244, section 1"
    year = 2023
    variant_of = "completep"

    def scale(self) -> float:
        return Constant(1 / math.sqrt(self.stack.blocks), "1/√L")


@register
class Looped(DepthMuP):
    """A variant of `completep` with branches over N√L, L the blocks of the stack and N the number
    of times in turn that they are run (`loops`).

    Wang et al. 2026, ε = λ/(N√L), with 1 for λ and for both branches of a block: what one matrix
    gives in N passes adds up nearly in line, and what L matrices give in squares alone.
    """

    name = "looped"
    title = "Looped"
    citation = "Wang et al. 2026, arXiv:2606.18524, abstract"
    year = 2026

    def scale(self) -> float:
        return Constant(1 / (self.stack.loops * math.sqrt(self.stack.blocks)), "1/(N√L)")


@register
class MiniCPM(CompleteP):
    """A variant of `completep` with branches times 1.4/√L, L the blocks: MiniCPM's scale_depth.

    Hu et al. 2024, table 7, and MiniCPM3 in Hugging Face transformers 5.23. Its multipliers of the
    embedding (12) and of the output (256/d) scale both ends, not the residual sum, and are left
    out.
    """

    name = "minicpm"
    title = "MiniCPM"
    citation = "Hu et al. 2024, arXiv:2404.06395, table 7"
    year = 2024
    variant_of = "completep"

    def scale(self) -> float:
        return Constant(1.4 / math.sqrt(self.stack.blocks), "1.4/√L")


@register
class Granite(CompleteP):
    """A variant of `completep` with branches times 0.22 at any depth: the residual_multiplier of
    Granite 3.0's 40 layers.

    Hugging Face transformers 5.23 reads the constant from each model's configuration, where its
    default is 1. The multipliers of the embedding, of attention and of the output are left out.
    """

    name = "granite"
    title = "Granite"
    citation = "IBM Granite 3.0, as in Hugging Face transformers 5.23, modeling_granite.py"
    year = 2024
    variant_of = "completep"

    def scale(self) -> float:
        return 0.22


@register
class LayerNormScaling(PreLN):
    """x ← x + F(LN(x) / √l), l the block counted from 1 in its stack; y = LN(x), not scaled.

    Sun et al. 2025, section 3, who advise against GPT-2's scaled weights beside it: all matrices
    from N(0, 0.02²).
    """

    name = "lns"
    title = "LayerNorm scaling"
    citation = "Sun et al. 2025, arXiv:2502.05795, section 3"
    year = 2025
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.roots = [Constant(math.sqrt(block), "√l") for block in range(1, stack.blocks + 1)]

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(norm(x) / self.roots[sublayer.site.block - 1])


@register
class LayerScale(PreLN):
    """x ← x + λ · F(LN(x)); y = LN(x), λ a vector that starts at 0.1, 10⁻⁵ or 10⁻⁶ by the depth of
    the stack.

    Touvron et al. 2021 (CaiT), eq. 4: "0.1 until depth 18, 10⁻⁵ for depth 24 and 10⁻⁶ for deeper
    networks", depth counted in blocks; for 19 to 23 of them, of which the paper does not speak, we
    take 10⁻⁵. The same formula starts at 0.1 in BEiT and at 1 in DINOv2's configuration (Hugging
    Face transformers 5.23). Weights from N(0, 0.02²), there truncated.
    """

    name = "layer-scale"
    title = "LayerScale"
    gist = "Pre-LN, F times a small trained vector"
    citation = "Touvron et al. 2021, arXiv:2103.17239, eq. 4"
    year = 2021
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.initial = 0.1 if stack.blocks <= 18 else 1e-5 if stack.blocks <= 24 else 1e-6

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        scale = sublayer.parameter("layer_scale", initial=self.initial, shape=(self.stack.width,))
        return x + scale * sublayer(norm(x))


@register
class ScaledResidual(PreLN):
    """x ← s · (x + b) + s' · (F(LN(x)) + b'), the embedding first times s plus its own b; y =
    LN(x).

    ZAYA1's residual scaling, as in Hugging Face transformers 5.23 (`ZayaResidualScaling`, and the
    two numbers that its model applies to the embedding): all four are vectors, scales start at 1
    and biases at 0, so that the model starts as Pre-LN. Its mixture of experts and its convolutions
    in attention are no part of the placement.
    """

    name = "zaya"
    title = "Scaled residual"
    gist = "Pre-LN, x and F each scaled and shifted"
    citation = "Zyphra 2025, ZAYA1, as in Hugging Face transformers 5.23, modeling_zaya.py"
    year = 2025
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> Value:
        width = (self.stack.width,)
        shifted = x + end.parameter("bias", initial=0.0, shape=width)
        return end.parameter("scale", initial=1.0, shape=width) * shifted

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        width = (self.stack.width,)
        branch = sublayer(norm(x)) + sublayer.parameter("branch_bias", initial=0.0, shape=width)
        branch = sublayer.parameter("branch_scale", initial=1.0, shape=width) * branch
        shifted = x + sublayer.parameter("skip_bias", initial=0.0, shape=width)
        return sublayer.parameter("skip_scale", initial=1.0, shape=width) * shifted + branch


@register
class Doge(ScaledResidual):
    """A variant of `zaya` in which the stream alone is scaled, and nothing is added to it: x ← s ·
    x + F(LN(x)); y = LN(x).

    Doge in Hugging Face transformers 5.23, where s is `input_residual` before attention's sum and
    `post_attention_residual` before the feed-forward's, both 1 at first.
    """

    name = "doge"
    title = "Scaled residual, skip only"
    gist = "Pre-LN, x times a trained vector"
    citation = "Shi et al. 2025, Doge, as in Hugging Face transformers 5.23, modeling_doge.py"
    variant_of = "zaya"

    def start(self, x: Value, end: End) -> Value:
        return x

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        scale = sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,))
        return scale * x + sublayer(norm(x))


@register
class GPAS(PreLN):
    """h = x + F(LN(x)); x ← h - silu(gate) · h, where the second h has no gradient; y = LN(x).

    Chen et al. 2025, section 3, on Pre-LN. The gate is a number, 0 at first, that the sub-layers of
    a block share, as in the authors' code (github.com/dandingsky/GPAS, `GPASBlock`).
    """

    name = "gpas"
    title = "Gradient-preserving activation scaling"
    gist = "Pre-LN, the sum scaled down by a gate"
    citation = "Chen et al. 2025, arXiv:2506.22049, section 3"
    year = 2025
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shared_by_block=True)
        total = x + sublayer(norm(x))
        return total - silu(gate) * stopped(total)


@register
class NormPreserving(PreLN):
    """x ← √(1 - β/L) x + √(β/L) F(LN(x)), β = softplus(θ), L the blocks of the stack; y = LN(x).

    An experiment of the marin community (github.com/marin-community/marin, issue 8860, 2026): θ is
    a number, 0 at first, that the sub-layers of a block share, and β/L is held below 1, so that
    both roots exist. It was given up there: 1.018 times the effective speed of its Pre-LN baseline
    at width 512, 0.950 times at 768. N(0, 0.02²), since the source names no scheme.
    """

    name = "norm-preserving"
    title = "Norm-preserving residual"
    gist = "Pre-LN, squares of skip and branch sum to 1"
    citation = "marin-community/marin, issue 8860 (2026)"
    year = 2026
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.most = Constant(_MOST_SHARE, str(_MOST_SHARE))
        self.shared_out = Constant(1 / (_MOST_SHARE * stack.blocks), "1/L")

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        theta = sublayer.parameter("theta", initial=0.0, shared_by_block=True)
        share = self.most * at_most_1(self.shared_out * softplus(theta))
        return (1 - share) ** 0.5 * x + share**0.5 * sublayer(norm(x))


_MOST_SHARE = 0.9999
"""The largest share of the branch, by squares: at 1 the root of the skip's share has no slope."""
