"""Errors on the skip path and in gates, each rebuilt as a small model."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from doctor.bugs_values import ALPHA, BETA, Bug, drawn, glorot
from doctor.several_streams import Dynamic, SeveralStreams, by_matmul
from doctor.wired import WIDTH, F, Join, Model, Stack, pre


class ExponentialAlone(Dynamic):
    """mHC whose logits are made positive, and that divides neither rows nor columns by their
    sums.
    """

    def connecting(self, logits: Tensor) -> Tensor:
        return logits.exp()


class LogitsAlone(Dynamic):
    """mHC whose mixing is the logits themselves."""

    def connecting(self, logits: Tensor) -> Tensor:
        return logits


def halved_skip(x: Tensor, f: F, norm: F) -> Tensor:
    return 0.5 * x + f(norm(x))


def keeping_the_square(x: Tensor, f: F, norm: F) -> Tensor:
    """As Muse Spark's gates at 0: what the skip loses, the normed branch replaces."""
    return 0.75**0.5 * x + 0.5 * norm(f(x))


def heavier_pre(x: Tensor, f: F, norm: F) -> Tensor:
    return ALPHA * x + f(norm(x))


def by_depth(
    skip: Callable[[int], float], branch: Callable[[int], float]
) -> Callable[[], nn.Module]:
    """x ← skip(k) x + branch(k) LN(F(LN(x))), k the number of the sub-layer plus 1."""

    def joined(k: int) -> Join:
        return lambda x, f, norm: skip(k) * x + branch(k) * norm(f(norm(x)))

    def build() -> nn.Module:
        return Model(
            lambda: Stack(
                blocks=[Stack(joined(2 * n + 2), joined(2 * n + 3), blocks=1) for n in range(4)],
                final=1,
            )
        )

    return build


def root_of_share(k: int) -> float:
    return math.sqrt((k - 1) / k)


def root(k: int) -> float:
    return 1 / math.sqrt(k)


def gated(curve: Callable[[Tensor], Tensor], start: float) -> Callable[[], nn.Module]:
    """Pre-LN with one bounded gate a feature for all branches, that starts at curve(start)."""

    def build() -> nn.Module:
        gate = nn.Parameter(torch.full((WIDTH,), start))

        def join(x: Tensor, f: F, norm: F) -> Tensor:
            return x + curve(gate) * f(norm(x))

        model = Model(lambda: Stack(join, join, final=1))
        model.gate = gate
        return model

    return build


def buffered(value: float, *, before: bool) -> Callable[[], nn.Module]:
    """Pre-LN whose branches read, or add, a multiple that is a buffer, as LayerNorm scaling's."""

    def build() -> nn.Module:
        scale = torch.full((1,), value)

        def join(x: Tensor, f: F, norm: F) -> Tensor:
            return x + (f(scale * norm(x)) if before else scale * f(norm(x)))

        model = Model(lambda: Stack(join, join, final=1))
        model.register_buffer("scale", scale)
        return model

    return build


