"""Sandwich-LN: a norm before and a norm after every branch."""

from ..base import End, Norms, Placement, Site, Sublayer, Value, residual_gain
from ..registry import register


@register
class SandwichLN(Placement):
    """x ← x + LN(F(LN(x))); y = LN(x).

    Ding et al. 2021 (CogView), section 2.4, whose norm also divides its input by its largest element (against overflow
    in float16; no other effect). Weights as GPT-2's: N(0, 0.02²), the last matrix of each F over √(sub-layers). In
    a deep and narrow stack those make a branch's variance fall below the norm's epsilon, which then no longer brings it
    to 1.
    """

    name = "sandwich"
    title = "Sandwich-LN"
    gist = "norm before and after F"
    citation = "Ding et al. 2021 (CogView), arXiv:2105.13290, section 2.4"
    year = 2021
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + norm.after(sublayer(norm.before(x)))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)
