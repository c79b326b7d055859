"""What every model's configuration is checked for."""

from typing import Any

from ..placement import StackShape, named
from ..settings.tables import check_choice, check_choices
from .attention import with_heads
from .attention.scores import rotated_features
from .initialisation import SCHEMES
from .stack import stack_config

MOST_BLOCKS = 1000
"""As many as DeepNet has (Wang et al. 2022). Reading a formula for so many takes ten seconds."""


def check_sizes(config: Any, *counts: str) -> None:
    """Raise ValueError where `config` names what there is not, or sizes that do not go together.

    counts: fields that must be at least 1, beside those that every model has. A placement that is written in another
    way, such as Pre-LN, gets its registered name, so that two configurations of one model are equal.
    """
    check_choices(config)
    object.__setattr__(config, "placement", named(config.placement).name)
    for name in ("width", "ffn_width", "heads", *counts):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
        if "blocks" in name and getattr(config, name) > MOST_BLOCKS:
            raise ValueError(f"{name} must be at most {MOST_BLOCKS:,}, got {getattr(config, name):,}")
    shares_width = config.attention.head_width == "as-width"
    if config.width % 2 or (shares_width and config.width % config.heads):
        raise ValueError(f"width={config.width} must be even and a multiple of heads={config.heads}")
    shape = with_heads(StackShape(kind="encoder", width=config.width, heads=config.heads), config.attention)
    if config.position_encoding == "rotary":
        rotated_features(shape.width_of_head, config.attention.rotary_share)
    stack_config(config)
    check_choice("initialisation", config.initialisation, ("as-placement", *SCHEMES))
    if config.initialisation == "theory" and (config.heads != 1 or config.ffn_width != config.width):
        raise ValueError("initialisation = theory is stated for heads = 1 and ffn_width = width")


def least_weights(shape: StackShape) -> int:
    """Entries of a stack's largest matrices: what it has at least, known without building it."""
    return shape.blocks * 2 * shape.width * (shape.query_width + shape.key_value_width + shape.ffn_width)


def check_text_model(config: Any) -> None:
    """`check_sizes` of a model with a number of positions. Raises ValueError."""
    check_sizes(config, "blocks", "positions")
