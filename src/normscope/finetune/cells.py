"""The cells of a fine-tuning search, settings times seeds, and the sealed file that keeps each.

A cell that is finished is read, and not trained again; one that was killed begins anew.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..adapters.fine_tuning import TrainerOutcome, TrainerRecipe
from ..data.labelled import LabelledData
from ..errors import UserError, option
from ..files import disk_errors, make_folders, write_over
from ..limits.ours import SealedJson
from ..report.words import counted, learning_rate

FOLDER = "cells"
"""The folder of cells in the folder of a search."""


@dataclass(frozen=True, slots=True, order=True)
class TuningSetting:
    """The settings that are searched over."""

    batch_sequences: int
    peak_lr: float
    epochs: int

    @property
    def name(self) -> str:
        """Safe as a file's."""
        return f"batch-{self.batch_sequences}_lr-{self.peak_lr!r}_epochs-{self.epochs}"

    @property
    def words(self) -> str:
        """For a sentence."""
        rate = learning_rate(self.peak_lr)
        return f"batch {self.batch_sequences}, rate {rate}, {counted(self.epochs, 'epoch')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The settings that a search tries, each with the first seed; the best gets all seeds.

    Raises UserError for an empty or repeated axis, and for values out of range.
    """

    batch_sizes: tuple[int, ...]
    rates: tuple[float, ...]
    epochs: tuple[int, ...]

    def __post_init__(self) -> None:
        for axis in ("batch_sizes", "rates", "epochs"):
            values = getattr(self, axis)
            if not values or len(set(values)) < len(values):
                raise UserError(f"{option(axis)} takes one or more different values, got {values}")
            if not all(math.isfinite(value) and value > 0 for value in values):
                raise UserError(f"{option(axis)} takes positive numbers, got {values}")

    def settings(self) -> Iterator[TuningSetting]:
        """Yields every combination."""
        for batch, rate, epochs in itertools.product(self.batch_sizes, self.rates, self.epochs):
            yield TuningSetting(batch, rate, epochs)


SEARCHES: Mapping[str, SearchSpace] = {
    "paper": SearchSpace(
        batch_sizes=(16, 32), rates=(1e-5, 2e-5, 3e-5, 5e-5, 1e-4), epochs=(3, 4, 5, 6, 7, 8)
    ),
    "small": SearchSpace(batch_sizes=(16,), rates=(3e-5, 1e-4, 3e-4), epochs=(3,)),
    "none": SearchSpace(batch_sizes=(16,), rates=(3e-5,), epochs=(3,)),
}
"""paper: the ranges of Xiong et al. 2020, appendix A.3, with every number of epochs in them. small:
three rates, of which the largest suits encoders far smaller than BERT-base. none: one setting."""


def search_space(
    name: str,
    *,
    batch_sizes: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
    epochs: Sequence[int] | None = None,
) -> SearchSpace:
    """Returns the search of that name, with other values on the axes that are given.

    Raises UserError for a name that is none, and as `SearchSpace`.
    """
    if name not in SEARCHES:
        raise UserError(f"{option('search')} must be one of {', '.join(SEARCHES)}, got {name!r}")
    axes = asdict(SEARCHES[name])
    given = {"batch_sizes": batch_sizes, "rates": rates, "epochs": epochs}
    axes |= {axis: tuple(values) for axis, values in given.items() if values is not None}
    return SearchSpace(**axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningScores:
    """The outcome of a finished cell."""

    accuracy: float | None
    """The accuracy on the dev rows, after the last update; None where a number was not finite."""
    nll_nats: float | None
    """Mean cross-entropy of the dev rows."""
    predicted: Sequence[int]
    """Number of the label that each dev row was given."""
    losses: Sequence[tuple[int, float | None]]
    """An update, and the mean training loss since the one before, in nats; None where that is not
    finite."""
    processor_seconds: float | None
    """The processor's seconds; None where a device trained it."""
    made_by: Mapping[str, str]
    """Version, source and commit of NormScope, and the libraries that trained it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningCell:
    """One training of a search: a setting with a seed."""

    setting: TuningSetting
    seed: int
    recipe: TrainerRecipe
    updates: int
    file: Path
    asked: Mapping[str, Any]
    """All that its numbers hang on, as plain values."""

    @property
    def name(self) -> str:
        return f"{self.setting.name}_seed-{self.seed}"

    def scores(self) -> TuningScores | None:
        """Reads what it came to; None where it is not finished.

        Raises UserError where its file is damaged, or is of another search.
        """
        if not self.file.is_file():
            return None
        state = CELL.read(self.file)
        if state["asked"] != dict(self.asked):
            raise UserError(
                f"{self.file} is of another search ({_difference(state['asked'], self.asked)}); "
                f"choose another folder with {option('out')}"
            )
        losses = [(int(update), loss) for update, loss in state["scores"]["losses"]]
        return TuningScores(**{**state["scores"], "losses": losses})

    def write(self, scores: TuningScores) -> None:
        """Keeps what it came to, whole or not at all. Raises UserError where the disk is full."""
        with disk_errors(f"writing {self.file}"):
            make_folders(self.file.parent)
            text = CELL.text({"asked": self.asked, "scores": asdict(scores)})
            write_over(self.file, text, CELL.kind)


CELL = SealedJson(
    format_name="normscope-finetuning-cell",
    version=1,
    keys=frozenset({"asked", "scores"}),
    again="remove it and run the same command again, which repeats this run and no other",
)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns the first difference, in words."""
    key = next(key for key in here if there.get(key) != here[key])
    return f"its {key.replace('_', ' ')} is {there.get(key)!r}, and {here[key]!r} is asked for"


