"""The object that the training loop trains: batches with their loss, and the model's requests
around its updates.

The batches of the next updates may be prepared by other processes while the device computes.
"""

import ctypes
import ctypes.util
import multiprocessing
import os
import signal
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..errors import UserError, no_end, option
from ..optim import UpdatesOf
from ..signals import HANDLED
from .config import TrainConfig
from .together.group import ALONE, Group


class Objective(ABC):
    """The objective of a training: batches that are a pure function of their number, and their
    loss.
    """

    device: torch.device
    group: Group = ALONE
    """The processes that share out the batches of a validation."""

    @property
    @abstractmethod
    def micro_batches_per_epoch(self) -> int: ...

    @abstractmethod
    def prepare(self, number: int) -> Any:
        """The batch of that number, counted from 0 over all epochs, in the machine's memory.

        Other processes may be asked for it too: it depends on the number alone. Its `to` moves it
        to a device.
        """

    def micro_batch(self, number: int) -> Any:
        """The same batch on the device."""
        return self.prepare(number).to(self.device)

    @abstractmethod
    def target_tokens(self, batch: Any) -> int: ...

    @abstractmethod
    def loss_sums(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Loss to minimise and negative log-likelihood, each summed over the batch's target tokens,
        in nats.
        """

    @abstractmethod
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Must hold `nll_nats`, by which the best checkpoint is chosen."""


class Hooks:
    """The work around updates beside the optimiser's step. This class does nothing."""

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        """Runs once, before the first update of a run that begins. `forward` passes the first batch
        through.
        """

    def before_update(self, update: int) -> dict[str, float]:
        """Runs before the gradients of each update; returns numbers that are logged with it."""
        return {}

    def before_step(self, update: int) -> dict[str, float]:
        """Runs with the update's complete gradients in place, before they are clipped; returns
        measurements, which are an event of their own.
        """
        return {}

    def after_step(self, update: int) -> dict[str, float]:
        """Runs after the optimiser's step; returns further measurements of the update."""
        return {}


def durations(objective: Objective, train: TrainConfig) -> UpdatesOf:
    """Returns the conversion of this training's durations into updates."""
    return UpdatesOf(Fraction(objective.micro_batches_per_epoch, train.accumulation))


_AHEAD_PER_WORKER = 4
"""Batches that wait for each worker, so that one long batch does not hold up the next update."""
_PARENT_DIED = 1
"""PR_SET_PDEATHSIG of Linux's prctl(2)."""


class Feed:
    """Hands out micro-batches by their numbers, on the device, and knows how long the device has
    waited for them.

    With no workers each is prepared when it is asked for. With some, those of the numbers ahead are
    prepared by torch's `DataLoader`; a batch is a function of its number alone, so the bits are the
    same.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        workers: int,
        end: int,
        device: torch.device,
        every: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """end: the number at which the training is over; every so many of those up to there will be
        asked for, rising.
        """
        self.objective = objective
        self.workers = workers
        self.end = end
        self.device = device
        self.clock = clock
        self.every = every
        self.waited_seconds = 0.0
        """For all batches so far."""
        self._ahead: Iterator[Any] = iter(())
        self._numbers: Iterator[int] = iter(())

    def __call__(self, number: int) -> Any:
        """Returns the micro-batch of that number. Raises UserError where a worker was killed."""
        since = self.clock()
        batch = (
            self._prepared(number).to(self.device)
            if self.workers
            else self.objective.micro_batch(number)
        )
        self.waited_seconds += self.clock() - since
        return batch

    def close(self) -> None:
        """End the workers."""
        # The loader's own iterator ends its processes when nothing holds it any more.
        self._ahead = self._numbers = iter(())

    def _prepared(self, number: int) -> Any:
        if next(self._numbers, None) != number:
            self.close()
            self._ahead, self._numbers = (
                self._started(number),
                iter(range(number, self.end, self.every)),
            )
            next(self._numbers)
        try:
            return next(self._ahead)
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise UserError(
                "a process that prepares batches was ended from outside, as the system does where "
                "memory is short; go on from the last checkpoint with "
                f"{option('set', 'train.input_workers=0')}, which starts none"
            ) from error

    def _started(self, number: int) -> Iterator[Any]:
        with warnings.catch_warnings():
            # How many there are is the user's choice.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            loader = DataLoader(
                _Numbered(self.objective),
                sampler=range(number, self.end, self.every),
                batch_size=None,
                num_workers=self.workers,
                # Forked, they share the corpus, which other ways of starting would copy to each.
                multiprocessing_context="fork" if sys.platform == "linux" else None,
                prefetch_factor=_AHEAD_PER_WORKER,
                pin_memory=self.device.type == "cuda",
                worker_init_fn=_begin_work,
                # Without it, its seed is drawn from the generator that the dropout masks come from.
                generator=torch.Generator(),
            )
            return iter(loader)


class _Numbered(Dataset[Any]):
    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def __getitem__(self, number: int) -> Any:
        with no_end():  # or the process would be gone without a word
            return self.objective.prepare(number)


def _begin_work(_: int) -> None:
    """Prepares a worker so that it ends with the process that started it and with nothing else."""
    # A terminal and a scheduler signal all processes, and the training needs batches until its
    # update is over.
    for number in HANDLED:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        # It has inherited the lock of the run folder, which a killed training must let go of at
        # once.
        ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True).prctl(
            _PARENT_DIED, signal.SIGKILL
        )
        parent = multiprocessing.parent_process()
        if parent is None or os.getppid() != parent.pid:  # killed before it was asked for
            os.kill(os.getpid(), signal.SIGKILL)
