"""What trainings on a ladder have in common beside their models: one decay, one validation, one checkpoint."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from normscope.data.documents.opening import TextDataConfig
from normscope.data.parallel.opening import TOY
from normscope.errors import UserError
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.registry import with_preset
from normscope.train import TrainConfig


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


def language_model(
    *,
    preset: str,
    sizes: Mapping[str, Any],
    text: str,
    sequence_length: int,
    batch_sequences: int,
    optimizer: OptimizerConfig,
    **training: Any,
) -> LanguageModelRunConfig:
    """A run of a preset's decoder; rate, warm-up and seed are still to be chosen.

    sizes: of `[model]`, a placement among them if it is not the preset's. text: a prepared corpus or `toy`. training:
    as `short_training` takes it. Raises UserError for text that is not there.
    """
    refuse_missing(text, "text", "normscope data documents")
    table = {"task": LANGUAGE_MODEL.name, "model": {"preset": preset, "positions": sequence_length, **sizes}}
    made = LANGUAGE_MODEL.config_of(with_preset(table, source="the study"), source="the study")
    return replace(
        made,
        data=TextDataConfig(corpus=text, sequence_length=sequence_length, batch_sequences=batch_sequences),
        optimizer=optimizer,
        # One decay for both, whatever the warm-up.
        **short_training(**training),
    )


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which setting names it."""
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), and give its folder "
            f"with --set {setting}=FOLDER (or {setting}={TOY} for the embedded language)"
        )
