"""What is fine-tuned on, and the configuration that every run of a search has in common."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.labelled.corpus import PairDataConfig
from ..data.labelled.pairs import Columns
from ..errors import UserError
from ..model import scheduled_numbers
from ..optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from ..runs.config import changed
from ..settings.tables import read_overrides
from ..tasks.pair_classification import PairRunConfig, Start
from ..train import TrainConfig

SEQUENCE_LENGTH = 128
"""Of BERT's fine-tuning (google-research/bert, run_classifier.py: max_seq_length)."""

_POSITIVE = {"mrpc": "1", "rte": "entailment"}
"""Tasks of GLUE known by name, each with the label that F1 is of."""
_TRAIN, _DEV = "train.tsv", "dev.tsv"
_SEARCHED = {
    "seed": "--seeds",
    "data.batch_sequences": "--batch-sizes",
    "optimizer.peak_lr": "--rates",
    "train.duration": "--epochs",
    "schedule.warmup_updates": "--warmup-share",
    "data.sequence_length": "--sequence-length",
    "data.corpus": "--task",
    "data.valid_file": "--dev",
    "data.positive_label": "--positive",
    "start.run": "RUN",
    "start.update": "--checkpoint",
    "start.weights_sha256": "--checkpoint",
    "task": "--task",
}
"""Settings that come from options of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTask:
    """Files of labelled pairs, under a name."""

    name: str
    train_file: Path
    dev_file: Path | None = None
    """None to hold out every tenth pair."""
    columns: Columns = field(default_factory=Columns)
    positive_label: str = ""


def pair_task(
    given: str,
    *,
    data: Path | None = None,
    dev: Path | None = None,
    columns: Columns | None = None,
    positive_label: str = "",
) -> PairTask:
    """given: mrpc or rte, with the folder `data` of train.tsv and dev.tsv; or a file, with `dev` or without.

    Raises UserError where these do not go together, or a file is missing.
    """
    if given not in _POSITIVE:
        if data is not None:
            raise UserError(
                f"--data is the folder of {' or '.join(_POSITIVE)}; a file of your own takes --dev FILE.tsv"
            )
        train, held_out = Path(given), dev
    elif data is None:
        raise UserError(f"--task {given} needs --data FOLDER, the folder with its {_TRAIN} and {_DEV}")
    elif dev is not None:
        raise UserError(f"--dev is for a file of your own; --task {given} takes {_DEV} of {data}")
    else:
        train, held_out = data / _TRAIN, data / _DEV
    for file in (train, held_out):
        if file is not None and not file.is_file():
            known = "" if given in _POSITIVE else f"; a task is {', '.join(_POSITIVE)} or a tab-separated file"
            raise UserError(f"{file}: no such file{known}")
    return PairTask(
        name=given if given in _POSITIVE else train.stem,
        train_file=train,
        dev_file=held_out,
        columns=columns or Columns(),
        positive_label=positive_label or _POSITIVE.get(given, ""),
    )


def base_config(
    start: Start, task: PairTask, *, sequence_length: int | None = None, settings: Iterable[str] = ()
) -> PairRunConfig:
    """BERT's fine-tuning of `start`, to be given a batch size, a rate, epochs, a warm-up and a seed.

    sequence_length: None for 128, or the model's positions where these are fewer. settings: `key=value`. Raises
    UserError for a value or key that is not allowed, and for one that an option of its own sets.
    """
    length = min(SEQUENCE_LENGTH, start.config.model.positions) if sequence_length is None else sequence_length
    try:
        base = PairRunConfig(
            imports=start.config.imports,
            data=PairDataConfig(
                corpus=str(task.train_file),
                valid_file=str(task.dev_file or ""),
                positive_label=task.positive_label,
                sequence_length=length,
                label_column=task.columns.label,
                first_column=task.columns.first,
                second_column=task.columns.second,
            ),
            start=start.section(),
            model=start.config.model,
            # google-research/bert, optimization.py and run_classifier.py.
            optimizer=OptimizerConfig(name="adamw", betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01),
            schedule=ScheduleConfig(decay="linear"),
            adaptive=_as_trained(start),
            # The grid fills the cores with runs, so each has one thread.
            train=TrainConfig(clip_norm=1.0, keep_checkpoints=1, threads=1),
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    settings = list(settings)
    for key in read_overrides(settings):
        if key in _SEARCHED:
            raise UserError(f"--set {key}: a search sets it by itself; give {_SEARCHED[key]} instead")
    return changed(base, settings)


def _as_trained(start: Start) -> AdaptiveConfig:
    """Numbers that followed a schedule stay where the pre-training had brought them."""
    values: list[Any] = [float(buffer) for buffers in scheduled_numbers(start.encoder()).values() for buffer in buffers]
    if not values:
        return AdaptiveConfig()
    return dataclasses.replace(AdaptiveConfig(), start=values[0], end=values[0], over=1)
