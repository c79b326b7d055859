"""Further foreign models: experts beside shared ones, scaled branches, and images beside text."""

from typing import Any

import torch
from torch import Tensor, nn

from doctor.corpus import (
    BERT,
    GROUPED,
    RMS,
    Case,
    Known,
    hugging_face,
    image,
    post,
    pre,
    sizes,
    tokens,
)

EXPERTS = {
    **GROUPED,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "rope_interleave": False,
}
RMS_6 = {**RMS, "epsilon": 1e-6}


def mixture(name: str, epsilon: float = 1e-6, **changes: Any) -> Case:
    """A decoder whose feed-forwards are experts, in each block or in the later ones."""
    return Case(
        build=hugging_face(name, **sizes(**{**EXPERTS, **changes}, use_cache=False)),
        inputs=tokens,
        stacks=(pre(norm="rms-norm", epsilon=epsilon),),
    )


def scaled(by: float, **known: Any) -> Known:
    return pre(**{"placement": "", "scaled": "pre-ln", "branches": (by, by), **known})


def llava() -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**sizes(image_size=8, patch_size=4)),
        text_config=transformers.LlamaConfig(**sizes(num_key_value_heads=2)),
        image_token_index=3,
    )
    return transformers.LlavaForConditionalGeneration(config)


def image_and_text() -> dict[str, Tensor]:
    """An image of four patches, each at the place of one token."""
    first = torch.full((2, 4), 3)
    return {**image(8)(), "input_ids": torch.cat([first, tokens()["input_ids"]], 1)}


NEWER: dict[str, Case] = {
    "deepseek-v2": mixture("DeepseekV2", **LATENT),
    "deepseek-v3": mixture("DeepseekV3", **LATENT),
    "glm-4.5": mixture("Glm4Moe", 1e-5, head_dim=8),
    "dots-1": mixture("Dots1", head_dim=8),
    "ernie-4.5": mixture(
        "Ernie4_5_Moe",
        1e-5,
        moe_num_experts=4,
        moe_k=2,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
    ),
    "qwen-2-moe": mixture("Qwen2Moe", decoder_sparse_step=2, shared_expert_intermediate_size=16),
    "llama-4": mixture(
        "Llama4Text",
        1e-5,
        head_dim=8,
        num_local_experts=4,
        interleave_moe_layer_step=2,
        intermediate_size_mlp=48,
    ),
    "dbrx": Case(
        build=hugging_face(
            "Dbrx",
            vocab_size=40,
            d_model=32,
            n_heads=4,
            n_layers=3,
            max_seq_len=16,
            attn_config={"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
            ffn_config={
                "ffn_hidden_size": 48,
                "moe_num_experts": 4,
                "moe_top_k": 2,
                "hidden_size": 32,
            },
        ),
        inputs=tokens,
        stacks=(pre(),),
    ),
    "deberta": Case(
        build=hugging_face("Deberta", **sizes()), inputs=tokens, stacks=(post(epsilon=1e-7),)
    ),
    "granite": Case(
        build=hugging_face("Granite", **sizes(num_key_value_heads=2, residual_multiplier=0.22)),
        inputs=tokens,
        stacks=(pre(placement="granite", **RMS_6, branches=(0.22, 0.22)),),
    ),
    "granite, another multiplier": Case(
        build=hugging_face("Granite", **sizes(num_key_value_heads=2, residual_multiplier=0.3)),
        inputs=tokens,
        stacks=(scaled(0.3, **RMS_6),),
    ),
    "dinov2": Case(
        build=hugging_face("Dinov2", **sizes(image_size=8, patch_size=4)),
        inputs=image(8),
        stacks=(pre(placement="layer-scale", epsilon=1e-6),),
    ),
    # Its last norm reads the mean over patches.
    "beit": Case(
        build=hugging_face("Beit", **sizes(image_size=8, patch_size=4)),
        inputs=image(8),
        stacks=(pre(placement="layer-scale", **BERT, final_norm=False, branches=(0.1, 0.1)),),
    ),
    "llava": Case(build=llava, inputs=image_and_text, stacks=(pre(final_norm=False), pre(**RMS_6))),
}
"""Models of the years after those of the corpus, and what was refused or misnamed."""
