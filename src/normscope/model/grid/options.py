"""What the modules of this room are configured by, and what they make of it."""

from dataclasses import fields
from typing import Any, Literal, TypedDict, Unpack

import torch

from ...placement import Placement, StackShape, named
from ...settings.tables import check_choice
from ..attention import AttentionConfig, with_heads
from ..initialisation import SCHEMES, initialise
from ..stack import Stack, StackConfig

PlacementName = str | type[Placement]
"""A registered name, such as pre-ln, or a class of your own."""


class StackOptions(TypedDict, total=False):
    """Keywords that every stack takes; what is left out is as `StackConfig` has it."""

    dropout: float
    """On the input and on what every sub-layer gives; 0 by default."""
    attention_dropout: float
    activation_dropout: float
    norm: str
    """as-placement (LayerNorm, unless the norm is the placement's very idea), layer-norm, rms-norm, scale-norm,
    sphere-norm, dyt or derf."""
    norm_epsilon: float | Literal["as-placement"]
    activation: str
    """relu, gelu, gelu-tanh, swiglu, geglu or geglu-tanh."""
    biases: Literal["all", "query-key-value", "none"]
    position_encoding: Literal["none", "rotary", "alibi"]
    """What attention itself tells positions by; others are added to the input by whoever gives it."""
    attention: AttentionConfig
    """Heads of keys and values, norms, caps and windows."""
    activation_checkpointing: bool
    """Compute every block again in the backward pass instead of keeping its activations."""
    initialisation: str
    """as-placement (the scheme of the placement's source), or one of `normscope.model.SCHEMES`."""


def placement_class(placement: PlacementName) -> type[Placement]:
    """Raises ValueError for an unknown name."""
    return named(placement) if isinstance(placement, str) else placement


def made_stack(placement: PlacementName, shape: StackShape, **options: Unpack[StackOptions]) -> Stack:
    """A stack with its initial weights. Raises ValueError for options that do not go together.

    No other number is drawn from torch's generator than these weights, in the order of the forward pass.
    """
    values: dict[str, Any] = {"initialisation": "as-placement", **options}
    initialisation = values.pop("initialisation")
    _check(shape, initialisation, values)
    config = StackConfig(**values)
    if config.position_encoding in ("learned", "sinusoidal"):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} is added to the input, which is yours; a stack has "
            "rotary, alibi or none"
        )
    stack_of = placement_class(placement)(with_heads(shape, config.attention))
    with torch.random.fork_rng():
        # torch's own layers draw weights as they are made, which `initialise` then draws anew.
        stack = Stack(stack_of, config, initialisation=None)
    initialise(stack, initialisation, type(stack_of))
    return stack


def _check(shape: StackShape, initialisation: str, values: dict[str, Any]) -> None:
    unknown = sorted(set(values) - {field.name for field in fields(StackConfig)})
    if unknown:
        raise TypeError(f"unknown keyword {', '.join(unknown)}; known are {', '.join(StackOptions.__annotations__)}")
    for name in ("width", "ffn_width", "heads", "blocks"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(shape, name)}")
    if shape.width % shape.heads:
        raise ValueError(f"width={shape.width} must be a multiple of heads={shape.heads}")
    check_choice("initialisation", initialisation, ("as-placement", *SCHEMES))
    if initialisation == "theory" and (shape.heads != 1 or shape.ffn_width != shape.width):
        raise ValueError("initialisation='theory' is stated for heads=1 and ffn_width=width")
