"""Depth-scaled initialisation: Post-LN with weights that shrink from block to block."""

from ..base import Site
from ..registry import register
from .post_ln import PostLN


@register
class DSInit(PostLN):
    """x ← LN(x + F(x)), every matrix of block l (counted from 1 in its stack) drawn at gain 1/√l.

    Zhang, Titov & Sennrich 2019, section 3: Glorot uniform on (-γ/√l, γ/√l), so the standard deviation falls as 1/√l.
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
    """As `ds-init`, gain l^-1/4: the authors' code (`zero`) gives 1/√l to the variance, not to the bound."""

    name = "ds-init-code"
    title = "DS-Init, as its code"
    gist = "Post-LN, weights of block l over l^(1/4)"
    variant_of = "ds-init"
    exponent = -0.25
