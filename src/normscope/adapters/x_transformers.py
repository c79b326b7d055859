"""Random inputs for models of x-transformers, which is not imported for it."""

# B = sequences, T = tokens, D = width, V = vocabulary
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ..errors import UserError


def is_model(model: nn.Module) -> bool:
    """Tells whether its class, or one that it derives from, is of x-transformers."""
    return "x_transformers" in sys.modules and any(
        base.__module__.partition(".")[0] == "x_transformers" for base in type(model).__mro__
    )


def sample(
    model: Any, *, tokens: int, sequences: int, generator: Generator
) -> tuple[tuple[Tensor, ...], Callable[[Any], Tensor] | None]:
    """Returns inputs by position, and the mean loss per token in nats where the model is trained on
    one.

    Random ids, as many as there are positions for, or random vectors for layers without an
    embedding. Raises UserError for classes other than TransformerWrapper, AutoregressiveWrapper,
    XTransformer and AttentionLayers.
    """
    x_transformers: Any = importlib.import_module("x_transformers")
    layers: Any = importlib.import_module("x_transformers.x_transformers").AttentionLayers

    def ids(wrapper: Any) -> Tensor:
        shape = sequences, min(tokens, wrapper.max_seq_len or tokens)
        device = next(wrapper.parameters()).device
        return torch.randint(1, wrapper.num_tokens, shape, generator=generator).to(device)

    if isinstance(model, x_transformers.TransformerWrapper):
        ids_BT = ids(model)
        return (ids_BT,), _next_token_loss(ids_BT) if model.attn_layers.causal else None
    if isinstance(model, x_transformers.AutoregressiveWrapper):
        return (ids(model.net),), _itself
    if isinstance(model, x_transformers.XTransformer):
        return (ids(model.encoder), ids(model.decoder.net)), _itself
    if isinstance(model, layers):
        weight = next(model.parameters())
        x_BTD = torch.randn((sequences, tokens, model.dim), generator=generator).to(weight)
        return ((x_BTD,) if not model.cross_attend else (x_BTD, x_BTD.clone())), None
    raise UserError(
        f"no sample inputs are known for {type(model).__name__}: give them as diagnose(model, "
        "inputs) in Python, or let the function return (model, inputs)"
    )


def _next_token_loss(ids_BT: Tensor) -> Callable[[Any], Tensor]:
    def loss(logits_BTV: Any) -> Tensor:
        return functional.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten())

    return loss


def _itself(output: Any) -> Tensor:
    """Wrappers that train return their loss."""
    loss: Tensor = output
    return loss
