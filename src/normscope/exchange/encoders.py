"""Encoders and encoder-decoders as Hugging Face transformers has them.

BERT's layout (Post-LN) and RoBERTa-PreLayerNorm's (Pre-LN); Marian's (Post-LN) and M2M100's
(Pre-LN).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.parallel.vocabulary import BOS, EOS, PAD
from ..model import EncoderDecoder, MaskedEncoder
from ..model.embedding import sinusoids
from .forms import norm_epsilon, renamed, stack_names, weights

_BERT_LAYER: dict[str, str] = {
    "attention.f.query": "attention.self.query",
    "attention.f.key": "attention.self.key",
    "attention.f.value": "attention.self.value",
    "attention.f.output": "attention.output.dense",
    "feed_forward.f.ffn_in": "intermediate.dense",
    "feed_forward.f.ffn_out": "output.dense",
}
_POST_NORMS: dict[str, str] = {
    "attention.norm.main": "attention.output.LayerNorm",
    "feed_forward.norm.main": "output.LayerNorm",
}
_PRE_NORMS: dict[str, str] = {
    "attention.norm.main": "attention.LayerNorm",
    "feed_forward.norm.main": "intermediate.LayerNorm",
}
_EMBEDDING: dict[str, str] = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "embedding.positions": "embeddings.position_embeddings.weight",
    "embedding.segments": "embeddings.token_type_embeddings.weight",
    "embedding.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
BERT_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "relu": "relu"}


def bert(model: MaskedEncoder, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`BertForPreTraining`, and so `BertModel` and every other head's model of BERT: Post-LN."""
    names = {
        **{ours: f"bert.{theirs}" for ours, theirs in _EMBEDDING.items()},
        **stack_names(model.encoder, "encoder", "bert.encoder.layer", _BERT_LAYER | _POST_NORMS),
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "output_bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    }
    config = _bert_config(model, ids) | {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "max_position_embeddings": model.config.positions,
    }
    return config, renamed(weights(model), names)


NO_JUDGE = ("next_sentence.weight", "next_sentence.bias")
"""Weights of ours that have no place in `RobertaPreLayerNormForMaskedLM`."""


def roberta_prelayernorm(
    model: MaskedEncoder, ids: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`RobertaPreLayerNormForMaskedLM`: Pre-LN with a final norm. Judging sentence pairs has no
    place there.

    Its positions count from the padding id + 1, so the table has that many rows more.
    """
    at = "roberta_prelayernorm"
    names = {
        **{ours: f"{at}.{theirs}" for ours, theirs in _EMBEDDING.items()},
        **stack_names(model.encoder, "encoder", f"{at}.encoder.layer", _BERT_LAYER | _PRE_NORMS),
        "encoder.finish.norm.main": f"{at}.LayerNorm",
        "transform": "lm_head.dense",
        "transform_norm": "lm_head.layer_norm",
        "output_bias": "lm_head.bias",
    }
    tensors = renamed(
        {name: one for name, one in weights(model).items() if name not in NO_JUDGE}, names
    )
    unused = torch.zeros(ids["[PAD]"] + 1, model.config.width)
    table = f"{at}.embeddings.position_embeddings.weight"
    tensors[table] = torch.cat([unused, tensors[table]])
    config = _bert_config(model, ids) | {
        "architectures": ["RobertaPreLayerNormForMaskedLM"],
        "model_type": "roberta-prelayernorm",
        "max_position_embeddings": len(tensors[table]),
    }
    return config, tensors


def _bert_config(model: MaskedEncoder, ids: Mapping[str, int]) -> dict[str, Any]:
    ours = model.config
    segments = model.embedding.segments
    assert segments is not None
    return {
        "vocab_size": len(model.embedding.weight),
        "hidden_size": ours.width,
        "num_hidden_layers": ours.blocks,
        "num_attention_heads": ours.heads,
        "intermediate_size": ours.ffn_width,
        "hidden_act": BERT_ACTIVATIONS[ours.activation],
        # The feed-forward's hidden layer has no dropout there.
        "hidden_dropout_prob": ours.dropout,
        "attention_probs_dropout_prob": ours.attention_dropout,
        "type_vocab_size": len(segments),
        "layer_norm_eps": norm_epsilon(model),
        "tie_word_embeddings": True,
        "pad_token_id": ids["[PAD]"],
        "bos_token_id": ids["[CLS]"],
        "eos_token_id": ids["[SEP]"],
        "dtype": "float32",
    }


POSITIONS = 2048
"""Rows of the exported table of sinusoids: our decoder stops at 1.2 times the longest source, 1024
tokens, and 10.
"""


def _attention(ours: str, theirs: str, norm: str) -> dict[str, str]:
    matrices = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return {f"{ours}.f.{our}": f"{theirs}.{their}" for our, their in matrices.items()} | {
        f"{ours}.norm.main": norm
    }


_LAYER = _attention("attention", "self_attn", "self_attn_layer_norm") | {
    "feed_forward.f.ffn_in": "fc1",
    "feed_forward.f.ffn_out": "fc2",
    "feed_forward.norm.main": "final_layer_norm",
}
_CROSS = _attention("cross_attention", "encoder_attn", "encoder_attn_layer_norm")


def marian(
    model: EncoderDecoder, ids: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`MarianMTModel`: Post-LN. Its own sinusoids begin at position 0 and have other frequencies,
    so ours go along.

    It ties what a sentence's decoder begins with to no other token, so that </s>, as in fairseq,
    can be it.
    """
    shared = model.source_embedding is model.target_embedding
    rows: dict[str, str] = (
        {"target_embedding.weight": "model.shared.weight"}
        if shared
        else {
            "source_embedding.weight": "model.encoder.embed_tokens.weight",
            "target_embedding.weight": "model.decoder.embed_tokens.weight",
        }
    )
    tensors = renamed(weights(model), rows | _names(model))
    table = sinusoids(POSITIONS, model.config.width).float()
    tensors |= {
        f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")
    }
    tensors["final_logits_bias"] = torch.zeros(1, len(model.target_embedding.weight))
    config = _config(model) | {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "decoder_vocab_size": len(model.target_embedding.weight),
        "share_encoder_decoder_embeddings": shared,
        "forced_eos_token_id": None,
    }
    return config, tensors


def m2m100(
    model: EncoderDecoder, ids: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`M2M100ForConditionalGeneration`: Pre-LN with a final norm in both stacks, and fairseq's
    sinusoids, as ours.

    It has one table of embeddings for both languages.
    """
    final = {
        f"{side}.finish.norm.main": f"model.{side}.layer_norm" for side in ("encoder", "decoder")
    }
    names = {"target_embedding.weight": "model.shared.weight"} | _names(model) | final
    config = _config(model) | {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
    }
    return config, renamed(weights(model), names)


def _names(model: EncoderDecoder) -> dict[str, str]:
    """Returns the names of everything but the embedding and the final norms, which only one of the
    two has.
    """
    encoder = stack_names(model.encoder, "encoder", "model.encoder.layers", _LAYER)
    return encoder | stack_names(model.decoder, "decoder", "model.decoder.layers", _LAYER | _CROSS)


def _config(model: EncoderDecoder) -> dict[str, Any]:
    ours = model.config
    blocks = {"encoder": ours.encoder_blocks, "decoder": ours.decoder_blocks}
    sizes = {"attention_heads": ours.heads, "ffn_dim": ours.ffn_width, "layerdrop": 0.0}
    return {
        "vocab_size": len(model.source_embedding.weight),
        "max_position_embeddings": POSITIONS,
        "d_model": ours.width,
        **{f"{side}_layers": count for side, count in blocks.items()},
        **{f"{side}_{name}": value for side in blocks for name, value in sizes.items()},
        "activation_function": "relu",
        "dropout": ours.dropout,
        "attention_dropout": ours.attention_dropout,
        "activation_dropout": ours.activation_dropout,
        "scale_embedding": True,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": EOS,
        "dtype": "float32",
    }
