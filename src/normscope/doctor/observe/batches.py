"""What a batch says by itself: which of its tensors are tokens, and which tokens have no meaning."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..trace.forward import Inputs


def tokens_in(inputs: Inputs) -> list[Tensor]:
    """The tensors of an input that hold whole numbers for the tokens of several sequences."""
    leaves = [] if callable(inputs) else tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dtype == torch.long and leaf.ndim == 2]


_REAL = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")
"""Masks that are 1 at tokens."""
_PADDED = ("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "key_padding_mask")
"""Masks that are True at what is none, as torch's."""


def padding_in(inputs: Inputs, crosses: bool) -> dict[str, Tensor]:
    """Of a stack, by the kind of attention, where its keys are tokens; only masks that hide any."""
    if callable(inputs) or not isinstance(inputs, Mapping):
        return {}
    masks = {}
    for name in (*_REAL, *_PADDED):
        given = inputs.get(name)
        if isinstance(given, Tensor) and given.ndim == 2:
            real = given != 0 if name in _REAL else given == 0
            if not bool(real.all()) and bool(real.any()):
                masks[name] = real
    whole = [masks.get(name) for name in ("attention_mask", "src_key_padding_mask", "key_padding_mask")]
    own = next((mask for mask in whole if mask is not None), None)
    if crosses:
        asked = ("encoder_attention_mask", "memory_key_padding_mask")
        memory = next((masks[name] for name in asked if name in masks), own)
        of_own = next((masks[n] for n in ("decoder_attention_mask", "tgt_key_padding_mask") if n in masks), None)
        found = {"attention": of_own, "cross_attention": memory}
    else:
        found = {"attention": own}
    return {kind: mask for kind, mask in found.items() if mask is not None}
