"""Decoders as Hugging Face transformers has them: GPT-2's layout (Pre-LN), and those of Llama, OLMo
2, Qwen 3, Gemma 2.

The latter four have the same matrices under the same names. They differ in where norms stand, in
what is normed by head, and in the numbers of their configurations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..model import DecoderConfig, LanguageModel
from .forms import norm_epsilon, renamed, stack_names, tensor_names, weights

_QKV = ("query", "key", "value")
_GPT2_LAYER: dict[str, str] = {
    "attention.f.output": "attn.c_proj",
    "attention.norm.main": "ln_1",
    "feed_forward.f.ffn_in": "mlp.c_fc",
    "feed_forward.f.ffn_out": "mlp.c_proj",
    "feed_forward.norm.main": "ln_2",
}
GPT2_ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}


def gpt2(model: LanguageModel, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`GPT2LMHeadModel`: Pre-LN. Its matrices stand as (in, out), those of query, key and value
    side by side.
    """
    ours = model.config
    state = weights(model)
    packed = {}
    for block in range(ours.blocks):
        f = f"decoder.blocks.{block}.attention.f"
        for part in ("weight", "bias"):
            parts = [state.pop(f"{f}.{name}.{part}") for name in _QKV]
            packed[f"transformer.h.{block}.attn.c_attn.{part}"] = torch.cat(parts)
    names = stack_names(model.decoder, "decoder", "transformer.h", _GPT2_LAYER) | {
        "embedding.weight": "transformer.wte.weight",
        "embedding.positions": "transformer.wpe.weight",
        "decoder.finish.norm.main": "transformer.ln_f",
    }
    tensors = {
        name: _in_first(name, tensor) for name, tensor in (renamed(state, names) | packed).items()
    }
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": len(model.embedding.weight),
        "n_positions": ours.positions,
        "n_embd": ours.width,
        "n_layer": ours.blocks,
        "n_head": ours.heads,
        "n_inner": ours.ffn_width,
        "activation_function": GPT2_ACTIVATIONS[ours.activation],
        # The feed-forward's hidden layer has no dropout there.
        "resid_pdrop": ours.dropout,
        "embd_pdrop": ours.dropout,
        "attn_pdrop": ours.attention_dropout,
        "layer_norm_epsilon": norm_epsilon(model),
        "tie_word_embeddings": True,
        # It stands before and behind every document.
        "bos_token_id": ids["[SEP]"],
        "eos_token_id": ids["[SEP]"],
        "pad_token_id": ids["[PAD]"],
        "dtype": "float32",
    }
    return config, tensors


def _in_first(name: str, tensor: Tensor) -> Tensor:
    """Transposes the matrices of GPT-2's blocks, whose Conv1D multiplies from the left."""
    is_matrix = tensor.ndim == 2 and ".h." in name
    return tensor.T.contiguous() if is_matrix else tensor


_MATRICES: dict[str, str] = {
    "attention.f.query": "self_attn.q_proj",
    "attention.f.key": "self_attn.k_proj",
    "attention.f.value": "self_attn.v_proj",
    "attention.f.output": "self_attn.o_proj",
    "feed_forward.f.ffn_gate": "mlp.gate_proj",
    "feed_forward.f.ffn_in": "mlp.up_proj",
    "feed_forward.f.ffn_out": "mlp.down_proj",
}
_ENDS: dict[str, str] = {
    "embedding.weight": "model.embed_tokens.weight",
    "decoder.finish.norm.main": "model.norm",
    "output.weight": "lm_head.weight",
}

_BEFORE: dict[str, str] = {
    "attention.norm.main": "input_layernorm",
    "feed_forward.norm.main": "post_attention_layernorm",
}
_AFTER: dict[str, str] = {
    "attention.norm.main": "post_attention_layernorm",
    "feed_forward.norm.main": "post_feedforward_layernorm",
    "attention.norm.query": "self_attn.q_norm",
    "attention.norm.key": "self_attn.k_norm",
}
_BY_HEAD: dict[str, str] = {
    "attention.f.query_norm.each": "self_attn.q_norm",
    "attention.f.key_norm.each": "self_attn.k_norm",
}
_AROUND: dict[str, str] = {
    "attention.norm.before": "input_layernorm",
    "attention.norm.after": "post_attention_layernorm",
    "feed_forward.norm.before": "pre_feedforward_layernorm",
    "feed_forward.norm.after": "post_feedforward_layernorm",
}

