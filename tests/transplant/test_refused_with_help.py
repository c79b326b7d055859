"""A model that cannot be moved is told what was read of it and what would help, and is helped by
it.
"""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import normscope
from normscope.transplant.following import TransplantRefused

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 50,
    "bos_token_id": None,
    "eos_token_id": None,
}
IDS = (torch.arange(32).view(2, 16) % 50,)
IMAGES = {"pixel_values": torch.linspace(0, 1, 2 * 3 * 28 * 28).view(2, 3, 28, 28)}


def decoder(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SMALL)).eval()


def dinov2() -> nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "dinov2",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=28,
        patch_size=14,
    )
    return AutoModel.from_config(config).eval()


def test_a_norm_inside_a_sub_layer_is_named_and_helps_where_it_is_taken_out() -> None:
    """BitNet's, in front of the last matrices."""
    with pytest.raises(TransplantRefused, match=r"has a norm of its own inside.*nn\.Identity"):
        normscope.transplant(decoder("bitnet"), "peri-ln", inputs=IDS)
    model = decoder("bitnet")
    for block in model.model.layers:
        block.self_attn.attn_sub_norm = nn.Identity()
        block.mlp.ffn_sub_norm = nn.Identity()
    normscope.transplant(model, "peri-ln", inputs=IDS)


def test_layer_scale_is_told_what_it_can_be_multiplied_into_and_is_moved_then() -> None:
    with pytest.raises(TransplantRefused, match=r"trained on each feature.*last matrix"):
        normscope.transplant(dinov2(), "peri-ln", inputs=IMAGES)
    model = dinov2()
    for place, parameter in enumerate(model.parameters()):
        with torch.no_grad():
            parameter.add_(
                0.01 * torch.sin(torch.arange(parameter.numel()) + place).view_as(parameter)
            )
    with torch.no_grad():
        before = model(**IMAGES).last_hidden_state
        for block in model.encoder.layer:
            for scale, last in (
                ("layer_scale1", block.attention.o_proj),
                ("layer_scale2", block.mlp.fc2),
            ):
                factor = getattr(block, scale).lambda1
                last.weight.mul_(factor[:, None])
                last.bias.mul_(factor)
                setattr(block, scale, nn.Identity())
        after = model(**IMAGES).last_hidden_state
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    normscope.transplant(model, "peri-ln", inputs=IMAGES)


def test_a_skip_behind_the_norm_is_named() -> None:
    """MiniMax's residual is the normed input."""
    model = decoder_of_minimax()
    with pytest.raises(TransplantRefused, match="where the skip starts behind the norm"):
        normscope.transplant(model, "peri-ln", inputs=IDS)


def decoder_of_minimax() -> nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "minimax", num_local_experts=2, num_experts_per_tok=1, head_dim=8, **SMALL
    )
    return AutoModelForCausalLM.from_config(config).eval()
