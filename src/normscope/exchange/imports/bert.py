"""BERT checkpoints as our encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ...model import EncoderConfig, MaskedEncoder
from ...model.encoder import SEGMENTS
from ...tasks.masked_lm import MASKED_LM
from ..export.encoders import BERT_ACTIVATIONS, bert_names
from ..forms import Names, tensor_names
from .layout import ImportedLayout, Types, refuse_other_types

_PREFIX = "bert."
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
_OLD_NORM = {"gamma": "weight", "beta": "bias"}
"""As the first BERT checkpoints call a norm's parameters."""


_TYPES: Types = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"), (int,)),
    **dict.fromkeys(("max_position_embeddings", "type_vocab_size"), (int,)),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), (float, int)),
    **dict.fromkeys(("hidden_act", "position_embedding_type"), (str,)),
    "is_decoder": (bool,),
}


class Bert(ImportedLayout):
    """`BertForPreTraining` and every other head's BERT: Post-LN."""

    model_type = "bert"
    task = MASKED_LM
    table = "bert.embeddings.word_embeddings.weight"
    unneeded = (*_TIED, *_BUFFERS)

    def read_config(self, path: Path, theirs: Mapping[str, Any]) -> EncoderConfig:
        refuse_other_types(path, theirs, _TYPES)
        # What a configuration does not say is as in BERT-base, the library's defaults.
        given: dict[str, Any] = {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "max_position_embeddings": 512,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "type_vocab_size": SEGMENTS,
            "position_embedding_type": "absolute",
            "is_decoder": False,
        } | dict(theirs)
        only = {"type_vocab_size": SEGMENTS, "position_embedding_type": "absolute", "is_decoder": False}
        for key, wanted in only.items():
            if given[key] != wanted:
                raise UserError(f"{path}: {key} is {given[key]!r}, and our encoder has {wanted!r} alone")
        ours = {their: our for our, their in BERT_ACTIVATIONS.items()} | {"gelu_new": "gelu-tanh"}
        if given["hidden_act"] not in ours:
            raise UserError(f"{path}: hidden_act is {given['hidden_act']!r}; ours are {', '.join(ours)}")
        try:
            return EncoderConfig(
                placement="post-ln",
                width=given["hidden_size"],
                ffn_width=given["intermediate_size"],
                heads=given["num_attention_heads"],
                blocks=given["num_hidden_layers"],
                positions=given["max_position_embeddings"],
                dropout=float(given["hidden_dropout_prob"]),
                attention_dropout=float(given["attention_probs_dropout_prob"]),
                activation=ours[given["hidden_act"]],
                norm_epsilon=float(given["layer_norm_eps"]),
            )
        except (TypeError, ValueError) as error:
            raise UserError(f"{path}: {error}") from error

    def wanted_sizes(self, config: EncoderConfig) -> dict[str, tuple[int | None, int]]:
        last = f"{_PREFIX}encoder.layer.{config.blocks - 1}"
        return {
            self.table: (None, config.width),
            f"{_PREFIX}embeddings.position_embeddings.weight": (config.positions, config.width),
            f"{last}.attention.self.query.weight": (config.width, config.width),
            f"{last}.intermediate.dense.weight": (config.ffn_width, config.width),
        }

    def names(self, model: MaskedEncoder) -> Names:
        return tensor_names(bert_names(model), dict(model.named_parameters()))

    def full_name(self, name: str) -> str:
        """A `BertModel` alone is saved without the prefix that it has inside the others."""
        head, _, last = name.rpartition(".")
        name = f"{head}.{_OLD_NORM[last]}" if last in _OLD_NORM else name
        return _PREFIX + name if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def is_needed(self, name: str) -> bool:
        """Heads and pooler may be missing."""
        return name.startswith(("embedding.", "encoder."))

    def check(self, model: MaskedEncoder, tensors: Mapping[str, Tensor]) -> None:
        for head, table in zip(_TIED, (self.table, "cls.predictions.bias"), strict=True):
            if head in tensors and table in tensors and not torch.equal(tensors[head], tensors[table]):
                raise UserError(
                    f"{head} is not {table}: its output projection is not tied to the embedding, and ours is"
                )
