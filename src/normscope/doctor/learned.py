"""The answer of a trial by training: whether a model learns a small task that models like it learn.

Losses are mean cross-entropies in nats per target, of sequences that no update has seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from .measured import INNER, ModelMeasurements
from .record import Stack
from .trace.forward import Inputs

LEARNED = 0.1
"""The share of the loss of guessing below which a task is learned."""
NOT_LEARNED = 0.3
"""The share from which it is not."""

LearningVerdict = Literal["learns", "does not", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """The loss of one training at what can be known."""

    updates: tuple[int, ...]
    nats: tuple[float | None, ...]
    """Means of the batches since the update before; None where one is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A trial by training."""

    task: str
    """The task in words, such as "copying tokens from 12 places earlier"."""
    verdict: LearningVerdict
    updates: int
    """The updates of the training that is told of."""
    rate: float
    """Its peak rate."""
    chance_nats: float
    """The loss of guessing among the classes of the task."""
    nats: float | None
    """The loss after these updates, in evaluation mode; None where it is not finite."""
    training_nats: float | None
    """The same in training mode, dropout included."""
    unknowable_nats: float | None = None
    """The loss at targets that nothing tells beforehand; None of a task without any."""
    references: tuple[float, ...] = ()
    """Losses of our own model of the same size after as many updates at the same rate, a seed each;
    empty where none was trained."""
    reference: str = ""
    """That model in words."""
    curve: LearningCurve = LearningCurve(updates=(), nats=())
    reference_curve: LearningCurve = LearningCurve(updates=(), nats=())
    loss_is_users: bool = False
    """True where the user's loss was trained with; else a cross-entropy of ours was."""
    failed_rates: tuple[float, ...] = ()
    """Peak rates at which it did not learn, before the one that is told of."""
    wanted_rate: float | None = field(default=None, metadata=INNER)
    """The peak rate that the user trains with."""
    reference_rate: float | None = field(default=None, metadata=INNER)
    """The peak rate of the references; None without any."""
    reason: str = ""
    """The reason why it is undecided, as a clause; else ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model that is to learn, and what is known of it."""

    model: nn.Module
    inputs: Inputs
    loss: Callable[..., Tensor] | None
    optimizer: torch.optim.Optimizer | str
    rate: float | None
    """The user's peak rate; None for an optimiser's own, or where there is none."""
    stacks: tuple[Stack, ...]
    seen: ModelMeasurements
    is_causal: bool
    """True where every attention hides later tokens."""
    watch: Callable[[str, int, int], None]


LearningTrial = Callable[[Learner], Learned]
"""Trains a copy. Raises `laws.trial.Untried`, with the reason, where that cannot be done."""

NOT_ASKED = "it takes --learn (learn=True), which trains a copy for half a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningAnswer:
    """The result of the trial, or the reason why there was none."""

    learned: Learned | None = None
    reason: str = NOT_ASKED
    """A clause; "" where there was one."""


NOT_TRIED = LearningAnswer()
