"""Sub-LN (Magneto): a second norm inside every branch, before its last matrix."""

import math

from ..base import End, Norms, Placement, Site, StackShape, Sublayer, Value
from ..registry import register


@register
class SubLN(Placement):
    """x ← x + F(LN(x)) with LN before the last matrix of F; y = LN(x).

    Wang et al. 2022 (Magneto), figure 2. Values, output projections and both feed-forward matrices are drawn at gain
    `branch_gain`: √ln(2L) in a model of one stack of L blocks; with N encoder and M decoder blocks √(ln(3M) ln(2N) / 3)
    and √ln(3M). Cross-attention is left out of both, as in the authors' code (torchscale).
    """

    name = "sub-ln"
    title = "Sub-LN"
    gist = "Pre-LN, and a norm before F's last matrix"
    citation = "Wang et al. 2022 (Magneto), arXiv:2210.06423, figure 2"
    year = 2022
    initialisation = "xavier-normal"
    plain_kinds: tuple[str, ...] = ("cross_attention",)
    """Sub-layers that are Pre-LN's, with neither the inner norm nor the gain."""

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        n, m = stack.encoder_blocks, stack.decoder_blocks
        if n and m and stack.kind == "encoder":
            squared = math.log(3 * m) * math.log(2 * n) / 3
        else:
            squared = math.log(3 * m) if n and m else math.log(2 * stack.blocks)
        self.branch_gain = math.sqrt(squared)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind in self.plain_kinds:
            return x + sublayer(norm(x))
        return x + sublayer(norm(x), output=norm.inner)

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)

    def gain(self, weight: str, site: Site) -> float:
        return 1.0 if weight in ("query", "key") or site.kind in self.plain_kinds else self.branch_gain


@register
class SubLNCross(SubLN):
    """As `sub-ln`, cross-attention like every other attention: the paper's figure to the letter."""

    name = "sub-ln-cross"
    title = "Sub-LN, cross-attention too"
    gist = "sub-ln, its norm in cross-attention too"
    variant_of = "sub-ln"
    models = ("encoder-decoder",)
    plain_kinds = ()
