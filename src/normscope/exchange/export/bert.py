"""Encoders as Hugging Face transformers has them: BERT's layout (Post-LN) and RoBERTa-PreLayerNorm's (Pre-LN)."""

from typing import Any

import torch

from ...model import MaskedEncoder
from ...tasks.words import SpecialIds
from ..forms import Exported, Names, norm_epsilon, renamed, stack_names, weights

_LAYER: Names = {
    "attention.f.query": "attention.self.query",
    "attention.f.key": "attention.self.key",
    "attention.f.value": "attention.self.value",
    "attention.f.output": "attention.output.dense",
    "feed_forward.f.ffn_in": "intermediate.dense",
    "feed_forward.f.ffn_out": "output.dense",
}
_POST_NORMS: Names = {
    "attention.norm.main": "attention.output.LayerNorm",
    "feed_forward.norm.main": "output.LayerNorm",
}
_PRE_NORMS: Names = {
    "attention.norm.main": "attention.LayerNorm",
    "feed_forward.norm.main": "intermediate.LayerNorm",
}
_EMBEDDING: Names = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "embedding.positions": "embeddings.position_embeddings.weight",
    "embedding.segments": "embeddings.token_type_embeddings.weight",
    "embedding.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "relu": "relu"}


def bert_names(model: MaskedEncoder) -> Names:
    """Our names -> those of `BertForPreTraining`."""
    return {
        **{ours: f"bert.{theirs}" for ours, theirs in _EMBEDDING.items()},
        **stack_names(model.encoder, "encoder", "bert.encoder.layer", _LAYER | _POST_NORMS),
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "output_bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    }


def bert(model: MaskedEncoder, ids: SpecialIds) -> Exported:
    """`BertForPreTraining`, and so `BertModel` and every other head's model of BERT: Post-LN."""
    tensors = renamed(weights(model), bert_names(model))
    config = _config(model, ids) | {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "max_position_embeddings": model.config.positions,
    }
    return Exported(config=config, tensors=tensors)


def roberta_prelayernorm(model: MaskedEncoder, ids: SpecialIds) -> Exported:
    """`RobertaPreLayerNormForMaskedLM`: Pre-LN with a final norm. Judging sentence pairs has no place there.

    Its positions count from the padding id + 1, so the table has that many rows more.
    """
    state = weights(model)
    left_out = ("next_sentence.weight", "next_sentence.bias")
    at = "roberta_prelayernorm"
    names = {
        **{ours: f"{at}.{theirs}" for ours, theirs in _EMBEDDING.items()},
        **stack_names(model.encoder, "encoder", f"{at}.encoder.layer", _LAYER | _PRE_NORMS),
        "encoder.finish.norm.main": f"{at}.LayerNorm",
        "transform": "lm_head.dense",
        "transform_norm": "lm_head.layer_norm",
        "output_bias": "lm_head.bias",
    }
    tensors = renamed({name: tensor for name, tensor in state.items() if name not in left_out}, names)
    unused = torch.zeros(ids["[PAD]"] + 1, model.config.width)
    table = f"{at}.embeddings.position_embeddings.weight"
    tensors[table] = torch.cat([unused, tensors[table]])
    config = _config(model, ids) | {
        "architectures": ["RobertaPreLayerNormForMaskedLM"],
        "model_type": "roberta-prelayernorm",
        "max_position_embeddings": len(tensors[table]),
    }
    return Exported(config=config, tensors=tensors, left_out=left_out)


def _config(model: MaskedEncoder, ids: SpecialIds) -> dict[str, Any]:
    ours = model.config
    segments = model.embedding.segments
    assert segments is not None
    return {
        "vocab_size": len(model.embedding.weight),
        "hidden_size": ours.width,
        "num_hidden_layers": ours.blocks,
        "num_attention_heads": ours.heads,
        "intermediate_size": ours.ffn_width,
        "hidden_act": ACTIVATIONS[ours.activation],
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