BUGS: dict[str, Bug] = {
    # joeynmt: `initializer: xavier_normal` turns DeepNorm's factors on, for Pre-LN as well.
    "joeynmt, DeepNorm's constants under Pre-LN": Bug(
        build=drawn(heavier_pre, glorot(value=BETA, output=BETA, feed_forward=BETA), final=1),
        rule="amplified-stream",
        severity="warning",
        said="multiplies the stream by 64 over 8 sub-layers",
        right=drawn(pre, glorot(value=1, output=1, feed_forward=1), final=1),
    ),
    "mHC without any sum in its mixing": Bug(
        build=lambda: SeveralStreams(by_matmul, ExponentialAlone),
        rule="amplified-stream",
        severity="warning",
        said="over 6 sub-layers, and no norm follows their sums",
        right=lambda: SeveralStreams(by_matmul),
    ),
    "mHC mixed by logits": Bug(
        build=lambda: SeveralStreams(by_matmul, LogitsAlone),
        rule="faded-stream",
        severity="warning",
        said="over 6 sub-layers: of what they start from, so much is left",
        right=lambda: SeveralStreams(by_matmul),
    ),
    # He et al. 2016, table 1: shortcuts times 0.5.
    # CellFlow 296: z = z + dropout(z), where z is the sum already.
    "a sum that is added to itself": Bug(
        build=drawn(lambda x, f, norm: (y := x + f(norm(x))) + y, lambda model: None, final=1),
        rule="amplified-stream",
        severity="warning",
        said="and no norm follows their sums, for a value is added to itself, a1 = x + ",
        right=drawn(pre, lambda model: None, final=1),
    ),
    "the mean of skip and branch": Bug(
        build=drawn(lambda x, f, norm: (x + f(norm(x))) / 2, lambda model: None, final=1),
        rule="faded-stream",
        severity="warning",
        said="over 8 sub-layers: of what they start from, so much is left",
        right=drawn(
            lambda x, f, norm: (x + norm(f(norm(x)))) / 2**0.5, lambda model: None, final=1
        ),
    ),
    "a skip that is halved once a sub-layer": Bug(
        build=drawn(halved_skip, lambda model: None, final=1),
        rule="faded-stream",
        severity="warning",
        said="multiplies the stream by 0.00391 over 8 sub-layers",
        right=drawn(keeping_the_square, lambda model: None),
    ),
    "a depth-scaled sum without the root of its skip": Bug(
        build=by_depth(lambda k: (k - 1) / k, root),
        rule="drifting-stream",
        severity="info",
        said="add up to 0.75 to 0.901, not to 1, in 8 sub-layers",
        right=by_depth(root_of_share, root),
    ),
    "a depth-scaled sum whose branches count from 1": Bug(
        build=by_depth(root_of_share, lambda k: root(k - 1)),
        rule="drifting-stream",
        severity="info",
        said="add up to 1.01 to 1.5, not to 1, in 8 sub-layers",
        right=by_depth(root_of_share, root),
    ),
    "a gate that starts shut, with next to no slope": Bug(
        build=gated(torch.sigmoid, -8.0),
        rule="flat-gate",
        severity="warning",
        said="less than 1% of its greatest slope, in 100% of their entries or more: 1",
        right=gated(torch.sigmoid, -4.0),
    ),
    "a gate that starts open, by tanh": Bug(
        build=gated(torch.tanh, 5.0),
        rule="flat-gate",
        severity="warning",
        said="less than 1% of its greatest slope",
        right=gated(torch.tanh, 1.0),
    ),
    # OLMo-core 698: LayerNorm scaling's buffer after the model was moved from the meta device.
    "a buffer of 0 before every branch": Bug(
        build=buffered(0.0, before=True),
        rule="dead-sublayer",
        severity="error",
        said="8 of 8. A buffer never opens: scale.",
        right=buffered(0.5, before=True),
    ),
    "a buffer of 1e-30 after every branch": Bug(
        build=buffered(1e-30, before=False),
        rule="dead-sublayer",
        severity="error",
        said="8 of 8. A buffer never opens: scale.",
        right=buffered(0.5, before=False),
    ),
    "a constant of 0 in the feed-forwards": Bug(
        build=lambda: Model(lambda: Stack(pre, lambda x, f, norm: x + f(norm(x) * 0), final=1)),
        rule="dead-sublayer",
        severity="error",
        said="4 of 8. A constant never changes: a number in the code.",
        right=lambda: Model(lambda: Stack(pre, pre, final=1)),
    ),
    "a gate of 0 that is a buffer": Bug(
        build=buffered(0.0, before=False),
        rule="dead-gate",
        severity="warning",
        said="moves it, as prores has one: scale",
        right=buffered(0.5, before=False),
    ),
    # labmlai 145: DeepNorm's alpha, on the branch.
    "a factor on the branch that belongs on the skip": Bug(
        build=drawn(lambda x, f, norm: norm(x + 2 * f(norm(x))), lambda model: None),
        rule="unknown-wiring",
        severity="info",
        said="attention with the factor 2 on the branch",
        right=drawn(pre, lambda model: None, final=1),
    ),
}
