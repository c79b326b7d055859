"""Fine-tune a pre-trained encoder on labelled pairs: search for the best setting, then train it with all seeds."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..compare.compare import alone
from ..compare.grid import write_configs
from ..compare.page import RESULTS
from ..compare.pool import at_once, run_cells
from ..compare.state import CellState
from ..data.labelled import COLUMNS, LabelledCorpus, PairDataConfig, open_labelled
from ..errors import UserError
from ..files import clear_unfinished, disk_errors, remove_folder, sync, write_over
from ..limits.ours import refuse_other
from ..model import scheduled_numbers
from ..optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from ..runs.config import changed
from ..settings.tables import read_overrides
from ..tasks.pair_classification import PairRunConfig, Start, open_start
from ..train import RunFolder, TrainConfig
from ..train.checkpoint import existing, listed_files
from .cells import SearchSpace, TuningCell, TuningSummary, best_setting, lines, rank, summary, table, tuning_cells

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
    columns: tuple[str, str, str] = COLUMNS
    """As `read_pairs` takes them."""
    positive_label: str = ""


def pair_task(
    given: str,
    *,
    data: Path | None = None,
    dev: Path | None = None,
    columns: tuple[str, str, str] = COLUMNS,
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
        columns=columns,
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
    label, first, second = task.columns
    try:
        base = PairRunConfig(
            imports=start.config.imports,
            data=PairDataConfig(
                corpus=str(task.train_file),
                valid_file=str(task.dev_file or ""),
                positive_label=task.positive_label,
                sequence_length=length,
                label_column=label,
                first_column=first,
                second_column=second,
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


_WatchSearch = Callable[[list[CellState[TuningCell]]], None]


class RunsFailed(RuntimeError):
    """Runs ended without a result; the same command tries them again. Its text has a line for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FineTuning:
    """What a search came to."""

    task: str
    base: PairRunConfig
    searched: Sequence[TuningCell]
    """Every setting with the first seed."""
    best: Sequence[TuningCell]
    """The best setting with every seed, the first one among them."""
    summary: TuningSummary
    labels: tuple[str, ...]
    positive: str | None
    """The label that F1 is of."""

    def lines(self) -> list[str]:
        """For the user: the settings, and what the best one came to."""
        said = lines(self.summary, task=self.task, positive=self.positive, settings=len(self.searched))
        return [*table(self.searched), *said]

    def to_json(self) -> dict[str, Any]:
        """Every run's numbers, with what they were made from."""
        start = asdict(self.base.start)
        return {
            "task": self.task,
            "start": start,
            "labels": list(self.labels),
            "positive_label": self.positive,
            "searched": [_row(cell) for cell in self.searched],
            "best": [_row(cell) for cell in self.best],
            "summary": self.summary.to_json(),
        }


def finetune(
    run: Path,
    task: PairTask,
    folder: Path,
    *,
    space: SearchSpace,
    which: str = "best",
    sequence_length: int | None = None,
    settings: Iterable[str] = (),
    processes: int = 0,
    watch: _WatchSearch = lambda states: None,
) -> _FineTuning:
    """Search from the checkpoint `which` of the masked-lm run `run`, in `folder`; or go on with what is there.

    Finished runs are left as they are. Of these only the best setting's keep their
    checkpoints. Raises UserError before anything runs where run, files, settings or folder do not fit; RunsFailed;
    Interrupted after every run under way has saved.
    """
    start = open_start(run, which)
    base = base_config(start, task, sequence_length=sequence_length, settings=settings)
    corpus = open_labelled(base.data, start.tokeniser)
    return search(base, corpus, folder, name=task.name, space=space, processes=processes, watch=watch)


def search(
    base: PairRunConfig,
    corpus: LabelledCorpus,
    folder: Path,
    *,
    name: str,
    space: SearchSpace,
    processes: int = 0,
    watch: _WatchSearch = lambda states: None,
) -> _FineTuning:
    """As `finetune`, from a configuration. corpus: what `base.data` names."""
    if processes < 0:
        raise UserError(f"--processes must be 0 or more, got {processes}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another folder with --out")
    counts: dict[str, Any] = {"train_pairs": len(corpus.splits["train"]), "warmup_share": space.warmup_share}
    refuse_other(folder / RESULTS)
    searched = tuning_cells(base, space.settings(), [1], folder, **counts)
    with alone(folder, "search"):
        if len(searched) > 1:
            _train(searched, processes, watch)
            chosen = best_setting(searched)
        else:
            # Nothing to choose: all seeds side by side.
            chosen = searched[0].setting
        first = [cell for cell in searched if cell.setting == chosen]
        others = tuning_cells(base, [chosen], range(2, space.seeds + 1), folder, **counts)
        _train([*first, *others], processes, watch)
        found = _FineTuning(
            task=name,
            base=first[0].config,
            searched=searched,
            best=[*first, *others],
            summary=summary([*first, *others], majority_share=corpus.splits["valid"].majority_share),
            labels=corpus.labels,
            positive=None if corpus.positive is None else corpus.labels[corpus.positive],
        )
        with disk_errors(f"writing into {folder}"):
            write_over(folder / RESULTS, json.dumps({"normscope": __version__, **found.to_json()}, indent=1) + "\n")
    return found


def _train(cells: Sequence[TuningCell], processes: int, watch: _WatchSearch) -> None:
    """Raises RunsFailed where a run ended neither finished nor non-finite."""
    with disk_errors("writing the configurations of the runs"):
        write_configs(cells)
    tidy = _Tidy(several_settings=len({cell.setting for cell in cells}) > 1)

    def look(states: list[CellState[TuningCell]]) -> None:
        tidy(states)
        watch(states)

    states = run_cells(cells, at_once=at_once(processes, cells[0].config), watch=look)
    failed = [f"{s.cell.name}: {s.message} (log: {s.cell.log_file})" for s in states if s.status == "failed"]
    if failed:
        raise RunsFailed("\n".join(failed))


class _Tidy:
    """Removes the checkpoints of finished runs that another setting has surpassed, as soon as it has.

    A search of BERT-base would otherwise fill a disk: a checkpoint is three times the weights, and there are dozens.
    """

    def __init__(self, *, several_settings: bool) -> None:
        self.several_settings, self._finished = several_settings, 0

    def __call__(self, states: Sequence[CellState[TuningCell]]) -> None:
        finished = [state.cell for state in states if state.status == "finished"]
        if not self.several_settings or len(finished) == self._finished:
            return
        self._finished = len(finished)
        outcomes = [(outcome, cell) for cell in finished if (outcome := cell.outcome()) is not None]
        best = max(outcomes, key=lambda pair: rank(pair[0]), default=(None, None))[1]
        for cell in finished:
            if cell is not best:
                _remove_checkpoints(cell.folder)


def _remove_checkpoints(folder: RunFolder) -> None:
    # Not under the run's lock: the process that trained it may be about to end, and writes nothing any more.
    for checkpoint in existing(folder.checkpoints):
        remove_folder(checkpoint.folder, listed_files)
    if folder.checkpoints.is_dir():
        clear_unfinished(folder.checkpoints, listed_files)  # of a removal that a kill stopped
        sync(folder.checkpoints)  # or a power cut brings one back that nobody would clear away


def _row(cell: TuningCell) -> dict[str, Any]:
    outcome = cell.outcome()
    numbers = {"accuracy": None, "f1": None, "nll_nats": None} if outcome is None else asdict(outcome)
    return asdict(cell.setting) | {"seed": cell.seed, "run": str(cell.folder.path)} | numbers
