"""ReZero: no norm, and a gate on every branch that starts closed."""

from ..base import Norms, Placement, Sublayer, Value
from ..registry import register


@register
class ReZero(Placement):
    """x ← x + gate · F(x); one gate a block, shared by its sub-layers, 0 at first. No norm anywhere.

    Bachlechner et al. 2020, section 3 (there: α_i). Embeddings are drawn from U(-1/d, 1/d), the authors' advice for
    models whose output projection is tied (their repository, issue 8).
    """

    name = "rezero"
    title = "ReZero"
    citation = "Bachlechner et al. 2020, arXiv:2003.04887, section 3"
    year = 2020
    initialisation = "rezero"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shared_by_block=True)
        return x + gate * sublayer(x)