def tuning_cell(
    setting: TuningSetting,
    seed: int,
    file: Path,
    *,
    rows: int,
    warmup_share: float,
    device: str,
    asked: Mapping[str, Any],
) -> TuningCell:
    """Returns a setting with a seed; nothing is written.

    rows: to train on. asked: what all cells of the search share.
    """
    recipe = TrainerRecipe(
        batch_sequences=setting.batch_sequences,
        peak_lr=setting.peak_lr,
        epochs=setting.epochs,
        warmup_share=warmup_share,
        seed=seed,
        device=device,
    )
    return TuningCell(
        setting=setting,
        seed=seed,
        recipe=recipe,
        updates=recipe.updates(rows),
        file=file,
        asked={**asked, **asdict(setting), "warmup_share": warmup_share, "seed": seed},
    )


def tuning_cells(
    settings: Iterable[TuningSetting], seeds: Iterable[int], folder: Path, **shared: Any
) -> list[TuningCell]:
    """Returns all settings with all seeds, those of the first seed first; nothing is written.

    shared: as `tuning_cell` takes it.
    """
    pairs = itertools.product(seeds, list(settings))
    return [
        tuning_cell(setting, seed, folder / FOLDER / f"{setting.name}_seed-{seed}.json", **shared)
        for seed, setting in pairs
    ]


def scored(
    outcome: TrainerOutcome,
    data: LabelledData,
    *,
    processor_seconds: float | None,
    made_by: Mapping[str, str],
) -> TuningScores:
    """Returns the accuracy and the loss of logits on the dev rows."""
    logits_PC, labels_P = outcome.logits_PC, data.dev.labels_P
    finite = bool(np.isfinite(logits_PC).all())
    predicted_P = logits_PC.argmax(-1)
    losses = [(update, _finite(loss)) for update, loss in outcome.losses]
    return TuningScores(
        accuracy=float((predicted_P == labels_P).mean()) if finite else None,
        nll_nats=mean_nll_nats(logits_PC, labels_P) if finite else None,
        predicted=predicted_P.tolist(),
        losses=losses,
        processor_seconds=processor_seconds,
        made_by=made_by,
    )


def mean_nll_nats(logits_PC: NDArray[np.float64], labels_P: NDArray[np.int64]) -> float:
    """Returns the mean cross-entropy of labels under the softmax of logits.

    >>> mean_nll_nats(np.zeros((3, 2)), np.array([0, 1, 1]))  # ln 2
    0.6931471805599453
    """
    shifted_PC = logits_PC - logits_PC.max(-1, keepdims=True)
    log_sums_P = np.log(np.exp(shifted_PC).sum(-1))
    chosen_P = np.take_along_axis(shifted_PC, labels_P[:, None], axis=-1)[:, 0]
    return float((log_sums_P - chosen_P).mean())


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
