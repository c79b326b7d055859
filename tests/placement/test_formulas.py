"""Every registered placement against its paper's equations in float64: outputs and every gradient,
to 1e-10.
"""

from types import SimpleNamespace

import pytest
import torch

from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import StackShape, named, registered
from placement.expected import described, expected
from stacks import assert_model_matches, assert_stack_matches, small_model, small_stack

# Which norm is used and what a formula does with it are independent of each other: both common
# norms in stacks alone, one in an encoder and one in a decoder, and in models the placement's own,
# which is another where this is said.
COMMON = ("layer-norm", "rms-norm")
OWN = [(name, "as-placement") for name in registered()]
OWN_AND_RARE = [(name, norm) for name, norm in OWN if registered()[name].default_norm not in COMMON]
SQUASHING = [
    (name, norm)
    for name in ("hybrid-norm", "mhc", "peri-ln", "post-ln")
    for norm in ("dyt", "derf")
]
ENCODER_DECODER_ONLY = [
    name for name, p in registered().items() if p.models == ("encoder-decoder",)
]


def reference(name: str, norm: str) -> dict[str, object]:
    """What the comparison of a placement read with that norm needs."""
    known = expected(name)
    own = norm == "as-placement"
    equations = (known.own_norm_equations if own else None) or known.equations
    return {
        "equations": equations,
        "norm": known.norm if own else norm,
        "epsilon": known.norm_epsilon,
    }


def test_only_placements_that_exist_are_described():
    assert set(described()) <= set(registered())


@pytest.mark.parametrize("name", registered())
def test_its_class_says_what_its_source_says(name):
    placement, known = registered()[name], expected(name)
    assert (placement.default_norm, placement.norm_epsilon) == (known.norm, known.norm_epsilon)
    assert set(placement.models) == known.models


ALONE = [
    (name, norm, kind)
    for name in registered()
    for norm, kind in zip(COMMON, ("encoder", "decoder"), strict=True)
]
ALONE += [
    (name, norm, kind) for name, norm in OWN_AND_RARE + SQUASHING for kind in ("encoder", "decoder")
]


@pytest.mark.parametrize(
    ("name", "norm", "kind"), [case for case in ALONE if case[0] not in ENCODER_DECODER_ONLY]
)
def test_one_stack(name, norm, kind):
    stack = small_stack(name, kind, expected(name).alone_blocks, norm)
    assert_stack_matches(stack, **reference(name, norm))


@pytest.mark.parametrize(("name", "norm"), OWN + SQUASHING)
def test_encoder_and_decoder(name, norm):
    known = expected(name)
    model = small_model(
        name, norm, encoder_blocks=known.encoder_blocks, decoder_blocks=known.decoder_blocks
    )
    assert_model_matches(model, **reference(name, norm))


@pytest.mark.parametrize("name", ["post-ln", "scale-norm", "ngpt"])
def test_ends_with_a_table_for_each_language(name):
    model = small_model(name, "as-placement", embeddings="separate")
    assert_model_matches(model, **reference(name, "as-placement"))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ENCODER_DECODER_ONLY)
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
    """The row is 0 at first, where FixNorm's x / ‖x‖ has no derivative; the other rows say what is
    large.
    """
    torch.manual_seed(0)
    config = ModelConfig(
        placement=name, width=16, ffn_width=32, heads=2, encoder_blocks=1, decoder_blocks=1
    )
    model = EncoderDecoder(config, 20, 20)
    assert not model.target_embedding.weight[1].any()
    tokens, layout = torch.tensor([4, 5, 6, 7, 8]), Layout(torch.tensor([3, 2]))
    (-model.logits(model(tokens, layout, tokens, layout)).log_softmax(-1)[:, 9].mean()).backward()
    lengths = model.target_embedding.weight.grad.norm(dim=1)
    assert lengths[1] <= 10 * lengths.median()
