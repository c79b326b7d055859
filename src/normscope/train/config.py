"""How long and how to train."""

import math
from dataclasses import dataclass
from typing import Literal

from ..optim import parse_duration
from ..settings.choices import check_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How long and how to train. A duration is in updates (600 or "600 updates") or epochs ("8 epochs")."""

    duration: int | str = "10 epochs"
    accumulation: int = 1
    """Batches per update; the loss is the mean over all their target tokens."""
    clip_norm: float = math.inf
    """Largest norm of an update's gradient; inf for no clipping."""
    clip_update_rms: float = math.inf
    """Largest root mean square of a parameter's step, as a multiple of its rate; inf for no clipping."""
    validate_every: int | str = "1 epochs"
    checkpoint_every: int | str = "1 epochs"
    keep_checkpoints: int = 2
    """The last ones; the best by validation is kept beside them."""
    monitor_every: int = 0
    """Updates from one measurement over depth to the next, written beside the losses; 0 for none."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 …"""
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    """auto: bf16 autocast on CUDA, fp32 elsewhere. tf32: float32 with factors rounded in products, on CUDA alone."""
    deterministic: bool = False
    """On CUDA, kernels with fixed bits alone: the same seed gives the same bits. On a CPU it always does."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads; auto for one per core. The same number gives the same bits, another number does not."""
    input_workers: int | Literal["auto"] = "auto"
    """Processes that prepare the batches of the next updates; 0 for none, auto for 2 on CUDA and none on a CPU, whose
    cores the training has use for. Any number gives the same bits."""
    compile: bool = False
    """torch.compile; slower than eager on the CPUs we measured."""
    reduction: Literal["ordered", "fast"] = "ordered"
    """How the gradients of an update's batches are added. ordered: in one tree over their numbers, so that any number
    of processes gives the same bits. fast: in the order that costs least."""
    shard: bool = False
    """Several processes share out the model's matrices too, with their gradients and the optimiser's state: for models
    that one device cannot hold. It needs reduction = "fast"."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """What to do when a loss or gradient is not finite: stop before the optimiser moves, or skip that update. A weight
    or a validation loss that is not finite always stops the run: every further update would be skipped."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("duration", "validate_every", "checkpoint_every"):
            parse_duration(getattr(self, name))
        for name in ("accumulation", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.monitor_every < 0:
            raise ValueError(
                f"monitor_every is a number of updates, or 0 for no measurements; got {self.monitor_every}"
            )
        if not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive (inf for no clipping), got {self.clip_norm}")
        if not self.clip_update_rms > 0:
            raise ValueError(f"clip_update_rms must be positive (inf for no clipping), got {self.clip_update_rms}")
        if self.input_workers != "auto" and self.input_workers < 0:
            raise ValueError(f"input_workers is a number of processes, 0 or auto; got {self.input_workers}")
        if self.threads != "auto" and self.threads < 1:
            raise ValueError(f"threads must be at least 1, or auto, got {self.threads}")
