"""What parameters of one role have of their own: a rate and a decay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from .roles import ROLES, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The parameters of one role."""

    lr_factor: float = 1.0
    """Times the rate of all; 0 keeps them where they start."""
    weight_decay: float | Literal["shared"] = "shared"
    """shared (that of the optimiser), or a number of their own."""

    def __post_init__(self) -> None:
        if not 0 <= self.lr_factor < float("inf"):
            raise ValueError(f"lr_factor must be 0 or more, and finite, got {self.lr_factor}")
        # A name that is none fails here too: it is no number.
        decay = 0.0 if self.weight_decay == "shared" else float(self.weight_decay)
        if not 0 <= decay < float("inf"):
            raise ValueError(f"weight_decay must be shared, or 0 or more and finite, got {self.weight_decay}")


_NO_DECAY = GroupConfig(weight_decay=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """By role. Nobody means a decay to pull gains, gates and biases to 0: they have none unless asked for."""

    embedding: GroupConfig = GroupConfig()
    """Tables of rows, of tokens and of learned positions; tied to the output where that is tied."""
    matrix: GroupConfig = GroupConfig()
    """Of attention and feed-forward."""
    norm: GroupConfig = _NO_DECAY
    """Gains and shifts of norms."""
    gate: GroupConfig = _NO_DECAY
    """What a placement's formula has of its own: scales, gates, mixing weights."""
    bias: GroupConfig = _NO_DECAY
    head: GroupConfig = GroupConfig()
    """Matrices between the last hidden states and a loss."""


DECAY_EVERYWHERE = GroupsConfig(norm=GroupConfig(), gate=GroupConfig(), bias=GroupConfig())
"""One group in all but name: what an optimiser does that is given all parameters of a model at once."""


def parted(
    weights: Mapping[str, nn.Parameter],
    of: Mapping[str, Role],
    groups: GroupsConfig,
    *,
    peak_lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Parameter groups as torch's optimisers take them, one for each role that occurs, with `role` and `lr_factor`.

    weights, of: parameters and their roles by name. Every parameter stands in one group.
    """
    found = []
    for role in ROLES:
        members = [weight for name, weight in weights.items() if of[name] == role]
        own: GroupConfig = getattr(groups, role)
        if members:
            decay = weight_decay if own.weight_decay == "shared" else own.weight_decay
            settings = {"lr": peak_lr * own.lr_factor, "weight_decay": decay}
            found.append({"params": members, "role": role, "lr_factor": own.lr_factor, **settings})
    return found
