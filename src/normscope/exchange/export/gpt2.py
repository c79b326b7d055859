"""A decoder alone as Hugging Face transformers has it: GPT-2's layout (Pre-LN)."""

import torch
from torch import Tensor

from ...model import LanguageModel
from ...tasks.words import SpecialIds
from ..forms import Exported, Names, norm_epsilon, renamed, stack_names, weights

_QKV = ("query", "key", "value")
_LAYER: Names = {
    "attention.f.output": "attn.c_proj",
    "attention.norm.main": "ln_1",
    "feed_forward.f.ffn_in": "mlp.c_fc",
    "feed_forward.f.ffn_out": "mlp.c_proj",
    "feed_forward.norm.main": "ln_2",
}
ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}


def gpt2(model: LanguageModel, ids: SpecialIds) -> Exported:
    """`GPT2LMHeadModel`: Pre-LN. Its matrices stand as (in, out), those of query, key and value side by side."""
    ours = model.config
    state = weights(model)
    packed = {
        f"transformer.h.{block}.attn.c_attn.{part}": torch.cat(
            [state.pop(f"decoder.blocks.{block}.attention.f.{name}.{part}") for name in _QKV]
        )
        for block in range(ours.blocks)
        for part in ("weight", "bias")
    }
    names = stack_names(model.decoder, "decoder", "transformer.h", _LAYER) | {
        "embedding.weight": "transformer.wte.weight",
        "embedding.positions": "transformer.wpe.weight",
        "decoder.finish.norm.main": "transformer.ln_f",
    }
    tensors = {name: _in_first(name, tensor) for name, tensor in (renamed(state, names) | packed).items()}
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": len(model.embedding.weight),
        "n_positions": ours.positions,
        "n_embd": ours.width,
        "n_layer": ours.blocks,
        "n_head": ours.heads,
        "n_inner": ours.ffn_width,
        "activation_function": ACTIVATIONS[ours.activation],
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
    return Exported(config=config, tensors=tensors)


def _in_first(name: str, tensor: Tensor) -> Tensor:
    """Its Conv1D multiplies from the left."""
    is_matrix = tensor.ndim == 2 and ".h." in name
    return tensor.T.contiguous() if is_matrix else tensor
