"""Pre-LN that turns into Post-LN while it trains, and the other way round."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class PreToPost(Placement):
    """x ← (1 - post) z + post · LN(z), z = x + F((1 - post) LN(x) + post · x); y = (1 - post) LN(x) + post · x.

    `post` follows a schedule over updates from 0, where this is Pre-LN, to 1, where it is Post-LN (`[adaptive]`). No
    paper of its own: both ends are Xiong et al. 2020, table 1.
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
    """As `pre-to-post`, the other way round: `pre` = 1 - `post` follows `[adaptive]` from 0, where this is Post-LN."""

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
