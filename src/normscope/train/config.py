"""The settings of a training, and the rule by which a run stops early once its outcome is
decided.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import UserError, option
from ..optim import parse_duration
from ..settings.tables import check_choices
from .metrics import Event
from .run_folder import RunFolder
from .together.life_signs import SILENT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The settings of a training. A duration is in updates (600 or "600 updates") or epochs ("8
    epochs").
    """

    duration: int | str = "10 epochs"
    accumulation: int = 1
    """Batches per update; the loss is the mean over all their target tokens."""
    clip_norm: float = math.inf
    """Largest norm of an update's gradient; inf for no clipping."""
    clip_update_rms: float = math.inf
    """Largest root mean square of a parameter's step, as a multiple of its rate; inf for no
    clipping.
    """
    validate_every: int | str = "1 epochs"
    checkpoint_every: int | str = "1 epochs"
    keep_checkpoints: int = 2
    """The last ones; the best by validation is kept beside them."""
    monitor_every: int = 0
    """Updates from one measurement over depth to the next, written beside the losses; 0 for
    none.
    """
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 …"""
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    """auto: bf16 autocast on CUDA, fp32 elsewhere. tf32: float32 with factors rounded in products,
    on CUDA alone.
    """
    deterministic: bool = False
    """True for kernels with fixed bits alone on CUDA: the same seed gives the same bits. On a CPU
    it always does.
    """
    threads: int | Literal["auto"] = "auto"
    """CPU threads; auto for one per core, and no more than OMP_NUM_THREADS says. The same number
    gives the same bits, another number does not.
    """
    input_workers: int | Literal["auto"] = "auto"
    """Processes that prepare the batches of the next updates; 0 for none, auto for 2 on CUDA and
    none on a CPU, whose cores the training has use for. Any number gives the same bits."""
    compile: bool = False
    """torch.compile; slower than eager on the CPUs we measured."""
    parallel: Literal["none", "replicas", "shards"] = "none"
    """The part of the model that each process started by torchrun holds: replicas (each all of it)
    or shards (each a part of every weight, for models larger than one device). One process holds
    all of it whatever stands here. Losses agree within rounding.
    """
    silent_seconds: float = SILENT_SECONDS
    """One of several processes that gives no sign of life for so long counts as halted, and ends
    the others; it gives one every second. Behind it torchrun may take 30 seconds of its own.
    """
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """The reaction to a loss or gradient that is not finite: stop before the optimiser moves, or
    skip that update. A weight or a validation loss that is not finite always stops the run: every
    further update would be skipped.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("duration", "validate_every", "checkpoint_every"):
            parse_duration(getattr(self, name))
        for name in ("accumulation", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.monitor_every < 0:
            raise ValueError(
                "monitor_every is a number of updates, or 0 for no measurements; got "
                f"{self.monitor_every}"
            )
        if not self.clip_norm > 0:
            raise ValueError(
                f"clip_norm must be positive (inf for no clipping), got {self.clip_norm}"
            )
        if not self.clip_update_rms > 0:
            raise ValueError(
                "clip_update_rms must be positive (inf for no clipping), got "
                f"{self.clip_update_rms}"
            )
        if self.input_workers != "auto" and self.input_workers < 0:
            raise ValueError(
                f"input_workers is a number of processes, 0 or auto; got {self.input_workers}"
            )
        if not _SHORTEST_SILENCE <= self.silent_seconds < math.inf:
            raise ValueError(
                f"silent_seconds must be {_SHORTEST_SILENCE} or more, and finite: a process gives "
                f"a sign of life every second; got {self.silent_seconds}"
            )
        if self.threads != "auto" and self.threads < 1:
            raise ValueError(f"threads must be at least 1, or auto, got {self.threads}")


_SHORTEST_SILENCE = 3
"""A sign of life may come late on a machine that is busy."""
DECIDED = "decided"
"""The rule's name, and that of the event that ends a run by it."""
_VALIDATIONS = 3


@dataclass(frozen=True, slots=True)
class StopRule:
    """A run is decided once it is at chance at so many validations in a row after the peak of its
    schedule.

    At chance: the validation loss is not below the unigram baseline, that of a model that ignores
    its input. A run that stops at a value that is not finite needs no rule.
    """

    validations: int = _VALIDATIONS

    def __post_init__(self) -> None:
        if self.validations < 1:
            raise UserError(
                f"{option('stop_when')} takes at least one validation, got {self.validations}"
            )

    @classmethod
    def of(cls, text: str | None) -> "StopRule | None":
        """Returns the rule that "decided" or "decided:5" asks for; None of None. Raises
        UserError.
        """
        if text is None:
            return None
        name, sign, number = text.partition(":")
        if name != DECIDED or (sign and not number.isdecimal()):
            raise UserError(
                f"{option('stop_when')} takes decided, or decided:N for N validations in a row "
                f"instead of {_VALIDATIONS}; got {text!r}"
            )
        return cls(int(number)) if sign else cls()

    def __str__(self) -> str:
        return f"{DECIDED}:{self.validations}"

    def has_stopped(self, folder: RunFolder) -> bool:
        """Tells whether a run was ended by this rule, or by one that asks for more."""
        last = folder.ending()
        if last is None or last["event"] != DECIDED:
            return False
        return int(last.get("validations", 0)) >= self.validations


class Stopping:
    """Counts the validations of one run at which it was at chance."""

    def __init__(self, rule: StopRule, *, chance_nats: float, peak_update: int) -> None:
        """chance_nats: loss of the unigram baseline per target token. peak_update: the last of the
        warm-up.
        """
        self.rule = rule
        self.chance_nats = chance_nats
        self.peak_update = peak_update
        self.in_a_row = 0

    def restore(self, events: Iterable[Event], update: int) -> None:
        """Count those that a run has behind it that goes on after `update`."""
        self.in_a_row = 0
        for event in events:
            is_validation = event["event"] == "validation" and "nll_nats" in event
            if is_validation and event["update"] <= update:
                self.take(event["update"], event["nll_nats"])

    def take(self, update: int, nll_nats: float) -> None:
        """A validation."""
        if update > self.peak_update:
            self.in_a_row = self.in_a_row + 1 if nll_nats >= self.chance_nats else 0

    @property
    def is_decided(self) -> bool:
        return self.in_a_row >= self.rule.validations

    @property
    def reason(self) -> str:
        """The reason for the stop, where it is decided."""
        several = f"{self.in_a_row} validations in a row" if self.in_a_row > 1 else "a validation"
        return (
            f"not below the loss of a guess without the input, {self.chance_nats:.3f}, at "
            f"{several} after the peak of the schedule"
        )
