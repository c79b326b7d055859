"""DeepNorm: Post-LN with an up-weighted skip and down-scaled initial branch."""

from ..base import Norms, Placement, Site, StackShape, Sublayer, Value
from ..registry import register


@register
class DeepNorm(Placement):
    """x ← LN(skip_scale · x + F(x)), with value, output and feed-forward weights drawn at gain `branch_gain`.

    Wang et al. 2022, figure 2 (there: alpha for `skip_scale`, beta for `branch_gain`). N encoder, M decoder blocks:
    encoder-only (2N)^1/4, (8N)^-1/4; decoder-only (2M)^1/4, (8M)^-1/4; encoder-decoder: encoder 0.81 (N^4 M)^1/16,
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
            self.skip_scale, self.branch_gain = 0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)
        elif n and m:
            self.skip_scale, self.branch_gain = (3 * m) ** 0.25, (12 * m) ** -0.25
        else:
            self.skip_scale, self.branch_gain = (2 * stack.blocks) ** 0.25, (8 * stack.blocks) ** -0.25

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + sublayer(x))

    def gain(self, weight: str, site: Site) -> float:
        return 1.0 if weight in ("query", "key") else self.branch_gain
