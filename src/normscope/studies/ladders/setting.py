"""What trainings on a ladder have in common beside their models: one decay, one validation, one checkpoint."""

from pathlib import Path
from typing import Any

from ...data.parallel.opening import TOY
from ...errors import UserError
from ...optim import ScheduleConfig
from ...train import TrainConfig


def short_training(*, updates: int, warmup_updates: int, device: str) -> dict[str, Any]:
    """Sections of a run's configuration: a straight line to 0 from the end of the warm-up, also where there is none.

    warmup_updates: of the runs with warm-up; the schedule itself has none yet.
    """
    return {
        "schedule": ScheduleConfig(decay="linear", decay_from_updates=warmup_updates),
        "train": TrainConfig(
            duration=updates,
            validate_every=updates,
            checkpoint_every=updates,
            keep_checkpoints=1,
            device=device,
            threads=1,
        ),
    }


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which setting names it."""
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), and give its folder "
            f"with --set {setting}=FOLDER (or {setting}={TOY} for the embedded language)"
        )
