"""The runs of a fine-tuning search: settings times seeds, each in a run folder of its own."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..compare.state import BesideRuns
from ..errors import UserError
from ..runs.claiming import refuse_other_configuration
from ..runs.config import replaced, resolve
from ..tasks.pair_classification import PairRunConfig
from ..train import RunFolder


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What is searched over."""

    batch_sequences: int
    peak_lr: float
    epochs: int

    @property
    def name(self) -> str:
        """Safe as a file name."""
        return f"batch-{self.batch_sequences}_lr-{self.peak_lr!r}_epochs-{self.epochs}"

    @property
    def words(self) -> str:
        """For a sentence."""
        return f"batch {self.batch_sequences}, rate {self.peak_lr:g}, {self.epochs} epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The defaults span the ranges of Xiong et al. 2020, appendix A.2: batches of 16 or 32, rates from 1e-5 to 1e-4, 3
    to 8 epochs, 6 seeds. Raises UserError for an empty or repeated axis, and for values out of range."""

    batch_sizes: tuple[int, ...] = (16, 32)
    rates: tuple[float, ...] = (1e-5, 2e-5, 3e-5, 5e-5, 1e-4)
    epochs: tuple[int, ...] = (3, 4, 8)
    seeds: int = 6
    warmup_share: float = 0.1
    """Of a run's updates (google-research/bert, run_classifier.py: warmup_proportion)."""

    def __post_init__(self) -> None:
        for axis in ("batch_sizes", "rates", "epochs"):
            values = getattr(self, axis)
            if not values or len(set(values)) < len(values):
                raise UserError(f"{axis.replace('_', ' ')}: give one or more different values, got {values}")
            if not all(value > 0 for value in values):
                raise UserError(f"{axis.replace('_', ' ')} must be positive, got {values}")
        if self.seeds < 1:
            raise UserError(f"seeds must be at least 1, got {self.seeds}")
        if not 0 <= self.warmup_share <= 1:
            raise UserError(f"the warm-up share must lie in [0, 1], got {self.warmup_share}")

    def settings(self) -> Iterator[Setting]:
        for batch, rate, epochs in itertools.product(self.batch_sizes, self.rates, self.epochs):
            yield Setting(batch, rate, epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run's last validation says, after the last of its updates."""

    accuracy: float
    f1: float | None
    """None where there are more than two labels."""
    nll_nats: float


@dataclass(frozen=True, slots=True)
class TuningCell(BesideRuns):
    """One run of the search."""

    setting: Setting
    seed: int
    folder: RunFolder
    config: PairRunConfig

    @property
    def name(self) -> str:
        return f"{self.setting.name}_seed-{self.seed}"

    def columns(self) -> dict[str, str]:
        """What tells it from the others, by heading."""
        setting = self.setting
        values = (str(setting.batch_sequences), f"{setting.peak_lr:g}", str(setting.epochs), str(self.seed))
        return dict(zip(("batch", "rate", "epochs", "seed"), values, strict=True))

    def outcome(self) -> Outcome | None:
        """None for a run that is not finished, or that stopped because a number was not finite."""
        events = self.folder.events()
        if [event["event"] for event in events[-1:]] != ["finished"]:
            return None
        last = [event for event in events if event["event"] == "validation"][-1]
        return Outcome(accuracy=last["accuracy"], f1=last.get("f1"), nll_nats=last["nll_nats"])


def tuning_cells(
    base: PairRunConfig,
    settings: Iterable[Setting],
    seeds: Iterable[int],
    folder: Path,
    *,
    train_pairs: int,
    warmup_share: float,
) -> list[TuningCell]:
    """All settings with all seeds, below `folder`; nothing is written.

    train_pairs: of the training split, by which the warm-up's updates are counted. Raises UserError for values that a
    configuration does not allow, and where a run folder holds something else.
    """
    cells = []
    for seed, setting in itertools.product(seeds, list(settings)):
        updates = -(-train_pairs // setting.batch_sequences) * setting.epochs
        config = replaced(
            base,
            seed=seed,
            data__batch_sequences=setting.batch_sequences,
            optimizer__peak_lr=setting.peak_lr,
            schedule__warmup_updates=int(updates * warmup_share),
            train__duration=f"{setting.epochs} epochs",
        )
        run = RunFolder(folder / "runs" / f"{setting.name}_seed-{seed}")
        resolved = resolve(config, run)
        refuse_other_configuration(run, resolved)
        cells.append(TuningCell(setting, seed, run, resolved))
    return cells
