"""What the training loop trains: batches with their loss, and what the model asks for around its updates."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from ..optim import UpdatesOf
from .config import TrainConfig
from .replicas.group import ALONE

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Share(Protocol):
    """Work on items that the processes of a training share out: `Group.share`."""

    def __call__(self, items: Sequence[_Item], compute: Callable[[_Item], _Result]) -> list[_Result]:
        """What `compute` gives for each item, in their order; plain values, for they travel."""
        ...


class Objective(Protocol):
    """What is learned: batches that are a pure function of their number, and their loss."""

    @property
    def micro_batches_per_epoch(self) -> int: ...

    def prepare(self, number: int) -> Any:
        """The batch of that number, counted from 0 over all epochs, in the machine's memory.

        Other processes may be asked for it too: it depends on the number alone. Its `to` moves it to a device.
        """
        ...

    def micro_batch(self, number: int) -> Any:
        """The same batch on the device."""
        ...

    def target_tokens(self, batch: Any) -> int: ...

    def tokens_of(self, number: int) -> int:
        """The target tokens of the micro-batch of that number, which another process works on."""
        ...

    def loss_sums(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Loss to minimise and negative log-likelihood, each summed over the batch's target tokens, in nats."""
        ...

    def validate(self, model: nn.Module, share: Share = ALONE.share) -> dict[str, float]:
        """Must hold `nll_nats`, by which the best checkpoint is chosen. share: has several processes work on it."""
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

    def after_update(self) -> dict[str, float]:
        """Called after each step that the optimiser took; returns numbers that are logged with it."""
        return {}

    def to_state(self) -> dict[str, Any]:
        """What a checkpoint has to keep beside the model, as plain values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to that state. Raises KeyError or TypeError for one that lacks something."""


def durations(objective: Objective, train: TrainConfig) -> UpdatesOf:
    """What turns a duration of this training into updates."""
    return UpdatesOf(Fraction(objective.micro_batches_per_epoch, train.accumulation))
