"""Foreign models at small size with random weights, and what each of their sub-layers is known to
be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

WIDTH, HEADS, FFN_WIDTH, BLOCKS, VOCABULARY = 32, 4, 48, 3, 40

ENCODER = ("attention", "feed_forward")
DECODER = ("attention", "cross_attention", "feed_forward")


@dataclass(frozen=True, kw_only=True)
class Known:
    """One stack of a model, as its source has it."""

    placement: str
    each: tuple[str, ...] = ()
    """Placements of a block's sub-layers where they differ."""
    named: str | None = None
    """What it is called instead, where nothing in a forward pass tells the two apart."""
    norm: str = "layer-norm"
    kinds: tuple[str, ...] = ENCODER
    blocks: int = BLOCKS
    final_norm: bool = True
    epsilon: float | None = 1e-5
    parallel: bool = False
    confidence: str = "sure"
    confidences: tuple[str, ...] = ()
    """Of a block's sub-layers where they differ."""
    skip: float = 1.0
    branches: tuple[float, ...] = ()
    """What each branch of a block is multiplied with, where that is not 1."""
    scaled: str = ""
    """What it is called but for what multiplies its branches."""

    @property
    def truth(self) -> list[str]:
        """The placement of every sub-layer."""
        return list(self.each or [self.placement] * len(self.kinds)) * self.blocks


@dataclass(frozen=True, kw_only=True)
class Case:
    build: Callable[[], nn.Module]
    inputs: Callable[[], Mapping[str, Any]]
    stacks: tuple[Known, ...]
    before: tuple[str, ...] = field(default=())
    """Kinds of branches between the embedding and the first block."""


def post(**known: Any) -> Known:
    return Known(**{"placement": "post-ln", "final_norm": False, **known})


def pre(**known: Any) -> Known:
    return Known(**{"placement": "pre-ln", **known})


def parallel(**known: Any) -> Known:
    return Known(**{"placement": "parallel", "parallel": True, **known})


