"""GPT-2's Pre-LN: small normal weights, and smaller ones where a branch joins the stream."""

from ..base import Site, residual_gain
from ..registry import register
from .pre_ln import PreLN


@register
class GPT2(PreLN):
    """x ← x + F(LN(x)); y = LN(x), with every matrix from N(0, 0.02²), the last of each F over √(residual layers).

    Radford et al. 2019, section 2.3: "scale the weights of residual layers at initialization by a factor of 1/√N where
    N is the number of residual layers". The paper does not say whether a block has one or two of them; nanoGPT,
    Megatron and Hugging Face count its sub-layers, 2L, and so do we (3L where a decoder attends to an encoder).
    """

    name = "gpt2"
    title = "GPT-2 Pre-LN"
    gist = "Pre-LN, small weights, last ones by depth"
    citation = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3"
    year = 2019
    initialisation = "normal-0.02"

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)
