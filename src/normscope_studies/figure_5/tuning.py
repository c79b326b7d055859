"""Figure 5 (b), (c): checkpoints of the paper's two arms, fine-tuned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from normscope.compare.state import CellState
from normscope.finetune.cells import SearchSpace, TuningCell, TuningSetting
from normscope.finetune.finetune import FineTuning, finetune, pair_task

from ..engine.pieces import Pieces
from .config import Figure5Config
from .curves import Arm, Curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One checkpoint, fine-tuned with several seeds under one setting."""

    setting: str
    accuracies: Sequence[float]
    f1s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One task."""

    majority: float
    """Accuracy of always saying the more frequent label."""
    conditions: str
    points: Mapping[tuple[Arm, int], Point]
    """By arm and updates of its pre-training."""
    searched: Sequence[tuple[Arm, int, str, float | None]]
    """Arm, updates, setting and accuracy of every setting that was tried with the first seed; None: not finite."""


def tuned_checkpoints(config: Figure5Config, task: str, curves: Curves, pieces: Pieces) -> Tuned:
    """The last checkpoint of each arm's first seed gets the whole search, the earlier ones the setting it chose.

    Raises UserError for files that are not there, and RunsFailed.
    """
    points: dict[tuple[Arm, int], Point] = {}
    searched: list[tuple[Arm, int, str, float | None]] = []
    majority, pairs = 0.0, pair_task(task, data=Path(config.glue) / task)
    *earlier, last = config.tuned_updates
    for arm in (Arm(*arm) for arm in config.arms[:2]):
        run = curves[arm][0].folder.path
        space = SearchSpace(
            batch_sizes=config.tune_batch_sizes,
            rates=config.tune_rates,
            epochs=config.tune_epochs,
            seeds=config.tune_seeds,
        )
        for update in (last, *earlier):
            folder = pieces.folder / "fine-tuning" / f"{task}_{run.name}_update-{update}"
            found = finetune(
                run,
                pairs,
                folder,
                space=space,
                which=str(update),
                sequence_length=config.tune_sequence_length,
                watch=partial(_watch, pieces, f"{task}, {arm.title}, {update}"),
            )
            majority = found.summary.majority_share
            points[arm, update] = _point(found)
            if update == last:
                searched += [(arm, update, cell.setting.words, _accuracy(cell)) for cell in found.searched]
                space = _only(found.summary.setting, config.tune_seeds)
    ordered = {(arm, update): points[arm, update] for arm, update in sorted(points, key=lambda key: key[1])}
    return Tuned(majority=majority, conditions=_conditions(config), points=ordered, searched=searched)


def _only(setting: TuningSetting, seeds: int) -> SearchSpace:
    return SearchSpace(
        batch_sizes=(setting.batch_sequences,), rates=(setting.peak_lr,), epochs=(setting.epochs,), seeds=seeds
    )


def _point(found: FineTuning) -> Point:
    summary = found.summary
    return Point(setting=summary.setting.words, accuracies=summary.accuracies, f1s=summary.f1s)


def _accuracy(cell: TuningCell) -> float | None:
    outcome = cell.outcome()
    return None if outcome is None else outcome.accuracy


def _watch(pieces: Pieces, stage: str, states: Sequence[CellState[TuningCell]]) -> None:
    pieces.watch(stage, sum(state.over for state in states), len(states))


def _conditions(config: Figure5Config) -> str:
    batches = " or ".join(map(str, config.tune_batch_sizes))
    rates = " or ".join(f"{rate:g}" for rate in config.tune_rates)
    epochs = " or ".join(map(str, config.tune_epochs))
    return (
        f"checkpoints of the paper's two arms, first seed; {config.tune_seeds} seeds of fine-tuning; batch {batches}, "
        f"rate {rates}, {epochs} epochs, sequences of up to {config.tune_sequence_length} tokens; the setting is "
        "chosen by the first seed's accuracy on the same development set, at the last checkpoint of each arm"
    )
