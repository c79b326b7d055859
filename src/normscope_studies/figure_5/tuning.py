"""Figure 5's fine-tunings: checkpoints of the paper's two arms, on the pairs of MRPC and RTE."""

# P = dev pairs, S = seeds

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from normscope.data.opening import TOY
from normscope.finetune.cells import SearchSpace
from normscope.finetune.opened import FineTuningConfig
from normscope.finetune.search import FoundSetting, SearchOptions, search
from normscope.finetune.summary import RowsMean, over_rows
from normscope.measure import Estimate

from ..engine.estimates import estimate
from ..engine.pieces import Pieces
from .config import GLUE_FILES, Figure5Config, PretrainingArm
from .pretraining import PretrainingCurve, PretrainingCurves
from .toy_pairs import write_toy_pairs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedPoint:
    """One checkpoint, fine-tuned with several seeds under one setting."""

    arm: PretrainingArm
    seed: int
    """The seed of the pre-training, from 1."""
    update: int
    setting: str
    accuracies: Sequence[float]
    """Accuracies of the fine-tunings that stayed finite."""
    right_P: NDArray[np.float64]
    """For each dev pair, the share of these fine-tunings that give it the right label."""

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))


class TriedSetting(NamedTuple):
    """A setting that the search tried."""

    arm: PretrainingArm
    setting: str
    """The setting in words."""
    accuracy: float | None
    """The share of right answers on the dev pairs; None where it did not stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedTask:
    """Holds what fine-tuning on one task came to."""

    task: str
    majority_P: NDArray[np.bool_]
    """True for each dev pair that has the most frequent label of the pairs to train on."""
    points: Sequence[TunedPoint]
    searched: Sequence[TriedSetting]

    @property
    def majority(self) -> float:
        """Accuracy of the majority class."""
        return float(self.majority_P.mean())

    def of(self, arm: PretrainingArm, update: int) -> list[TunedPoint]:
        """Returns one a pre-training, in the order of their seeds."""
        return [point for point in self.points if (point.arm, point.update) == (arm, update)]

    def accuracy(self, arm: PretrainingArm, update: int) -> Estimate:
        """Returns the accuracy over pre-trainings, each the mean of its fine-tunings; over
        fine-tunings of a single one, as in the paper.
        """
        points = self.of(arm, update)
        if len(points) == 1:
            return estimate(points[0].accuracies)
        return estimate([point.accuracy for point in points])

    def above_majority(self, arm: PretrainingArm, update: int) -> RowsMean:
        """Returns the mean accuracy less that of the majority class, pair by pair."""
        return over_rows(self._right(arm, update) - self.majority_P)

    def advantage(self, pre: PretrainingArm, post: PretrainingArm, update: int) -> Estimate:
        """Returns the accuracy of Pre-LN less that of Post-LN, over seeds taken in pairs."""
        ours, theirs = self.of(pre, update), self.of(post, update)
        if len(ours) == len(theirs) == 1:
            # A fine-tuning that did not stay finite is left out, and makes one list shorter.
            pairs = zip(ours[0].accuracies, theirs[0].accuracies, strict=False)
            return estimate([a - b for a, b in pairs])
        by_seed = {point.seed: point.accuracy for point in theirs}
        return estimate([one.accuracy - by_seed[one.seed] for one in ours if one.seed in by_seed])

    def advantage_over_rows(
        self, pre: PretrainingArm, post: PretrainingArm, update: int
    ) -> RowsMean:
        """The same, pair by pair."""
        return over_rows(self._right(pre, update) - self._right(post, update))

    def _right(self, arm: PretrainingArm, update: int) -> NDArray[np.float64]:
        rows = [point.right_P for point in self.of(arm, update)]
        mean: NDArray[np.float64] = np.mean(rows, axis=0)
        return mean


def files_of(config: Figure5Config, task: str, folder: Path) -> tuple[Path, Path]:
    """Returns the pairs to train on and those that judge; those of the toy language are written
    first.
    """
    place = Path(config.glue) / task
    if task == TOY:
        place = folder / "toy-pairs"
        write_toy_pairs(place)
    train, dev = (place / name for name in GLUE_FILES)
    return train, dev


def tuned_task(
    config: Figure5Config, task: str, curves: PretrainingCurves, pieces: Pieces
) -> TunedTask:
    """Fine-tunes what the folder lacks of one task.

    The last checkpoint of each arm's first pre-training gets the whole search; the other ones get
    the setting that it chose. Raises UserError for files that are not there.
    """
    points: list[TunedPoint] = []
    searched: list[TriedSetting] = []
    majority_P = np.zeros(0, dtype=np.bool_)
    files = files_of(config, task, pieces.folder)
    for arm in config.arms[:2]:
        space = config.space()
        for seed, run in enumerate(curves[arm], 1):
            if not run.finished:
                continue
            for update in reversed(config.tuned_updates):
                found = _searched(config, task, files, run, update, space, pieces)
                labels_P = found.opened.data.dev.labels_P
                majority_P = labels_P == found.opened.data.majority
                points.append(_point(found, arm, seed, update))
                if len(found.searched) > 1:
                    searched += _settings(found, arm)
                chosen = found.tuned.setting
                space = SearchSpace(
                    batch_sizes=(chosen.batch_sequences,),
                    rates=(chosen.peak_lr,),
                    epochs=(chosen.epochs,),
                )
    return TunedTask(task=task, majority_P=majority_P, points=points, searched=searched)


def _searched(
    config: Figure5Config,
    task: str,
    files: tuple[Path, Path],
    run: PretrainingCurve,
    update: int,
    space: SearchSpace,
    pieces: Pieces,
) -> FoundSetting:
    """Returns one checkpoint's search, in a folder of its own."""
    words = f"{task}, {run.folder.path.name}, update {update:,}"

    def watch(stage: str, done: int, total: int) -> None:
        pieces.watch(f"{stage} ({words})", done, total)

    folder = pieces.folder / "fine-tuning" / f"{task}_{run.folder.path.name}_update-{update}"
    found = search(
        FineTuningConfig(
            start=run.folder.path,
            which=str(update),
            train=files[0],
            dev=files[1],
            sequence_length=config.sequence_length,
            dropout=config.tune_dropout,
            device="cpu" if config.device == "cpu" else "auto",
        ),
        folder,
        SearchOptions(
            space=space, seeds=config.tune_seeds, processes=pieces.processes, watch=watch
        ),
    )
    cells = {cell.name: cell.scores() for cell in (*found.searched, *found.best)}
    for name, scores in cells.items():
        spent = None if scores is None else scores.processor_seconds
        pieces.processor_seconds[f"{folder}/{name}"] = spent
    return found


