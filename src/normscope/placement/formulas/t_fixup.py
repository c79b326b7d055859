"""T-Fixup: no norm and no warm-up, by weights scaled to the depth."""

from ..base import Norms, Placement, Site, Sublayer, Value
from ..registry import register


@register
class TFixup(Placement):
    """x ← x + F(x). No norm anywhere; Glorot weights, the branches' and the embedding's scaled down with depth.

    Huang et al. 2020, section 3.2: values, output projections and both feed-forward matrices times 0.67 N^-1/4 in an
    encoder of N blocks and (9M)^-1/4 in a decoder of M, embeddings times (9N)^-1/4. Queries and keys are Glorot's at
    gain 1, as in the paper; the authors' code has 1/√2. Derived for an encoder-decoder alone: the decoder's 9 counts
    its cross-attention. A table shared by both stacks is drawn at the decoder's gain (the authors' code: the
    encoder's), which differs only where N and M do.
    """

    name = "t-fixup"
    title = "T-Fixup"
    gist = "no norm, weights scaled down by depth"
    citation = "Huang et al. 2020, Improving Transformer Optimization Through Better Initialization, section 3.2"
    year = 2020
    models = ("encoder-decoder",)
    initialisation = "xavier-uniform"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(x)

    def gain(self, weight: str, site: Site) -> float:
        if weight in ("query", "key"):
            return 1.0
        blocks = self.stack.blocks
        return float(0.67 * blocks**-0.25 if self.stack.kind == "encoder" else (9 * blocks) ** -0.25)

    def embedding_gain(self) -> float:
        return float((9 * self.stack.blocks) ** -0.25)
