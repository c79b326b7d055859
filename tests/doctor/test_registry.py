"""Our own models under every registered placement, with every class and module renamed."""

import pytest
import torch

from doctor.scrambled import scrambled
from normscope.doctor import FoundStack, find_stacks
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import registered

OVER_DEPTH = ("attn-res", "attn-res-block")
"""Placements that add nothing to a stream and mix what lies below instead: not found."""
SAME_FORMULA = {
    "admin-clinic": "admin",
    "b2t-rescaled": "b2t",
    "ds-init": "post-ln",
    "ds-init-code": "post-ln",
    "gpt2": "pre-ln",
}
"""Placements that differ from another one in their weights alone, and that one."""
WITHOUT_CROSS = {"sub-ln-cross": "sub-ln"}
"""The same in an encoder."""


def found_in(placement: str, blocks: int = 4, **changes: object) -> list[FoundStack]:
    torch.manual_seed(0)
    sizes = {"width": 16, "ffn_width": 24, "heads": 2, "encoder_blocks": blocks, "decoder_blocks": blocks}
    model = EncoderDecoder(ModelConfig(placement=placement, **{**sizes, **changes}), 20, 20)
    layouts = [Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
    tokens = [torch.randint(4, 20, (layout.tokens,)) for layout in layouts]
    return find_stacks(scrambled(model), (tokens[0], layouts[0], tokens[1], layouts[1]))


@pytest.mark.parametrize("placement", [name for name in registered() if name not in OVER_DEPTH])
def test_every_placement_is_found_in_both_stacks(placement):
    # ScaleNorm's embeddings of fixed length are not looked at; without them it is Pre-LN with another norm.
    encoder, decoder = found_in(placement)
    assert [len(stack.sublayers) for stack in (encoder, decoder)] == [8, 12]
    for stack, same in ((encoder, SAME_FORMULA | WITHOUT_CROSS), (decoder, SAME_FORMULA)):
        assert {s.placement for s in stack.sublayers} == {same.get(placement, placement)}
        assert {s.confidence for s in stack.sublayers} == {"unsure" if placement == "scale-norm" else "sure"}
        assert placement == stack.placement or all(placement in s.also for s in stack.sublayers)


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("placement", [name for name in registered() if name not in OVER_DEPTH])
def test_in_shallow_stacks_where_formulas_coincide_the_true_one_is_always_named(placement, blocks):
    for stack in found_in(placement, blocks=blocks):
        assert all(placement in (s.placement, *s.also) for s in stack.sublayers)


@pytest.mark.parametrize("norm", ["layer-norm", "rms-norm", "scale-norm", "sphere-norm"])
@pytest.mark.parametrize("placement", ["pre-ln", "post-ln", "sandwich", "residual"])
def test_with_every_norm(placement, norm):
    for stack in found_in(placement, norm=norm):
        assert stack.norm == norm
        assert all(placement in (s.placement, *s.also) for s in stack.sublayers)


@pytest.mark.parametrize("placement", ["hybrid-norm", "hybrid-norm-width"])
def test_with_one_head_norms_of_heads_and_of_the_whole_width_are_the_same(placement):
    for stack in found_in(placement, heads=1):
        assert all({s.placement, *s.also} == {"hybrid-norm", "hybrid-norm-width"} for s in stack.sublayers)


def test_nothing_is_claimed_of_means_over_depth():
    with pytest.raises(ValueError, match="no residual stream found"):
        found_in("attn-res")
    assert {s.placement for stack in found_in("attn-res-block") for s in stack.sublayers} == {""}
