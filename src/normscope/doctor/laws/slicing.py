"""A few sequences of a batch, and a few tokens of each: what a trial of the laws runs on."""

# B = sequences, T = tokens

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ..trace.forward import Inputs

MOST_SEQUENCES, MOST_TOKENS = 2, 64


def slices(model: nn.Module, inputs: Inputs) -> Iterator[Inputs]:
    """The smallest slice of a batch first, and the whole of it last; alone where it is small, where
    a function runs the model, or where it is not known which dimension counts sequences.
    """
    if not callable(inputs) and not _counts_sequences_second(model):
        given = dict(inputs) if isinstance(inputs, Mapping) else inputs
        sequences = _sequences(given)
        tokens = _tokens(given)
        if sequences and tokens > MOST_TOKENS:
            yield _cut(given, sequences, tokens)
        if sequences > MOST_SEQUENCES:
            yield _cut(given, sequences, 0)
    yield inputs


def _counts_sequences_second(model: nn.Module) -> bool:
    """Tells whether the model has torch's own attention without the setting that sequences come
    first.
    """
    attentions = [one for one in model.modules() if isinstance(one, nn.MultiheadAttention)]
    return any(not one.batch_first for one in attentions)


def _sequences(given: Any) -> int:
    """Returns the first size that all tensors of a batch have in common; 0 where they have none."""
    sizes = {leaf.shape[0] for leaf in _tensors(given)}
    return sizes.pop() if len(sizes) == 1 else 0


def _tokens(given: Any) -> int:
    """Returns the second size of the indices of tokens; 0 without any, or where they differ in
    it.
    """
    sizes = {
        leaf.shape[1] for leaf in _tensors(given) if leaf.dtype == torch.long and leaf.ndim == 2
    }
    return sizes.pop() if len(sizes) == 1 else 0


def _tensors(given: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.ndim]


def _cut(given: Any, sequences: int, tokens: int) -> Any:
    """Returns the first sequences, and the first tokens of every dimension that counts `tokens`;
    all of them where that is 0.
    """

    def cut(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.ndim or leaf.shape[0] != sequences:
            return leaf
        leaf = leaf[:MOST_SEQUENCES]
        for dimension in range(1, leaf.ndim):
            if tokens and leaf.shape[dimension] == tokens:
                leaf = leaf.narrow(dimension, 0, MOST_TOKENS)
        return leaf

    return tree_map(cut, given)
