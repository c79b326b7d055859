"""What a rule of the linter is: it looks at a patient and says what it finds wrong."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..observe.parameters import NonfiniteWeight
from ..record import ModelMeasurements, Stack, Sublayer
from ..result import Advice, Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What happened when a checkpoint was put into the model."""

    missing: tuple[str, ...]
    """Parameters of the model that the checkpoint lacks."""
    unexpected: tuple[str, ...]
    """Tensors of the checkpoint that the model has no place for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """All that rules may look at."""

    model: nn.Module
    stacks: tuple[Stack, ...]
    observed: ModelMeasurements
    dtype: torch.dtype
    """What the model computes in: that of its weights, or of autocast."""
    optimizer: torch.optim.Optimizer | None = None
    """The user's own, with its parameter groups."""
    loading: Loading | None = None
    """Of a checkpoint; None for a model with initial weights."""
    wanted_placement: str | None = None
    """The placement that the model's configuration names, where it names one."""
    clip_norm: float | None = None
    """What the norm of the whole gradient is clipped to; inf for no clipping, None where that is not known."""

    nonfinite: tuple[NonfiniteWeight, ...] = ()
    """Weights that are infinite or NaN; stacks and measurements are then of a model with 0 in their place."""
    advice: Advice | None = None
    """On its learning rate; None where it was not asked for."""
    measured: bool = True
    """False where the structure alone is known: `observed` has no numbers then."""

    def sublayers(self) -> Iterator[tuple[Stack, Sublayer]]:
        """Every sub-layer with its stack."""
        return ((stack, sublayer) for stack in self.stacks for sublayer in stack.sublayers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that can be wrong."""

    id: str
    """Words with hyphens, such as missing-final-norm; what pyproject.toml silences."""
    severity: Severity
    """The worst that it reports."""
    title: str
    """What is wrong, in a few words."""
    explanation: str
    """Why it matters, in a sentence or two."""
    reference: str
    """Paper and section, or a public issue where it happened."""
    check: Callable[[Patient], Iterable[Finding]]
    needs: tuple[Callable[[Patient], str], ...] = ()
    """What it must be told to be asked at all, of those in `needs.py`."""
    of_structure: bool = False
    """Whether it can be asked of a structure without weights and measurements."""
    bears_nonfinite: bool = False
    """Whether it can be asked where weights are infinite or NaN, and measurements are of 0 in their place."""
