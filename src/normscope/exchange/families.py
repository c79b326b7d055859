"""Checkpoints of transformers as our models: BERT, and the rotary decoders _Llama, OLMo 2, Qwen 3 and Gemma 2."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..limits.reading import shown
from ..model import DecoderConfig, EncoderConfig, LanguageModel, MaskedEncoder
from ..model.single import SEGMENTS
from ..tasks.language_model import LANGUAGE_MODEL
from ..tasks.masked_lm import MASKED_LM
from ..tasks.registry import config_of
from .decoders import GATE_CURVES, GEMMA_2, LLAMA, OLMO_2, QWEN_3, RotaryLayout
from .encoders import BERT_ACTIVATIONS, bert_names
from .forms import Names, tensor_names
from .layout import ImportedLayout, refuse_other_types

_PREFIX = "bert."
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
_OLD_NORM = {"gamma": "weight", "beta": "bias"}
"""As the first BERT checkpoints call a norm's parameters."""


_BERT_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"), (int,)),
    **dict.fromkeys(("max_position_embeddings", "type_vocab_size"), (int,)),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), (float, int)),
    **dict.fromkeys(("hidden_act", "position_embedding_type"), (str,)),
    "is_decoder": (bool,),
}


class _Bert(ImportedLayout):
    """`BertForPreTraining` and every other head's BERT: Post-LN."""

    model_type = "bert"
    task = MASKED_LM
    table = "bert.embeddings.word_embeddings.weight"
    unneeded = (*_TIED, *_BUFFERS)

    def read_config(self, path: Path, theirs: Mapping[str, Any]) -> EncoderConfig:
        refuse_other_types(path, theirs, _BERT_TYPES)
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


_COUNTS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys((*_COUNTS, "max_position_embeddings"), (int,)),
    **dict.fromkeys(("num_key_value_heads", "head_dim", "sliding_window"), (int, type(None))),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (float, int, type(None))),
    **dict.fromkeys(("rms_norm_eps", "attention_dropout", "query_pre_attn_scalar", "rope_theta"), (float, int)),
    **dict.fromkeys(("hidden_act", "hidden_activation"), (str,)),
    **dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window"), (bool,)),
    **dict.fromkeys(("rope_parameters", "rope_scaling"), (dict, type(None))),
    "layer_types": (list, type(None)),
}
_HEAD = "lm_head.weight"
_SLIDES, _SEES_ALL = "sliding_attention", "full_attention"


