"""Replacements of LayerNorm: gates, weights scaled to the depth, or vectors of one length."""

import math
from types import MappingProxyType

from ..base import Constant, End, Norms, Placement, Site, StackShape, Sublayer, Value
from ..operations import unit
from ..registry import register
from .pre_and_post import PreLN


@register
class ReZero(Placement):
    """x ← x + gate · F(x); one gate a block, shared by its sub-layers, 0 at first. No norm
    anywhere.

    Bachlechner et al. 2020, section 3 (there: α_i). Embeddings are drawn from U(-1/d, 1/d), the
    authors' advice for models whose output projection is tied (their repository, issue 8).
    """

    name = "rezero"
    title = "ReZero"
    citation = "Bachlechner et al. 2020, arXiv:2003.04887, section 3"
    year = 2020
    initialisation = "rezero"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shared_by_block=True)
        return x + gate * sublayer(x)


@register
class TFixup(Placement):
    """x ← x + F(x). No norm anywhere; Glorot weights, the branches' and the embedding's scaled down
    with depth.

    Huang et al. 2020, section 3.2: values, output projections and both feed-forward matrices times
    0.67 N^-1/4 in an encoder of N blocks and (9M)^-1/4 in a decoder of M, embeddings times
    (9N)^-1/4. Queries and keys are Glorot's at gain 1, as in the paper; the authors' code has 1/√2.
    Derived for an encoder-decoder alone: the decoder's 9 counts its cross-attention. A table shared
    by both stacks is drawn at the decoder's gain (the authors' code: the encoder's), which differs
    only where N and M do.
    """

    name = "t-fixup"
    title = "T-Fixup"
    gist = "no norm, weights scaled down by depth"
    citation = (
        "Huang et al. 2020, Improving Transformer Optimization Through Better Initialization, "
        "section 3.2"
    )
    year = 2020
    models = ("encoder-decoder",)
    initialisation = "xavier-uniform"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(x)

    def gain(self, weight: str, site: Site) -> float:
        if weight in ("query", "key"):
            return 1.0
        blocks = self.stack.blocks
        return float(
            0.67 * blocks**-0.25 if self.stack.kind == "encoder" else (9 * blocks) ** -0.25
        )

    def embedding_gain(self) -> float:
        return float((9 * self.stack.blocks) ** -0.25)


@register
class ScaleNorm(PreLN):
    """x ← x + F(g x / ‖x‖); y = g x / ‖x‖, each g a number starting at √d. Embeddings enter as √d
    times a unit vector.

    Nguyen & Salazar 2019, sections 2.2 and 2.3. The output projection has unit rows and no scale of
    its own: the last norm's g is the scale of the logits. Attention is drawn from N(0, 2/(5d))
    (SmallInit), the feed-forward as Glorot normal. With another norm than ScaleNorm this is the
    paper's "PreNorm + FixNorm".
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


@register
class NGPT(Placement):
    """x ← n(x + step · (n(F(x)) - x)), x_0 = n(embedding), with queries and keys normalised and
    matrices of unit vectors.

    Loshchilov et al. 2024, sections 2.2 to 2.6. There n(x) = x / ‖x‖; here n puts x on the sphere
    of radius √d, which is the same function with √d taken out of `s_u` and of the logits, and lets
    LayerNorm or RMSNorm stand for n. After every update each matrix's vectors of the stream's width
    are put back to length 1. `step` starts at 0.05, `s_qk`, `s_u` and `s_z` (one logit scale per
    entry) at 1; all but `s_u` are stored at 1/√d, which sets how fast Adam moves them. Where nGPT
    has rotary positions, our sinusoids join the embedding before the first n. Its feed-forward is
    gated; ours has `s_u` alone. The authors' code takes the step's absolute value; we do not. It
    also has an output projection apart from the embedding (`lm_head`, left untied "because in the
    nGPT paper there was no weight tying") and no bias anywhere; our models tie the two, and every
    matrix of F has a bias, as under all other placements, which starts at 0 and is no part of what
    is put back to length 1.
    """

    name = "ngpt"
    title = "nGPT"
    gist = "unit vectors, moved by learned steps"
    citation = "Loshchilov et al. 2024, arXiv:2410.01131, sections 2.2 to 2.6"
    year = 2024
    initialisation = "normal-by-width"
    default_norm = "sphere-norm"
    norm_epsilon = 1e-12
    unit_vectors = MappingProxyType(
        {"embedding": 1, "query": 1, "key": 1, "value": 1, "ffn_in": 1, "output": 0, "ffn_out": 0}
    )

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        if stack.key_value_heads or stack.head_width:
            raise ValueError(
                "placement 'ngpt' scales queries and keys by one vector of the model's width: "
                "leave attention.key_value_heads and attention.head_width as they are"
            )
        self.sqrt_width = math.sqrt(stack.width)
        # Made once: torch.compile can read a named constant, and not make one.
        self.scales = {
            0.05: Constant(0.05 * self.sqrt_width, "0.05√d"),
            1.0: Constant(self.sqrt_width, "√d"),
        }

    def start(self, x: Value, end: End) -> Value:
        return end.norm(x)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        step = self._stored(sublayer, "step", 0.05)
        return norm(x + step * (norm.branch(self._branch(x, sublayer, norm)) - x))

    def _branch(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            s_u = sublayer.parameter(
                "s_u", initial=1.0, shape=(self.stack.ffn_width or self.stack.width,)
            )
            return sublayer(x, hidden=lambda u: s_u * u)
        s_qk, heads = self._stored(sublayer, "s_qk", 1.0), self.stack.heads
        return sublayer(
            x,
            query=lambda q: s_qk * norm.query(q, groups=heads),
            key=lambda k: s_qk * norm.key(k, groups=heads),
        )

    def _stored(self, sublayer: Sublayer, name: str, initial: float) -> Value:
        """Returns a number for each feature that starts at `initial` and is stored at 1/√d."""
        return self.scales[initial] * sublayer.parameter(
            name, initial=1 / self.sqrt_width, shape=(self.stack.width,)
        )

    def output_rows(self, rows: Value, head: End, vocabulary: int) -> Value:
        # The paper's logit s_z · (E x), with ‖x‖ = √d here and s_z stored at 1/√d.
        return rows * head.parameter("s_z", initial=1 / self.sqrt_width, shape=(vocabulary, 1))
