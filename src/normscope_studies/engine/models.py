"""Small models that studies train on a ladder of rates: one decay, one validation, one checkpoint for all.

Two tasks at one size: a decoder that continues text, and an encoder-decoder that translates.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from normscope.data.opening import TOY, TextDataConfig
from normscope.errors import UserError
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.settings.validation import validated
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.registry import with_preset
from normscope.train import TrainConfig

LOSS = {"loss": "negative log-likelihood per target token of the whole validation split, natural logarithm"}
"""The condition of every study that reports last losses."""


def settings_of(config: object, *names: str) -> dict[str, Any]:
    """Settings by their names, for another configuration that has them too."""
    return {name: getattr(config, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderConfig:
    """Trainings without warm-up and with, of which few seeds climb a ladder of rates and more are trained at its best.

    A study's configuration derives from it, with defaults of its own. Raises ValueError where more seeds climb than are
    trained, or a warm-up does not end within the training.
    """

    warmup_updates: int = 50
    """Of the runs with warm-up; as many have none. All go to 0 in a straight line from there on."""
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Seeds that are trained at the best rate of the ladder."""
    updates: int = 200
    text: str = TOY
    """A folder made by `normscope data documents`, or `toy`."""
    sequence_length: int = 64
    batch_sequences: int = 16
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        if not 1 <= self.ladder_seeds <= self.seeds:
            raise ValueError(f"ladder_seeds must lie in [1, seeds={self.seeds}], got {self.ladder_seeds}")
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(f"warmup_updates must lie between 0 and updates={self.updates}, got {self.warmup_updates}")

    @property
    def warmups(self) -> tuple[int, ...]:
        """In updates."""
        return 0, self.warmup_updates

    @property
    def climbing(self) -> str:
        """How many seeds climb, in words."""
        return "one seed" if self.ladder_seeds == 1 else f"{self.ladder_seeds} seeds"


def language_model(
    config: LadderConfig, *, preset: str, sizes: Mapping[str, Any], optimizer: OptimizerConfig
) -> LanguageModelRunConfig:
    """A run of a preset's decoder; rate, warm-up and seed are still to be chosen.

    sizes: of `[model]`, a placement among them if it is not the preset's. Raises UserError for text that is not there.
    """
    table = {
        "task": LANGUAGE_MODEL.name,
        "data": asdict(_text(config)),
        "model": {"preset": preset, "positions": config.sequence_length, **sizes},
    }
    made = validated(LANGUAGE_MODEL.config, with_preset(table, source="the study"), source="the study")
    return replace(made, optimizer=optimizer, **_training(config))


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which setting names it."""
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), and give its folder "
            f"with --set {setting}=FOLDER (or {setting}={TOY} for the embedded language)"
        )


def _text(config: LadderConfig) -> TextDataConfig:
    refuse_missing(config.text, "text", "normscope data documents")
    return TextDataConfig(
        corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
    )


def _training(config: LadderConfig) -> dict[str, Any]:
    return {
        # One decay for both, whatever the warm-up: a straight line to 0 from the end of the warm-up.
        "schedule": ScheduleConfig(decay="linear", decay_from_updates=config.warmup_updates),
        "train": TrainConfig(
            duration=config.updates,
            validate_every=config.updates,
            checkpoint_every=config.updates,
            keep_checkpoints=1,
            device=config.device,
            threads=1,
            # Batches so small cost little, and many runs may share a machine.
            input_workers=0,
        ),
    }