GATE_CURVES = {"swiglu": "silu", "geglu": "gelu", "geglu-tanh": "gelu_pytorch_tanh"}
"""Ours -> what transformers calls the curve of the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryLayout:
    """One family's names and settings."""

    model_type: str
    architecture: str
    norms: dict[str, str]
    settings: Callable[[DecoderConfig], Mapping[str, Any]] = field(default=lambda ours: {})
    """The settings that its configuration has beside those that all of them have."""
    gain_from: float = 0.0
    """The difference between a norm's gain and the stored one: Gemma stores w and multiplies by 1 +
    w.
    """

    def names(self, model: LanguageModel) -> dict[str, str]:
        """Returns the tensor names, ours -> theirs."""
        names = (
            stack_names(model.decoder, "decoder", "model.layers", _MATRICES | self.norms) | _ENDS
        )
        return tensor_names(names, dict(model.named_parameters()))

    def __call__(
        self, model: LanguageModel, ids: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = {name: self.stored(name, tensor) for name, tensor in weights(model).items()}
        return self._config(model, ids), renamed(tensors, self.names(model))

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Our tensor of that name as it is written there."""
        return tensor - self.gain_from if ".norm." in name else tensor

    def _config(self, model: LanguageModel, ids: Mapping[str, int]) -> dict[str, Any]:
        ours, shape = model.config, model.decoder.placement.stack
        return {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": len(model.embedding.weight),
            "hidden_size": ours.width,
            "intermediate_size": ours.ffn_width,
            "num_hidden_layers": ours.blocks,
            "num_attention_heads": ours.heads,
            "num_key_value_heads": shape.heads_of_keys,
            "head_dim": shape.width_of_head,
            "hidden_act": GATE_CURVES[ours.activation],
            "max_position_embeddings": ours.positions,
            "rope_parameters": {"rope_type": "default", "rope_theta": ours.attention.rotary_base},
            "rms_norm_eps": norm_epsilon(model),
            "attention_bias": False,
            # Only attention's weights have dropout there.
            "attention_dropout": ours.attention_dropout,
            "tie_word_embeddings": ours.output == "tied",
            # It stands before and behind every document.
            "bos_token_id": ids["[SEP]"],
            "eos_token_id": ids["[SEP]"],
            "pad_token_id": ids["[PAD]"],
            "dtype": "float32",
            **self.settings(ours),
        }


def _gemma_settings(ours: DecoderConfig) -> dict[str, Any]:
    attention = ours.attention
    slides = [attention.window(block) is not None for block in range(1, ours.blocks + 1)]
    return {
        "hidden_activation": GATE_CURVES[ours.activation],
        "query_pre_attn_scalar": ours.shape().width_of_head,
        "attn_logit_softcapping": None if attention.soft_cap == "none" else attention.soft_cap,
        "final_logit_softcapping": None if ours.logit_soft_cap == "none" else ours.logit_soft_cap,
        # Its code asks for a number even where no block has the window.
        "sliding_window": ours.positions
        if attention.window_tokens == "none"
        else attention.window_tokens,
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
    }


LLAMA = RotaryLayout(
    model_type="llama",
    architecture="LlamaForCausalLM",
    norms=_BEFORE,
    settings=lambda ours: {"mlp_bias": False},
)
OLMO_2 = RotaryLayout(model_type="olmo2", architecture="Olmo2ForCausalLM", norms=_AFTER)
QWEN_3 = RotaryLayout(model_type="qwen3", architecture="Qwen3ForCausalLM", norms=_BEFORE | _BY_HEAD)
GEMMA_2 = RotaryLayout(
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    norms=_AROUND,
    settings=_gemma_settings,
    gain_from=1.0,
)
