"""Blocks of stacks whose sub-layers are not all of one pattern, and ways of mixing tokens that are
no attention.
"""

import pytest

from doctor.corpus import hugging_face, sizes, tokens
from doctor.corpus_x_transformers import ids, stack
from doctor.scrambled import scrambled
from normscope.doctor import Stack, find_stacks
from normscope.doctor.identify.stacks import cut_in_blocks

KINDS = {
    "a": "attention",
    "c": "cross_attention",
    "f": "feed_forward",
    "v": "convolution",
    "m": "mixer",
}


@pytest.mark.parametrize(
    ("kinds", "blocks"),
    [
        ("afafaf", "af af af"),
        ("acfacf", "acf acf"),
        ("faffaf", "faf faf"),
        ("aaa", "a a a"),
        ("avav", "av av"),
        ("mfmfafmfmfaf", "mf mf af mf mf af"),
        ("favfavf", "f avf avf"),
        # A first block without cross-attention, one without attention, one more feed-forward at the
        # end.
        ("afacfacf", "af acf acf"),
        ("fafaf", "f af af"),
        ("afaff", "af aff"),
        ("aafaff", "aaf aff"),
        ("af", "af"),
        ("f", "f"),
    ],
)
def test_cut_in_blocks(kinds, blocks):
    found = cut_in_blocks([KINDS[letter] for letter in kinds])
    assert found == tuple(tuple(KINDS[letter] for letter in block) for block in blocks.split())


def kinds_of(stack: Stack) -> str:
    letters = {kind: letter for letter, kind in KINDS.items()}
    blocks = range(1, stack.blocks + 1)
    return " ".join(
        "".join(letters[s.kind] for s in stack.sublayers if s.block == block) for block in blocks
    )


@pytest.mark.parametrize(
    ("options", "kinds"),
    [({"sandwich_coef": 1}, "aaf aff"), ({"par_ratio": 3, "depth": 6}, "af af af afffff")],
)
def test_layers_in_an_order_of_their_own(options, kinds):
    """Sandwich Transformer: Press et al. 2019; PAR: Mandava et al. 2020, one attention to several
    feed-forwards.
    """
    (found,) = find_stacks(scrambled(stack(**options)()), ids())
    assert kinds_of(found) == kinds
    assert {(s.placement, s.confidence) for s in found.sublayers} == {("pre-ln", "sure")}


SCANS = {
    "Mamba": (sizes(state_size=4, num_hidden_layers=2), "m m"),
    "Jamba": (
        sizes(
            num_hidden_layers=6,
            num_key_value_heads=2,
            num_experts=2,
            attn_layer_period=3,
            attn_layer_offset=1,
            use_mamba_kernels=False,
            mamba_d_state=4,
        ),
        "mf af mf mf af mf",
    ),
    "Qwen3Next": (
        sizes(
            num_hidden_layers=4,
            num_key_value_heads=2,
            head_dim=8,
            linear_num_value_heads=4,
            linear_num_key_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        ),
        "mf mf mf af",
    ),
}
"""State spaces and linear attention; the last with a shared expert in each feed-forward."""


@pytest.mark.parametrize("name", SCANS)
def test_scans_are_mixers_with_the_placement_of_their_stack(name):
    changes, kinds = SCANS[name]
    (found,) = find_stacks(scrambled(hugging_face(name, **changes, use_cache=False)()), tokens())
    assert kinds_of(found) == kinds
    assert {(s.placement, s.confidence) for s in found.sublayers} == {("pre-ln", "sure")}
    assert found.final_norm
