"""Every registered placement against its paper's equations in float64: outputs and every gradient, to 1e-10."""

from types import SimpleNamespace

import pytest
import torch

from equations import EQUATIONS, ngpt_of_the_paper
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import StackShape, named, registered
from stacks import WIDTH, assert_model_matches, assert_stack_matches, small_model, small_stack

ALONE, ENCODER_DECODER = ("encoder-only", "decoder-only"), "encoder-decoder"
ENCODER_DECODER_ONLY = {"sub-ln-cross", "t-fixup"}
EPSILON = {"residual": 1e-7, "ngpt": 1e-12}
OWN_NORM = {"scale-norm": "scale-norm", "ngpt": "sphere-norm"}
BLOCKS = {
    # Of 4, 5 and 9 blocks 1, 1 and 2 are Post-LN.
    "mix-ln": {"alone": 5, "encoder_blocks": 4, "decoder_blocks": 9},
    # Groups of 2 blocks with 1 left over, of 1 block, and of 2 blocks again.
    "attn-res-block": {"alone": 9, "encoder_blocks": 5, "decoder_blocks": 9},
}
"""Where 2 encoder and 3 decoder blocks, or 3 alone, would not show what the placement does."""


def cases() -> list[tuple[str, str]]:
    """(placement, norm): both common norms, and the placement's own where it is neither."""
    return [(name, norm) for name in EQUATIONS for norm in ("layer-norm", "rms-norm")] + [
        (name, "as-placement") for name in OWN_NORM
    ]


def reference(name: str, norm: str) -> dict[str, object]:
    """What the comparison of a placement read with that norm needs."""
    equations = ngpt_of_the_paper(WIDTH) if (name, norm) == ("ngpt", "as-placement") else EQUATIONS[name]
    kind = OWN_NORM[name] if norm == "as-placement" else norm
    return {"equations": equations, "norm": kind, "epsilon": EPSILON.get(name, 1e-5)}


def test_no_placement_is_without_equations():
    assert list(EQUATIONS) == list(registered())


def test_the_norm_of_a_placement_that_names_one():
    assert {name: p.default_norm for name, p in registered().items() if p.default_norm != "layer-norm"} == OWN_NORM
    assert {name: p.norm_epsilon for name, p in registered().items() if p.norm_epsilon != 1e-5} == EPSILON


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize(("name", "norm"), [case for case in cases() if case[0] not in ENCODER_DECODER_ONLY])
def test_one_stack(name, norm, kind):
    stack = small_stack(name, kind, BLOCKS.get(name, {"alone": 3})["alone"], norm)
    assert_stack_matches(stack, **reference(name, norm))


@pytest.mark.parametrize(("name", "norm"), cases())
def test_encoder_and_decoder(name, norm):
    sizes = {key: value for key, value in BLOCKS.get(name, {}).items() if key != "alone"}
    assert_model_matches(small_model(name, norm, **sizes), **reference(name, norm))


@pytest.mark.parametrize("name", ["post-ln", "scale-norm", "ngpt"])
def test_ends_with_a_table_for_each_language(name):
    model = small_model(name, "as-placement", embeddings="separate")
    assert_model_matches(model, **reference(name, "as-placement" if name in OWN_NORM else "layer-norm"))


def test_where_each_is_defined():
    everywhere = (*ALONE, ENCODER_DECODER)
    for name, placement in registered().items():
        assert set(placement.models) == {ENCODER_DECODER} if name in ENCODER_DECODER_ONLY else set(everywhere), name


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("name", sorted(ENCODER_DECODER_ONLY))
def test_refused_where_it_is_not_defined(name, kind):
    message = f"placement '{name}' is not defined for {kind}-only models, only for encoder-decoder$"
    with pytest.raises(ValueError, match=message):
        small_stack(name, kind, blocks=1)


def test_residual_epsilon_is_the_authors():
    assert small_stack("residual", "encoder", 1).finish.norm.main.eps == 1e-7


def test_residual_output_is_the_stream_plus_the_normed_sum():
    """On plain numbers: LN is `x / 10`, F(x) is `x + 1`."""
    placement = named("residual")(StackShape(kind="encoder", width=8, encoder_blocks=1))

    def norm(x: float) -> float:
        return x / 10

    end = SimpleNamespace(norm=norm)
    state = placement.start(3.0, end)
    assert state == (3.0, 3.0)
    state = placement.join(state, lambda x: x + 1, norm)
    assert state == (0.7, 7.0)
    assert placement.finish(state, end) == pytest.approx(1.4)


@pytest.mark.parametrize("name", registered())
def test_the_empty_row_of_padding_does_not_drown_the_gradient(name):
    """The row is 0 at first, where FixNorm's x / ‖x‖ has no derivative; the other rows say what is large."""
    torch.manual_seed(0)
    config = ModelConfig(placement=name, width=16, ffn_width=32, heads=2, encoder_blocks=1, decoder_blocks=1)
    model = EncoderDecoder(config, 20, 20)
    assert not model.target_embedding.weight[1].any()
    tokens, layout = torch.tensor([4, 5, 6, 7, 8]), Layout(torch.tensor([3, 2]))
    (-model.logits(model(tokens, layout, tokens, layout)).log_softmax(-1)[:, 9].mean()).backward()
    lengths = model.target_embedding.weight.grad.norm(dim=1)
    assert lengths[1] <= 10 * lengths.median()