def _point(found: FoundSetting, arm: PretrainingArm, seed: int, update: int) -> TunedPoint:
    labels_P = found.opened.data.dev.labels_P
    right_SP = [
        np.asarray(scores.predicted) == labels_P
        for cell in found.best
        if (scores := cell.scores()) is not None and scores.accuracy is not None
    ]
    return TunedPoint(
        arm=arm,
        seed=seed,
        update=update,
        setting=found.tuned.setting.words,
        accuracies=found.tuned.accuracies,
        right_P=np.mean(right_SP, axis=0),
    )


def _settings(found: FoundSetting, arm: PretrainingArm) -> list[TriedSetting]:
    tried = []
    for cell in found.searched:
        scores = cell.scores()
        accuracy = None if scores is None else scores.accuracy
        tried.append(TriedSetting(arm, cell.setting.words, accuracy))
    return tried


def spread_over_seeds(tasks: Mapping[str, TunedTask]) -> list[float]:
    """Returns the standard deviation over fine-tuning seeds of each checkpoint whose mean accuracy
    lies above the majority class by the interval over dev pairs; always the same answer has none.
    """
    found = []
    for task in tasks.values():
        for point in task.points:
            above = over_rows(point.right_P - task.majority_P)
            if above.low > 0 and len(point.accuracies) > 1:
                found.append(float(np.std(point.accuracies, ddof=1)))
    return found