class _Llama(ImportedLayout):
    """Decoders whose matrices are called as _Llama's."""

    task = LANGUAGE_MODEL
    table = "model.embed_tokens.weight"
    has_spare_rows = True
    activation, activation_key = "swiglu", "hidden_act"
    """Of the feed-forward, in our words; and what `config.json` calls the setting."""
    unneeded = (_HEAD,)

    def __init__(self, layout: RotaryLayout, preset: str, defaults: Mapping[str, Any]) -> None:
        """defaults: of the library, where a configuration does not say what our preset leaves open."""
        self.layout, self.preset, self.defaults = layout, preset, defaults
        self.model_type = layout.model_type

    def read_config(self, path: Path, theirs: Mapping[str, Any]) -> DecoderConfig:
        refuse_other_types(path, theirs, _TYPES)
        missing = [key for key in _COUNTS if key not in theirs]
        if missing:
            raise UserError(f"{path}: it does not say {', '.join(missing)}")
        given = {**self.defaults, **{key: value for key, value in theirs.items() if value is not None}}
        for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
            if given.get(key):
                raise UserError(f"{path}: {key} is true, and format {self.model_type} is read without it")
        self._refuse_other_activation(path, given)
        model: dict[str, Any] = {
            "preset": self.preset,
            "width": given["hidden_size"],
            "ffn_width": given["intermediate_size"],
            "heads": given["num_attention_heads"],
            "blocks": given["num_hidden_layers"],
            "positions": given["max_position_embeddings"],
            "norm_epsilon": float(given["rms_norm_eps"]),
            "attention_dropout": float(given.get("attention_dropout", 0.0)),
            "activation": self.activation,
            "output": "tied" if given["tie_word_embeddings"] else "untied",
            "attention": {
                "key_value_heads": given.get("num_key_value_heads", "as-heads"),
                "head_width": given.get("head_dim", "as-width"),
                "rotary_base": self._rotary_base(path, given),
            },
        }
        self.read_own(path, given, model)
        # Its sequences are not the preset's: a run says how long they are, where it is trained on.
        table = {"task": self.task.name, "model": model}
        read: DecoderConfig = config_of(table, source=str(path)).model
        return read

    def _refuse_other_activation(self, path: Path, given: Mapping[str, Any]) -> None:
        theirs = GATE_CURVES[self.activation]
        found = given.get(self.activation_key, theirs)
        if found != theirs:
            raise UserError(f"{path}: {self.activation_key} is {found!r}; format {self.model_type} has {theirs}")

    def _rotary_base(self, path: Path, given: Mapping[str, Any]) -> float:
        """As transformers 5 says it, or 4."""
        rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise UserError(f"{path}: its rotary positions are of type {shown(kind)}, and ours are not stretched")
        base: Any = rope.get("rope_theta", given.get("rope_theta"))
        if type(base) not in (int, float):
            raise UserError(f"{path}: rope_theta must be a number, got {shown(base)}")
        return float(base)

    def read_own(self, path: Path, given: Mapping[str, Any], model: dict[str, Any]) -> None:
        """Put into our table what this layout alone has. Raises UserError for what ours does not compute."""

    def wanted_sizes(self, config: DecoderConfig) -> dict[str, tuple[int | None, int]]:
        last, shape = f"model.layers.{config.blocks - 1}", config.shape()
        return {
            self.table: (None, config.width),
            f"{last}.self_attn.q_proj.weight": (shape.query_width, config.width),
            f"{last}.self_attn.k_proj.weight": (shape.key_value_width, config.width),
            f"{last}.mlp.gate_proj.weight": (config.ffn_width, config.width),
        }

    def names(self, model: LanguageModel) -> Names:
        return self.layout.names(model)

    def taken(self, name: str, tensor: Tensor) -> Tensor:
        return self.layout.read(name, tensor)

    def check(self, model: LanguageModel, tensors: Mapping[str, Tensor]) -> None:
        tied = model.output is None and _HEAD in tensors
        if tied and not torch.equal(tensors[_HEAD], tensors[self.table]):
            raise UserError(f"{_HEAD} is not {self.table}, and config.json says that they are tied")


class _Gemma2(_Llama):
    """Gemma 2's own: another gate, caps, and windows in every second block."""

    activation, activation_key = "geglu-tanh", "hidden_activation"

    def read_own(self, path: Path, given: Mapping[str, Any], model: dict[str, Any]) -> None:
        head_width = given["head_dim"]
        if given["query_pre_attn_scalar"] != head_width:
            raise UserError(
                f"{path}: query_pre_attn_scalar is {given['query_pre_attn_scalar']}, and our scores are divided by the "
                f"root of a head's width, {head_width}"
            )
        blocks = given["num_hidden_layers"]
        odd = [_SEES_ALL if block % 2 else _SLIDES for block in range(blocks)]
        patterns = {"odd": odd, "all": [_SLIDES] * blocks, "none": [_SEES_ALL] * blocks}
        layers = given.get("layer_types", odd)
        windowed = next((name for name, pattern in patterns.items() if pattern == layers), None)
        if windowed is None:
            raise UserError(f"{path}: layer_types is neither every block, every second one from the first, nor none")
        attention = model["attention"]
        attention["soft_cap"] = given.get("attn_logit_softcapping", "none")
        model["logit_soft_cap"] = given.get("final_logit_softcapping", "none")
        attention["window_tokens"] = "none" if windowed == "none" else given["sliding_window"]
        attention["windowed_blocks"] = "odd" if windowed == "none" else windowed


_UNTIED = {"tie_word_embeddings": False, "max_position_embeddings": 2048, "rope_theta": 10_000.0}

LAYOUTS: tuple[ImportedLayout, ...] = (
    _Bert(),
    _Llama(LLAMA, "llama", _UNTIED | {"rms_norm_eps": 1e-6}),
    _Llama(OLMO_2, "olmo-2", _UNTIED | {"rms_norm_eps": 1e-5}),
    _Llama(
        QWEN_3,
        "qwen-3",
        _UNTIED | {"rms_norm_eps": 1e-6, "head_dim": 128, "max_position_embeddings": 32_768},
    ),
    _Gemma2(
        GEMMA_2,
        "gemma-2",
        {
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0,
            "head_dim": 256,
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "max_position_embeddings": 8192,
        },
    ),
)
"""The defaults are those of the library's configurations."""
