"""Costs against counts made by hand from the papers' equations."""

import pytest

from normscope.placement import StackShape, named
from normscope.placement.reading import block_cost

ENCODER = StackShape(
    kind="encoder", width=8, ffn_width=32, heads=2, encoder_blocks=6, decoder_blocks=6
)
DECODER = StackShape(
    kind="decoder", width=8, ffn_width=32, heads=2, encoder_blocks=6, decoder_blocks=6
)


@pytest.mark.parametrize(
    ("name", "stack", "block", "counted"),
    [
        ("post-ln", ENCODER, 6, (2, 0, 2, 0)),
        ("pre-ln", DECODER, 6, (3, 0, 3, 0)),
        ("deepnorm", ENCODER, 1, (2, 2, 2, 0)),
        ("residual", ENCODER, 2, (4, 0, 2, 0)),  # F(x) once, added to both streams
        ("b2t", DECODER, 1, (4, 0, 3, 0)),
        ("rezero", ENCODER, 3, (2, 2, 0, 0)),
        (
            "sub-ln",
            ENCODER,
            6,
            (2, 0, 2 + 1 + 4, 0),
        ),  # the feed-forward's inner norm is over 32 = 4 · 8 features
        ("hybrid-norm-star", ENCODER, 1, (2, 0, 5, 0)),
        ("hybrid-norm-star", ENCODER, 2, (2, 0, 4, 0)),
        # 2 steps, 2 scalings of q and k, s_u over 4 · 8 features; norms of stream and branch, and
        # of q and k
        ("ngpt", ENCODER, 6, (4, 2 + 2 + 4, 6, 0)),
        # the last block reads the embedding and 10, then 11 branches, each through the norm of its
        # keys
        ("attn-res", ENCODER, 6, (0, 0, 2 + 11 + 12, 11 + 12)),
        ("attn-res", ENCODER, 1, (0, 0, 2 + 1 + 2, 1 + 2)),
        # 2 sub-layers a group: 6 values, then the sum so far beside them
        ("attn-res-block", ENCODER, 6, (1, 0, 2 + 6 + 7, 6 + 7)),
    ],
)
def test_counts(name, stack, block, counted):
    cost = block_cost(named(name)(stack), block)
    assert (cost.additions, cost.scalings, cost.norms, cost.mixed) == counted
    assert cost.total == sum(counted)
