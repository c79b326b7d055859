"""Scaled branches: Pre-LN whose branches are multiplied by a constant, most often one that falls with the depth."""

import math

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class CompleteP(Placement):
    """x ← x + F(LN(x)) / L; y = LN(x), L the blocks of the stack.

    Dey et al. 2025, table 1 at α = 1 and a base depth of 1. The authors' code (nanoGPT-mup, branch `completep`) divides
    both branches of a block by L over the base's blocks, so L counts blocks, not sub-layers. What their table says of
    rates, of the optimiser's ε and of widths is no part of a placement: N(0, 0.02²) is their code's scheme at its base
    width, which here has no smaller last matrices.
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
        """What every branch is multiplied with."""
        return Constant(1 / self.stack.blocks, "1/L")

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + self.branch_scale * sublayer(norm(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class DepthMuP(CompleteP):
    """As `completep`, branches over √L: the depth-µP of Yang et al. 2023, section 1, α = 1/2 in CompleteP's table."""

    name = "depth-mup"
    title = "Depth-µP"
    citation = "Yang et al. 2023, arXiv:2310.02244, section 1"
    year = 2023
    variant_of = "completep"

    def scale(self) -> float:
        return Constant(1 / math.sqrt(self.stack.blocks), "1/√L")


@register
class MiniCPM(CompleteP):
    """As `completep`, branches times 1.4/√L, L the blocks: MiniCPM's scale_depth.

    Hu et al. 2024, table 7, and MiniCPM3 in Hugging Face transformers 5.23. Its multipliers of the embedding (12) and
    of the output (256/d) scale both ends, not the residual sum, and are left out.
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
    """As `completep`, branches times 0.22 whatever the depth: the residual_multiplier of Granite 3.0's 40 layers.

    Hugging Face transformers 5.23 reads the constant from each model's configuration, where its default is 1. The
    multipliers of the embedding, of attention and of the output are left out.
    """

    name = "granite"
    title = "Granite"
    citation = "IBM Granite 3.0, as in Hugging Face transformers 5.23, modeling_granite.py"
    year = 2024
    variant_of = "completep"

    def scale(self) -> float:
        return 0.22
