"""Formulas that change while they train: branches that open, scales that fall, a norm that
moves.
"""

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..operations import at_most_1
from ..registry import register
from .pre_and_post import PreLN
from .scaled_skips import DeepNorm


@register
class BranchNorm(Placement):
    """x ← LN(x + branch_scale · F(x)), branch_scale rising from 0 to 1 over the first updates:
    Post-LN from then on.

    Liu et al. 2023, section 4, in our reading of a paper without code: a straight line, the update
    divided by `adaptive.over` (there: T, the "maximum norm step"), and Post-LN's weights.
    """

    name = "branch-norm"
    title = "BranchNorm"
    citation = "Liu et al. 2023, arXiv:2305.02790, section 4"
    year = 2023

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + sublayer.scheduled("branch_scale", initial=0.0) * sublayer(x))


@register
class BranchNormByDepth(BranchNorm):
    """A variant of `branch-norm` that opens the lowest blocks first: x ← LN(x + branch_scale^l ·
    F(x)) in block l.

    Of L blocks the first is half open when branch_scale is 1/2, the last when it is 2^(-1/L). No
    paper of its own.
    """

    name = "branch-norm-by-depth"
    title = "BranchNorm, lowest first"
    citation = "after Liu et al. 2023, arXiv:2305.02790, section 4"
    year = 2026
    variant_of = "branch-norm"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.powers = [Constant(block, "l") for block in range(1, stack.blocks + 1)]

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        opening = (
            sublayer.scheduled("branch_scale", initial=0.0) ** self.powers[sublayer.site.block - 1]
        )
        return norm(x + opening * sublayer(x))


class _Opening(Placement):
    """The schedule that three placements share: block l of L opens in a straight line and is open
    at l/L of the schedule.
    """

    citation = "Chen et al. 2026, arXiv:2603.05369"
    year = 2026

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.slopes = [
            Constant(stack.blocks / block, "L/l") for block in range(1, stack.blocks + 1)
        ]

    def opened(self, sublayer: Sublayer, x: Value) -> Value:
        """min(open · L/l, 1) · F(x)."""
        number = sublayer.scheduled("open", initial=0.0)
        return at_most_1(number * self.slopes[sublayer.site.block - 1]) * sublayer(x)


@register
class ProRes(_Opening, PreLN):
    """x ← x + min(open · L/l, 1) · F(LN(x)) in block l of L; y = LN(x).

    `open` follows `[adaptive]` from 0 to 1: with T · L updates for `adaptive.over` the factor is
    the paper's min(t / (T · l), 1), its linear schedule, with 1,000 for T.
    """

    name = "prores"
    title = "ProRes"
    gist = "Pre-LN that opens block by block"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + self.opened(sublayer, norm(x))


@register
class ProResPostLN(_Opening, BranchNorm):
    """x ← LN(x + min(open · L/l, 1) · F(x)) in block l of L: `prores` under Post-LN, which is
    BranchNorm by depth.
    """

    name = "prores-post-ln"
    title = "ProRes, Post-LN"
    gist = "Post-LN that opens block by block"
    variant_of = "branch-norm"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + self.opened(sublayer, x))


@register
class ProResDeepNorm(_Opening, DeepNorm):
    """x ← LN(skip_scale · x + min(open · L/l, 1) · F(x)) in block l of L: `prores` under DeepNorm,
    with its weights.
    """

    name = "prores-deepnorm"
    title = "ProRes, DeepNorm"
    gist = "DeepNorm that opens block by block"
    variant_of = "prores"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + self.opened(sublayer, x))


@register
class DeepNormToPost(DeepNorm):
    """x ← LN(((1 - post) · skip_scale + post) · x + F(x)), skip_scale and weights those of
    `deepnorm`.

    `post` follows `[adaptive]` from 0, where this is DeepNorm, to 1, where the sum is Post-LN's. No
    paper of its own.
    """

    name = "deepnorm-to-post"
    title = "DeepNorm to Post-LN"
    gist = "deepnorm that trains its way to Post-LN"
    citation = "its start: Wang et al. 2022, arXiv:2203.00555, figure 2"
    year = 2026
    variant_of = "deepnorm"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        post = sublayer.scheduled("post", initial=0.0)
        return norm(((1 - post) * self.skip_scale + post) * x + sublayer(x))


@register
class PreToPost(Placement):
    """x ← (1 - post) z + post · LN(z), z = x + F((1 - post) LN(x) + post · x); y = (1 - post) LN(x)
    + post · x.

    `post` follows a schedule over updates from 0, where this is Pre-LN, to 1, where it is Post-LN
    (`[adaptive]`). No paper of its own: both ends are Xiong et al. 2020, table 1.
    """

    name = "pre-to-post"
    title = "Pre-LN to Post-LN"
    gist = "Pre-LN that trains its way to Post-LN"
    citation = "both ends: Xiong et al. 2020, arXiv:2002.04745, table 1"
    year = 2026

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        post = sublayer.scheduled("post", initial=0.0)
        z = x + sublayer((1 - post) * norm.pre(x) + post * x)
        return (1 - post) * z + post * norm.post(z)

    def finish(self, state: Value, end: End) -> Value:
        post = end.scheduled("post", initial=0.0)
        return (1 - post) * end.norm(state) + post * state


@register
class PostToPre(PreToPost):
    """A variant of `pre-to-post` in the other direction: `pre` = 1 - `post` follows `[adaptive]`
    from 0, where this is Post-LN.
    """

    name = "post-to-pre"
    title = "Post-LN to Pre-LN"
    gist = "Post-LN that trains its way to Pre-LN"
    variant_of = "pre-to-post"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        pre = sublayer.scheduled("pre", initial=0.0)
        z = x + sublayer(pre * norm.pre(x) + (1 - pre) * x)
        return pre * z + (1 - pre) * norm.post(z)

    def finish(self, state: Value, end: End) -> Value:
        pre = end.scheduled("pre", initial=0.0)
        return pre * end.norm(state) + (1 - pre) * state
