"""A search as it is asked for, and what every process of it opens: encoder and labelled rows."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..adapters.fine_tuning import fine_tuned, trained_with
from ..data.labelled import LabelledData, encoded, read_labelled
from ..errors import UserError, option
from ..model import renormalise, unit_vectors
from ..provenance import provenance
from ..runs.config import trust_run
from ..settings.files import import_file, is_run
from ..train.device import choose_device
from ..train.together.group import ALONE, Group
from .cells import TuningCell, TuningScores, TuningSetting, scored, tuning_cell, tuning_cells
from .start import StartEncoder, open_start

SEQUENCE_LENGTH = 128
"""The length in BERT's fine-tuning (google-research/bert, run_classifier.py: max_seq_length)."""
WARMUP_SHARE = 0.1
"""Likewise (warmup_proportion)."""
DROPOUT = 0.1
"""The dropout of BERT, which is fine-tuned with it in the encoder and before the last layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningConfig:
    """The settings that all cells of a search share."""

    start: Path
    """A run of a masked language model, or a folder that `normscope export` wrote."""
    which: str = "best"
    """The checkpoint of a run: best, last, or the number of an update."""
    train: Path
    dev: Path
    columns: tuple[str, ...] | None = None
    """The columns as `read_labelled` takes them."""
    sequence_length: int | None = None
    """Tokens of the longest sequence; None for 128, or as many as the encoder can read."""
    dropout: float = DROPOUT
    """The dropout in the encoder and before the last layer."""
    warmup_share: float = WARMUP_SHARE
    """The share of a cell's updates that is warm-up."""
    device: str = "auto"
    """auto, cpu or cuda."""
    imports: tuple[Path, ...] = ()
    """Python files that register placements of one's own."""
    trust: bool = False
    """True to run the Python files that the run names."""

    def __post_init__(self) -> None:
        """Checks the settings. Raises UserError for what cannot be meant."""
        if not 0 <= self.dropout < 1:
            raise UserError(f"{option('dropout')} lies in [0, 1), got {self.dropout}")
        if not 0 <= self.warmup_share < 1:
            raise UserError(f"{option('warmup_share')} lies in [0, 1), got {self.warmup_share}")
        if self.sequence_length is not None and self.sequence_length < 8:
            raise UserError(
                f"{option('sequence_length')} must be at least 8, got {self.sequence_length}"
            )
        if self.device not in ("auto", "cpu", "cuda"):
            raise UserError(
                f"{option('device')} is auto, cpu or cuda, got {self.device!r}; the environment's "
                "CUDA_VISIBLE_DEVICES says which device that is"
            )

    def anywhere(self) -> "FineTuningConfig":
        """Returns the same with paths that do not hang on the current folder."""
        return dataclasses.replace(
            self,
            start=self.start.absolute(),
            train=self.train.absolute(),
            dev=self.dev.absolute(),
            imports=tuple(file.absolute() for file in self.imports),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenedSearch:
    """A search whose files were read."""

    config: FineTuningConfig
    start: StartEncoder
    data: LabelledData
    sequence_length: int
    device: str
    """cpu or cuda."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """The settings that the numbers of every cell depend on, as plain values; first those that
        a user gives.
        """
        return {
            "sequence_length": self.sequence_length,
            "dropout": self.config.dropout,
            "weights_sha256": self.start.weights_sha256,
            "data_sha256": self.data.fingerprint,
        }

    def cell(self, setting: TuningSetting, seed: int, file: Path) -> TuningCell:
        """Returns one training of the search; nothing is written."""
        return tuning_cell(setting, seed, file, **self._shared())

    def cells(
        self, settings: Iterable[TuningSetting], seeds: Iterable[int], folder: Path
    ) -> list[TuningCell]:
        """Returns all settings with all seeds, those of the first seed first; nothing is
        written.
        """
        return tuning_cells(settings, seeds, folder, **self._shared())

    def _shared(self) -> dict[str, Any]:
        return {
            "rows": len(self.data.train),
            "warmup_share": self.config.warmup_share,
            "device": self.device,
            "asked": self.asked,
        }

    def train(
        self,
        cell: TuningCell,
        after_update: Callable[[], None] = lambda: None,
        group: Group = ALONE,
    ) -> TuningScores:
        """Trains a cell, judges it, and keeps what it came to.

        after_update: called after every update; what it raises ends the training, and nothing is
        kept. group: of the processes that train it together, of which the first keeps it.
        """
        begun = time.process_time()
        model = self.start.classifier(
            len(self.data.labels), dropout=self.config.dropout, seed=cell.seed
        )
        held = unit_vectors(model)

        def updated() -> None:
            renormalise(held)  # what the placement asks for, as in the pre-training
            after_update()

        with group.noticing():
            outcome = fine_tuned(
                model,
                self.data.train,
                self.data.dev,
                self.data.batch,
                cell.recipe,
                rank=group.rank,
                processes=group.size,
                after_update=updated,
            )
        made_by = {**provenance(), **trained_with(), "torch": torch.__version__}
        if group.size > 1:
            made_by["processes"] = str(group.size)
        (spent,) = group.total([round(time.process_time() - begun, 1)])
        found = scored(
            outcome,
            self.data,
            processor_seconds=spent if self.device == "cpu" else None,
            made_by=made_by,
        )
        group.of_first(lambda: cell.write(found))
        return found


def open_search(config: FineTuningConfig) -> OpenedSearch:
    """Reads the encoder and the labelled rows. Raises UserError where they do not go together."""
    for file in config.imports:
        import_file(file)
    if config.trust and is_run(config.start):
        trust_run(config.start)
    train, dev = (read_labelled(file, config.columns) for file in (config.train, config.dev))
    start = open_start(config.start, which=config.which, dropout=config.dropout)
    length = config.sequence_length or min(SEQUENCE_LENGTH, start.positions)
    if length > start.positions:
        raise UserError(
            f"{option('sequence_length', length)}: the encoder reads {start.positions} tokens at "
            "most; give so many or fewer"
        )
    return OpenedSearch(
        config=config,
        start=dataclasses.replace(start, encoder=start.encoder.eval()),
        data=encoded(train, dev, start.tokeniser, sequence_length=length),
        sequence_length=length,
        device=choose_device(config.device).type,
    )