def hugging_face(name: str, suffix: str = "Model", **changes: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
        torch.manual_seed(0)
        return getattr(transformers, name + suffix)(
            getattr(transformers, f"{name}Config")(**changes)
        )

    return build


def sizes(**changes: Any) -> dict[str, Any]:
    """Of a configuration in BERT's and most others' words."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "intermediate_size": FFN_WIDTH,
        **changes,
    }


def both_sizes(**changes: Any) -> dict[str, Any]:
    """Of an encoder-decoder's configuration in BART's words."""
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "encoder_layers": BLOCKS,
        "decoder_layers": BLOCKS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": FFN_WIDTH,
        "decoder_ffn_dim": FFN_WIDTH,
        "max_position_embeddings": 16,
        **changes,
    }


def tokens() -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.randint(
            4, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1)
        )
    }


def both_tokens() -> dict[str, torch.Tensor]:
    decoder = torch.randint(4, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(2))
    return {**tokens(), "decoder_input_ids": decoder}


def image(size: int) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {
        "pixel_values": torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    }


def sound() -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(2, 400, generator=torch.Generator().manual_seed(1))}


def opt(*, before: bool) -> Callable[[], nn.Module]:
    return hugging_face(
        "OPT",
        "ForCausalLM",
        **sizes(
            ffn_dim=FFN_WIDTH,
            word_embed_proj_dim=WIDTH,
            do_layer_norm_before=before,
            max_position_embeddings=16,
        ),
    )


def wav2vec2(*, stable: bool) -> Callable[[], nn.Module]:
    return hugging_face(
        "Wav2Vec2",
        **sizes(
            do_stable_layer_norm=stable, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3)
        ),
        num_feat_extract_layers=2,
        feat_extract_norm="layer" if stable else "group",
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )


GROUPED = {"num_key_value_heads": 2, "pad_token_id": 1}
BERT = {"epsilon": 1e-12}
SPECIAL = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 1}
T5_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": FFN_WIDTH,
    "num_layers": BLOCKS,
    "num_heads": HEADS,
}

CORPUS: dict[str, Case] = {
    "bert": Case(
        build=hugging_face("Bert", "ForMaskedLM", **sizes()), inputs=tokens, stacks=(post(**BERT),)
    ),
    "roberta": Case(
        build=hugging_face("Roberta", **sizes()), inputs=tokens, stacks=(post(**BERT),)
    ),
    "roberta-prelayernorm": Case(
        build=hugging_face("RobertaPreLayerNorm", **sizes()), inputs=tokens, stacks=(pre(**BERT),)
    ),
    "gpt2": Case(
        build=hugging_face(
            "GPT2", "LMHeadModel", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=BLOCKS, n_head=HEADS
        ),
        inputs=tokens,
        stacks=(pre(),),
    ),
    "gpt-neox": Case(
        build=hugging_face("GPTNeoX", "ForCausalLM", **sizes()),
        inputs=tokens,
        stacks=(parallel(placement="parallel-two-norms"),),
    ),
    "gpt-neox, sequential": Case(
        build=hugging_face("GPTNeoX", **sizes(use_parallel_residual=False)),
        inputs=tokens,
        stacks=(pre(),),
    ),
    "gpt-j": Case(
        build=hugging_face(
            "GPTJ",
            vocab_size=VOCABULARY,
            n_embd=WIDTH,
            n_layer=BLOCKS,
            n_head=HEADS,
            rotary_dim=4,
            n_positions=16,
        ),
        inputs=tokens,
        stacks=(parallel(),),
    ),
    "llama": Case(
        build=hugging_face("Llama", "ForCausalLM", **sizes(**GROUPED)),
        inputs=tokens,
        stacks=(pre(norm="rms-norm", epsilon=1e-6),),
    ),
    "qwen3": Case(
        build=hugging_face("Qwen3", **sizes(**GROUPED, head_dim=8)),
        inputs=tokens,
        stacks=(pre(norm="rms-norm", epsilon=1e-6),),
    ),
    "olmo-2": Case(
        build=hugging_face("Olmo2", **sizes(**GROUPED)),
        inputs=tokens,
        stacks=(Known(placement="olmo-2", norm="rms-norm"),),
    ),
    "gemma-2": Case(
        build=hugging_face("Gemma2", "ForCausalLM", **sizes(**GROUPED, head_dim=8)),
        inputs=tokens,
        stacks=(Known(placement="sandwich", norm="rms-norm", epsilon=1e-6),),
    ),
    "t5": Case(
        build=hugging_face("T5", "ForConditionalGeneration", **T5_SIZES),
        inputs=both_tokens,
        stacks=(
            pre(norm="rms-norm", epsilon=1e-6),
            pre(norm="rms-norm", epsilon=1e-6, kinds=DECODER),
        ),
    ),
    "bart": Case(
        build=hugging_face("Bart", "ForConditionalGeneration", **both_sizes(**SPECIAL)),
        inputs=both_tokens,
        stacks=(post(), post(kinds=DECODER)),
    ),
    "mbart": Case(
        build=hugging_face("MBart", **both_sizes(**SPECIAL)),
        inputs=both_tokens,
        stacks=(pre(), pre(kinds=DECODER)),
    ),
    "marian": Case(
        build=hugging_face("Marian", "MTModel", **both_sizes(**SPECIAL)),
        inputs=both_tokens,
        stacks=(post(), post(kinds=DECODER)),
    ),
    "m2m-100": Case(
        build=hugging_face("M2M100", **both_sizes(**SPECIAL)),
        inputs=both_tokens,
        stacks=(pre(), pre(kinds=DECODER)),
    ),
    "opt": Case(build=opt(before=True), inputs=tokens, stacks=(pre(),)),
    "opt, as the 350m model": Case(build=opt(before=False), inputs=tokens, stacks=(post(),)),
    "vit": Case(
        build=hugging_face("ViT", **sizes(image_size=8, patch_size=4)),
        inputs=image(8),
        stacks=(pre(**BERT),),
    ),
    "swin-v2": Case(
        build=hugging_face(
            "Swinv2",
            image_size=16,
            patch_size=2,
            embed_dim=WIDTH,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        inputs=image(16),
        stacks=(
            Known(placement="reordered", blocks=2, final_norm=False),
            Known(placement="reordered", blocks=2),
        ),
    ),
    "wav2vec2": Case(
        build=wav2vec2(stable=False), inputs=sound, stacks=(post(),), before=("convolution",)
    ),
    "wav2vec2, stable": Case(
        build=wav2vec2(stable=True), inputs=sound, stacks=(pre(),), before=("convolution",)
    ),
}

RMS = {"norm": "rms-norm"}

FURTHER: dict[str, Case] = {
    "distilbert": Case(
        build=hugging_face(
            "DistilBert",
            vocab_size=VOCABULARY,
            dim=WIDTH,
            n_layers=BLOCKS,
            n_heads=HEADS,
            hidden_dim=FFN_WIDTH,
        ),
        inputs=tokens,
        stacks=(post(**BERT),),
    ),
    "electra": Case(
        build=hugging_face("Electra", **sizes(embedding_size=16)),
        inputs=tokens,
        stacks=(post(**BERT),),
    ),
    "albert": Case(
        build=hugging_face("Albert", **sizes(embedding_size=16)),
        inputs=tokens,
        stacks=(post(**BERT),),
    ),
    "deberta-v2": Case(
        build=hugging_face(
            "DebertaV2", **sizes(relative_attention=True, pos_att_type=["p2c", "c2p"])
        ),
        inputs=tokens,
        stacks=(post(epsilon=1e-7),),
    ),
    "xlnet": Case(
        build=hugging_face(
            "XLNet",
            vocab_size=VOCABULARY,
            d_model=WIDTH,
            n_layer=BLOCKS,
            n_head=HEADS,
            d_inner=FFN_WIDTH,
        ),
        inputs=tokens,
        stacks=(post(**BERT),),
    ),
    "pegasus": Case(
        build=hugging_face("Pegasus", **both_sizes(**SPECIAL)),
        inputs=both_tokens,
        stacks=(pre(), pre(kinds=DECODER)),
    ),
    "bloom": Case(
        build=hugging_face(
            "Bloom", vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=BLOCKS, n_head=HEADS
        ),
        inputs=tokens,
        stacks=(pre(),),
    ),
    "falcon": Case(build=hugging_face("Falcon", **sizes()), inputs=tokens, stacks=(parallel(),)),
    "phi": Case(build=hugging_face("Phi", **sizes()), inputs=tokens, stacks=(parallel(),)),
    "cohere": Case(
        build=hugging_face("Cohere", **sizes(**GROUPED)), inputs=tokens, stacks=(parallel(),)
    ),
    "olmo": Case(build=hugging_face("Olmo", **sizes(**GROUPED)), inputs=tokens, stacks=(pre(),)),
    "mixtral": Case(
        build=hugging_face("Mixtral", **sizes(**GROUPED, num_local_experts=4)),
        inputs=tokens,
        stacks=(pre(**RMS),),
    ),
    "gemma-3": Case(
        build=hugging_face("Gemma3Text", **sizes(**GROUPED, head_dim=8)),
        inputs=tokens,
        stacks=(Known(placement="sandwich", epsilon=1e-6, **RMS),),
    ),
    "glm-4": Case(
        build=hugging_face("Glm4", **sizes(**GROUPED, head_dim=8)),
        inputs=tokens,
        stacks=(Known(placement="sandwich", epsilon=1.5625e-7, **RMS),),
    ),
    "swin": Case(
        build=hugging_face(
            "Swin",
            image_size=16,
            patch_size=2,
            embed_dim=WIDTH,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        inputs=image(16),
        stacks=(pre(blocks=2, final_norm=False), pre(blocks=2)),
    ),
    "clip": Case(
        build=hugging_face("CLIPVision", **sizes(image_size=8, patch_size=4)),
        inputs=image(8),
        stacks=(pre(final_norm=False),),
    ),
    # Their attention writes windows of scores into one tensor piece by piece.
    "longformer": Case(
        build=hugging_face("Longformer", **sizes(attention_window=4, max_position_embeddings=20)),
        inputs=tokens,
        stacks=(post(**BERT),),
    ),
    "led": Case(
        build=hugging_face(
            "LED",
            **both_sizes(**SPECIAL, attention_window=4),
            max_encoder_position_embeddings=16,
            max_decoder_position_embeddings=16,
        ),
        inputs=both_tokens,
        stacks=(post(), post(kinds=DECODER)),
    ),
}
"""Families beyond those that the method was made with."""
