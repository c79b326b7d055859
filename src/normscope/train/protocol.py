"""What the training loop trains: batches with their loss, and what the model asks for around its updates."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

from torch import Tensor, nn

from ..optim import UpdatesOf
from .config import TrainConfig


class Objective(Protocol):
    """What is learned: batches that are a pure function of their number, and their loss."""

    @property
    def micro_batches_per_epoch(self) -> int: ...

    def micro_batch(self, number: int) -> Any:
        """The batch of that number, counted from 0 over all epochs."""
        ...

    def target_tokens(self, batch: Any) -> int: ...

    def loss_sums(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Loss to minimise and negative log-likelihood, each summed over the batch's target tokens, in nats."""
        ...

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Must hold `nll_nats`, by which the best checkpoint is chosen."""
        ...


class Monitors(Protocol):
    """What measures a model at some of its updates and leaves the training as it is."""

    def __call__(self, update: int) -> dict[str, float]:
        """Called with the update's complete gradients in place, before they are clipped; {} where nothing is due."""
        ...

    def stepped(self, update: int) -> dict[str, float]:
        """Called after the optimiser's step of the same update."""
        ...


class Hooks:
    """What a model asks for around its updates, beside the optimiser's step. This class asks for nothing."""

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        """Called once, before the first update of a run that begins. `forward` passes the first batch through."""

    def before_update(self, update: int) -> dict[str, float]:
        """Called before the gradients of each update; returns numbers that are logged with it."""
        return {}

    def after_update(self) -> None:
        """Called after each step that the optimiser took."""


def durations(objective: Objective, train: TrainConfig) -> UpdatesOf:
    """What turns a duration of this training into updates."""
    return UpdatesOf(Fraction(objective.micro_batches_per_epoch, train.accumulation))
