"""A small model of every family of Hugging Face transformers, from its configuration's own defaults
made small.

A family's defaults are what its authors meant; only sizes and counts are changed, by the names that
they have.
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from torch import nn

from normscope.adapters.hugging_face import build, classes_of, load_transformers
from normscope.errors import UserError, in_one_line

BLOCKS = 4
WIDTH = 32
HEADS = 4
FFN_WIDTH = 48
VOCABULARY = 96
TOKENS = 64
IMAGE = 32
PATCH = 8

_SMALL: tuple[tuple[str, int], ...] = (
    (r"(num_)?((hidden|encoder|decoder|text|vision|audio|transformer)_)*(layers?|blocks?)", BLOCKS),
    (r"n_layers?|depths?|decoder_depth|num_h(idden)?_layers", BLOCKS),
    (r"n_heads?|(\w+_)?(num_)?(attention_)?heads", HEADS),
    (r"(\w+_)?(num_|n_)?(key_value|kv)_heads", HEADS),
    (
        r"hidden_size|d_(model|latents)|n_embd|(word_)?embed(ding)?_(dim|size|proj_dim)|dim|emb_dim|hidden_dim",
        WIDTH,
    ),
    (r"(text|encoder|decoder|vision|audio|cross_attention|image_text)_hidden_size", WIDTH),
    (r"d_kv|(\w+_)?head_dim", WIDTH // HEADS),
    (r"(kv|q|o)_lora_rank", WIDTH // 2),
    (
        r"(\w+_)?(intermediate_(size|dim)|ffn_(dim|hidden_size)|d_ff|n_inner|dim_feedforward|mlp_dim)",
        FFN_WIDTH,
    ),
    (r"(\w+_)?vocab_size(_\w+)?", VOCABULARY),
    (r"image_size|img_size", IMAGE),
    (r"patch_size", PATCH),
    (r"(\w+_)?(num_|n_)?(local_|routed_)?experts", 4),
    (r"num_experts_per_tok(en)?|moe_(topk|k)", 2),
    (r"(n|topk|num_expert)_groups?|n_shared_experts|first_k_dense_replace|num_dense_layers", 1),
    (r"max_position_embeddings|n_positions|max_(source|target)_positions|n_ctx", TOKENS),
    (r"(\w+_)?projection_dim|out_hidden_size|output_dim", WIDTH),
)
"""Names of keys, and how small their numbers become; what is smaller stays as it is."""
_WHERE_NONE = {
    "head_dim": WIDTH // HEADS,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "topk_group": 1,
    "n_group": 1,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": WIDTH // HEADS,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
}
"""The values that some families leave to every checkpoint's own configuration."""
_BACKBONE = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
"""The backbone in place of one from timm, which may not be installed and would be looked for on the
hub.
"""
_ATTEMPTS = (
    "",
    r"\w*head_dim|d_kv|\w*kv_heads",
    r"image_size|patch_size",
    r"(?!hidden_size|num_hidden_layers)\w*",
)
"""Keys that are kept as they are: none at first, then those on which other keys may depend."""


def families() -> list[str]:
    """Returns the model types of all configurations, in alphabetical order."""
    return sorted(load_transformers().CONFIG_MAPPING.keys())


def small_model(family: str) -> nn.Module:
    """Returns the family's main model with a small configuration and initial weights. Raises
    UserError where none is built.
    """
    config_class = load_transformers().CONFIG_MAPPING[family]
    problem = ""
    for keep in _ATTEMPTS:
        for backbone in (_BACKBONE, None):
            try:
                config = config_class(**_changes(config_class, keep, backbone))
                # A head may want what its family's whole has not.
                for model_class in classes_of(config):
                    try:
                        return build(model_class, config)
                    except UserError as error:
                        problem = problem or str(error)
            except UserError as error:
                problem = problem or str(error)
            except Exception as error:
                # Configurations of hundreds of families: each refuses in its own way what does not
                # go together.
                problem = problem or in_one_line(error)
            if "backbone_config" not in _names(config_class):
                break
    raise UserError(problem)


def _changes(config_class: Any, keep: str, backbone: dict[str, Any] | None) -> dict[str, Any]:
    inner = getattr(config_class, "sub_configs", None) or {}
    changes = {
        name: value
        for name, default in _defaults(config_class)
        if name not in inner
        and not re.fullmatch(keep, name)
        and (value := _smaller(name, default)) is not None
    }
    names = _names(config_class)
    if backbone is not None and ("use_timm_backbone" in names or "backbone_config" in names):
        changes |= {"backbone_config": backbone}
        changes |= {
            name: False
            for name in ("use_timm_backbone", "use_pretrained_backbone")
            if name in names
        }
    for name, one in inner.items():
        if name in changes:
            continue
        part = one if getattr(one, "model_type", "") else _part(config_class, name)
        if part is not None:
            changes[name] = {"model_type": part.model_type, **_changes(part, keep, backbone)}
    return changes


def _part(config_class: Any, name: str) -> Any:
    """Returns the class of a part that may be of any family, as the configuration makes it by
    itself; None without any.
    """
    try:
        found = type(getattr(config_class(), name, None))
    except Exception:
        # What wants settings of its own has no default that could be made small.
        return None
    return found if getattr(found, "model_type", "") else None


def _names(config_class: Any) -> list[str]:
    return [name for name, _ in _defaults(config_class)]


def _defaults(config_class: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(config_class):
        if field.default is not MISSING:
            yield field.name, field.default
        elif field.default_factory is not MISSING:
            yield field.name, field.default_factory()


def _smaller(name: str, default: Any) -> Any:
    """Returns a smaller value for a setting; None for one that stays as it is."""
    if isinstance(default, list | tuple) and all(type(entry) is int for entry in default):
        bound = {"depths": 2, "conv_dim": WIDTH}.get(name)
        return type(default)(min(entry, bound) for entry in default) if bound else None
    if default is None:
        return _WHERE_NONE.get(name)
    if type(default) is not int or default <= 0:
        return None
    if name.endswith(("_token_id", "_token_index")):
        # One for each name, so that special tokens stay apart.
        return default if default < VOCABULARY else 4 + sum(map(ord, name)) % (VOCABULARY - 4)
    return next(
        (min(default, size) for pattern, size in _SMALL if re.fullmatch(pattern, name)), None
    )
