"""ScaleNorm with FixNorm: Pre-LN whose norm has one gain, and embeddings of fixed length."""

from ..base import End, Value
from ..operations import unit
from ..registry import register
from .pre_ln import PreLN


@register
class ScaleNorm(PreLN):
    """x ← x + F(g x / ‖x‖); y = g x / ‖x‖, each g a number starting at √d. Embeddings enter as √d times a unit vector.

    Nguyen & Salazar 2019, sections 2.2 and 2.3. The output projection has unit rows and no scale of its own: the last
    norm's g is the scale of the logits. Attention is drawn from N(0, 2/(5d)) (SmallInit), the feed-forward as Glorot
    normal. With another norm than ScaleNorm this is the paper's "PreNorm + FixNorm".
    """

    name = "scale-norm"
    title = "ScaleNorm + FixNorm"
    gist = "Pre-LN, norms of one gain, unit embeddings"
    citation = "Nguyen & Salazar 2019, arXiv:1910.05895, sections 2.2 and 2.3"
    year = 2019
    initialisation = "small-attention"
    default_norm = "scale-norm"

    def table_rows(self, rows: Value) -> Value:
        return unit(rows)

    def output_rows(self, rows: Value, head: End, vocabulary: int) -> Value:
        return unit(rows)
