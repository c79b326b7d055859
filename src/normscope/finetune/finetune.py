"""Fine-tune: search batch size, rate and epochs with one seed, run the best setting with all, and say what came out."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..compare.grid import write_configs
from ..compare.locks import alone
from ..compare.pool import at_once, run_cells
from ..compare.state import CellState
from ..data.labelled.corpus import LabelledCorpus, open_labelled
from ..engines.choosing import local
from ..engines.seam import MakeEngine
from ..errors import UserError
from ..files import clear_unfinished, disk_errors, remove_folder, sync, write_atomically
from ..tasks.pair_classification import PairRunConfig, open_start
from ..train import RunFolder
from ..train.checkpoint import existing
from .cells import SearchSpace, TuningCell, tuning_cells
from .summary import TuningSummary, best_setting, lines, rank, summary, table
from .task import PairTask, base_config

Watch = Callable[[list[CellState[TuningCell]]], None]


class RunsFailed(RuntimeError):
    """Runs ended without a result; the same command tries them again. Its text has a line for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
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
    engine: MakeEngine = local,
    watch: Watch = lambda states: None,
) -> FineTuning:
    """Search from the checkpoint `which` of the masked-lm run `run`, in `folder`; or go on with what is there.

    engine: where they run. Finished runs are left as they are. Of these only the best setting's keep their
    checkpoints. Raises UserError before anything runs where run, files, settings or folder do not fit; RunsFailed;
    Interrupted after every run under way has saved.
    """
    start = open_start(run, which)
    base = base_config(start, task, sequence_length=sequence_length, settings=settings)
    corpus = open_labelled(base.data, start.tokeniser)
    return search(base, corpus, folder, name=task.name, space=space, processes=processes, engine=engine, watch=watch)


def search(
    base: PairRunConfig,
    corpus: LabelledCorpus,
    folder: Path,
    *,
    name: str,
    space: SearchSpace,
    processes: int = 0,
    engine: MakeEngine = local,
    watch: Watch = lambda states: None,
) -> FineTuning:
    """As `finetune`, from a configuration. corpus: what `base.data` names."""
    if processes < 0:
        raise UserError(f"--processes must be 0 or more, got {processes}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another folder with --out")
    counts: dict[str, Any] = {"train_pairs": len(corpus.splits["train"]), "warmup_share": space.warmup_share}
    searched = tuning_cells(base, space.settings(), [1], folder, **counts)
    with alone(folder, "search"):
        if len(searched) > 1:
            _train(searched, engine, processes, watch)
            chosen = best_setting(searched)
        else:
            # Nothing to choose: all seeds side by side.
            chosen = searched[0].setting
        first = [cell for cell in searched if cell.setting == chosen]
        others = tuning_cells(base, [chosen], range(2, space.seeds + 1), folder, **counts)
        _train([*first, *others], engine, processes, watch)
        found = FineTuning(
            task=name,
            base=first[0].config,
            searched=searched,
            best=[*first, *others],
            summary=summary([*first, *others], majority_share=corpus.splits["valid"].majority_share),
            labels=corpus.labels,
            positive=None if corpus.positive is None else corpus.labels[corpus.positive],
        )
        with disk_errors(f"writing into {folder}"):
            write_atomically(folder / "results.json", json.dumps(found.to_json(), indent=1) + "\n")
    return found


def _train(cells: Sequence[TuningCell], engine: MakeEngine, processes: int, watch: Watch) -> None:
    """Raises RunsFailed where a run ended neither finished nor non-finite."""
    with disk_errors("writing the configurations of the runs"):
        write_configs(cells)
    tidy = _Tidy(several_settings=len({cell.setting for cell in cells}) > 1)

    def look(states: list[CellState[TuningCell]]) -> None:
        tidy(states)
        watch(states)

    states = run_cells(cells, engine=engine(at_once(processes, cells[0].config)), watch=look)
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
        remove_folder(checkpoint.folder)
    if folder.checkpoints.is_dir():
        clear_unfinished(folder.checkpoints)  # of a removal that a kill stopped
        sync(folder.checkpoints)  # or a power cut brings one back that nobody would clear away


def _row(cell: TuningCell) -> dict[str, Any]:
    outcome = cell.outcome()
    numbers = {"accuracy": None, "f1": None, "nll_nats": None} if outcome is None else asdict(outcome)
    return asdict(cell.setting) | {"seed": cell.seed, "run": str(cell.folder.path)} | numbers
