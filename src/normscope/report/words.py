"""The words that all pages share: names of norms and sub-layers as papers write them, and the tone of a verdict."""

from enum import StrEnum

_NORMS = {
    "layer-norm": "LayerNorm",
    "rms-norm": "RMSNorm",
    "scale-norm": "ScaleNorm",
    "sphere-norm": "SphereNorm",
    "dyt": "DyT",
    "derf": "Derf",
}
_KINDS = {"cross_attention": "cross-attention", "feed_forward": "feed-forward"}


class Tone(StrEnum):
    """What a verdict sounds like: the class of its dot in the style sheet. The verdict always stands beside it."""

    GOOD = "good"
    MIXED = "mixed"
    STUCK = "stuck"
    BAD = "bad"
    INFO = "info"
    PLAIN = "plain"


def norm_name(norm: str) -> str:
    """A norm as papers write it; "no norms" for none."""
    return _NORMS.get(norm, norm) or "no norms"


def kind_name(kind: str) -> str:
    """A kind of sub-layer as papers write it, such as "feed-forward"."""
    return _KINDS.get(kind, kind)
