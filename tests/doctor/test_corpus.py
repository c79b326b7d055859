"""Foreign models, as they are and with every class and module renamed: the same stacks, all of them right."""

import pytest
import torch
from torch import nn

from doctor.corpus import CORPUS, DECODER, FURTHER, Case, Known, hugging_face, image, post, pre, sizes, tokens
from doctor.scrambled import scrambled
from normscope.doctor import FoundStack, find_stacks


def assert_known(found: list[FoundStack], case: Case) -> None:
    assert len(found) == len(case.stacks)
    for stack, known in zip(found, case.stacks, strict=True):
        early = [s for s in stack.sublayers if s.block == 0]
        inside = [s for s in stack.sublayers if s.block]
        assert [s.kind for s in early] == list(case.before)
        assert [s.kind for s in inside] == list(known.kinds) * known.blocks
        assert [s.block for s in inside] == [b for b in range(1, known.blocks + 1) for _ in known.kinds]
        assert {s.placement for s in inside} == {known.placement}
        assert {s.confidence for s in inside} == {"sure"}
        assert {(s.skip_scale, s.branch_scale) for s in inside} == {(1.0, 1.0)}
        assert {s.parallel for s in inside} == {known.parallel}
        assert (stack.blocks, stack.placement) == (known.blocks, known.placement)
        assert (stack.norm, stack.final_norm) == (known.norm, known.final_norm)
        assert stack.norm_epsilon == pytest.approx(known.epsilon, rel=0.1)


@pytest.mark.parametrize("name", [*CORPUS, *FURTHER])
def test_hugging_face_models(name):
    case = (CORPUS | FURTHER)[name]
    model = case.build()
    found = find_stacks(model, case.inputs())
    assert_known(found, case)
    paths = dict(model.named_modules())
    assert all(s.name in paths for stack in found for s in stack.sublayers)
    assert_known(find_stacks(scrambled(model), case.inputs()), case)


def test_the_report_names_modules_and_formulas():
    (stack,) = find_stacks(CORPUS["gpt2"].build(), CORPUS["gpt2"].inputs())
    assert stack.name == "transformer.h"
    assert [s.name for s in stack.sublayers[:2]] == ["transformer.h.0.attn", "transformer.h.0.mlp"]
    assert stack.sublayers[-1].formula == "x ← x + feed_forward(norm(x))"


@pytest.mark.parametrize(
    ("build", "inputs", "formula"),
    [
        (
            hugging_face("Granite", **sizes(num_key_value_heads=2, residual_multiplier=0.22)),
            tokens,
            "x ← x + 0.22 · attention(norm(x))",
        ),
        (
            hugging_face("Dinov2", **sizes(image_size=8, patch_size=4)),
            image(8),
            "x ← trained · attention(norm(x)) + x",
        ),
    ],
)
def test_models_whose_placement_nobody_registered(build, inputs, formula):
    (stack,) = find_stacks(build(), inputs())
    assert (stack.placement, stack.final_norm, stack.blocks) == ("", True, 3)
    assert {s.placement for s in stack.sublayers} == {""}
    assert stack.sublayers[0].formula == formula


def encoder(norm_first: bool, **options: object) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False, **options)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_torch_encoders(norm_first, final):
    model = encoder(norm_first, norm=nn.LayerNorm(16) if final else None)
    known = (pre if norm_first else post)(final_norm=final)
    for some in (model, scrambled(model)):
        assert_known(find_stacks(some, torch.randn(2, 5, 16)), Case(build=encoder, inputs=dict, stacks=(known,)))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_transformers(norm_first):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 3, 3, 24, norm_first=norm_first, batch_first=True)
    # After Post-LN its final norms are second ones, which torch keeps for backward compatibility.
    stack = pre if norm_first else post
    case = Case(build=encoder, inputs=dict, stacks=(stack(final_norm=True), stack(kinds=DECODER, final_norm=True)))
    for some in (model, scrambled(model)):
        assert_known(find_stacks(some, (torch.randn(2, 5, 16), torch.randn(2, 4, 16))), case)


def test_a_decoder_alone_whose_memory_is_an_input():
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 24, batch_first=True), 2)
    found = find_stacks(model, {"tgt": torch.randn(2, 5, 16), "memory": torch.randn(2, 4, 16)})
    known = Known(placement="post-ln", kinds=DECODER, blocks=2, final_norm=False)
    assert_known(found, Case(build=encoder, inputs=dict, stacks=(known,)))
