"""Our own models under every registered placement, with every class and module renamed."""

import pytest

from doctor.looked import found_in
from normscope.placement import registered
from placement.expected import expected

pytestmark = pytest.mark.sampled(one_in=18)

FOUND = [name for name in registered() if expected(name).found_by_doctor]


@pytest.mark.parametrize("placement", FOUND)
def test_every_placement_is_found_in_both_stacks(placement):
    known = expected(placement)
    encoder, decoder = found_in(placement)
    assert [len(stack.sublayers) for stack in (encoder, decoder)] == [8, 12]
    for stack, same in (
        (encoder, known.same_formula or known.same_in_encoders),
        (decoder, known.same_formula),
    ):
        assert {s.placement for s in stack.sublayers} == {same or placement}
        assert {s.confidence for s in stack.sublayers} == {
            "sure" if known.named_for_sure else "unsure"
        }
        assert placement == stack.placement or all(placement in s.also for s in stack.sublayers)


@pytest.mark.parametrize("placement", FOUND)
def test_in_shallow_stacks_where_formulas_coincide_the_true_one_is_always_named(placement):
    for stack in found_in(placement, blocks=1, decoder_blocks=2):
        assert all(placement in (s.placement, *s.also) for s in stack.sublayers)


@pytest.mark.parametrize(
    "norm", ["layer-norm", "rms-norm", "scale-norm", "sphere-norm", "dyt", "derf"]
)
@pytest.mark.parametrize("placement", ["pre-ln", "sandwich"])
def test_with_every_norm(placement, norm):
    for stack in found_in(placement, norm=norm):
        assert stack.norm == norm
        assert all(placement in (s.placement, *s.also) for s in stack.sublayers)


@pytest.mark.parametrize("placement", ["hybrid-norm", "hybrid-norm-width"])
def test_with_one_head_norms_of_heads_and_of_the_whole_width_are_the_same(placement):
    for stack in found_in(placement, heads=1):
        assert all(
            {s.placement, *s.also} == {"hybrid-norm", "hybrid-norm-width"} for s in stack.sublayers
        )


def test_means_over_depth_are_printed_as_such():
    _, decoder = found_in("attn-res-block")
    assert [str(s.formula) for s in decoder.sublayers[:4]] == [
        "v1 = attention(norm(mix(x)))",
        "v2 = cross_attention(norm(mix(x, v1)))",
        "v3 = feed_forward(norm(mix(x, v1 + v2)))",
        "v4 = attention(norm(mix(x, v1 + v2 + v3)))",
    ]


@pytest.mark.parametrize("placement", ["gated-multi-stream", "siamese-norm"])
def test_what_cannot_be_named_is_one_stack_that_says_so(placement):
    encoder, decoder = found_in(placement)
    assert [sub.kind for sub in encoder.sublayers] == 4 * ["attention", "feed_forward"]
    assert [sub.kind for sub in decoder.sublayers] == 4 * [
        "attention",
        "cross_attention",
        "feed_forward",
    ]
    for sub in (*encoder.sublayers, *decoder.sublayers):
        assert (sub.placement, sub.scaled_placement, sub.confidence) == ("", "", "unsure")


def test_streams_that_are_read_through_gates_alone_share_their_branches():
    encoder, _ = found_in("gated-multi-stream", blocks=1)
    formula = str(encoder.sublayers[-1].formula)
    assert (
        "feed_forward(x + token · a1, x + token · a1, x + token · a1, a2, norm(hidden)" in formula
    )
