"""KEEL: Post-LN with a heavy skip and a Pre-LN inside the branch."""

from ..base import Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class KEEL(Placement):
    """x ← LN(skip_scale · x + F(LN(x))), skip_scale the number of sub-layers of the stack, not trained.

    Chen & Wei 2026 (there: α = L, sub-layers counted), section 3. Digests that give a gated form contradict the
    authors' own implementations and are not followed.
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
    """As `keel`, the first block plain Pre-LN: x ← x + F(LN(x)), as reproductions of the paper have it."""

    name = "keel-pre-first"
    title = "KEEL, Pre-LN first"
    gist = "keel, its first block Pre-LN"
    variant_of = "keel"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.block > 1:
            return super().join(x, sublayer, norm)
        return x + sublayer(norm.inner(x))
