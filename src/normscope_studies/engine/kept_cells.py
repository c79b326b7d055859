"""Keeps a finished training as one small file, from which a study goes on at any machine.

A run folder holds checkpoints and everything that was logged, megabytes of it. What a study reads
of a finished training is its loss at every update and whatever was logged beside that. So `OUT` of
a study has `cells/GRID/RUN.json` for each, some thirty kilobytes, and a study that finds such a
file makes the run folder of it instead of training again. Trainings of a folder elsewhere are kept
by

    python -m normscope_studies.engine.kept_cells RUNS/translation-cells results/figure2/cells

What was kept is used whichever source trained it, as a finished run folder is; each file names that
source and its commit, and a study's data name them too. To train one again, remove its file.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from normscope.compare.grid import Cell
from normscope.errors import UserError
from normscope.files import disk_errors, make_folders, write_atomically, write_over
from normscope.limits.names import inside, refuse_leading_out
from normscope.limits.ours import SealedJson
from normscope.runs.config import refuse_changes
from normscope.settings.tables import as_table
from normscope.tasks.registry import task_of
from normscope.train import RunFolder
from normscope.train.events import Event
from normscope.train.metrics import LogMark, MetricsLog

COST = SealedJson(
    format_name="normscope-cost",
    version=1,
    keys=frozenset({"processor_seconds"}),
    again="remove it: it is then unknown",
)
"""What a training took, beside its log."""
_KEPT = SealedJson(
    format_name="normscope-kept-cell",
    version=1,
    keys=frozenset(
        {
            "configuration",
            "environment",
            "processor_seconds",
            "evaluations",
            "loss",
            "losses",
            "events",
        }
    ),
    again="remove it: its training is then made again",
)
_ENDS = ("finished", "decided", "non-finite")
"""Events that end a training for good."""
_LOSSES = ("nll_nats", "loss_nats")
"""What may be kept of every update: the first of them that is logged."""
_EVALUATIONS = "evaluation-*.json"
"""Scores of a run's best checkpoint, a file a split."""
_DIGITS = 7
"""Of a loss, as a float32 has."""
_UNKNOWN = "-"
"""For the loss of an update that has none."""
_BOUND = ("run", "vocabularies_sha256")
"""What binds an environment to the files beside it, and is worked out anew for other files."""


@dataclass(frozen=True, slots=True)
class KeptFolder:
    """The kept trainings of one study: a folder for each grid, a file for each run."""

    path: Path
    """`cells` in the study's folder."""

    def file_of(self, cell: Cell) -> Path:
        """Returns where a training is kept: by the place of its grid in the study's folder, or by
        the grid's name where several studies share it.
        """
        grid, study = cell.above.resolve(), self.path.parent.resolve()
        place = grid.relative_to(study) if grid.is_relative_to(study) else Path(grid.name)
        return self.path / place / f"{cell.folder.path.name}.json"

    def holds(self, cell: Cell) -> bool:
        """Tells whether a training is kept here and has no run folder yet."""
        return cell.folder.is_free and self.file_of(cell).is_file()

    def keep(self, cells: Iterable[Cell]) -> None:
        """Keeps the finished ones of some trainings. Raises UserError."""
        for cell in cells:
            if not self.file_of(cell).is_file():
                keep_run(cell.folder, cell.log_file.with_suffix(".json"), self.file_of(cell))

    @contextmanager
    def keeping(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Returns a context after which whatever was finished in it is kept, however it ended."""
        try:
            yield
        finally:
            self.keep(cells)

    def restore(self, cells: Iterable[Cell], *, scored: bool = False) -> list[str]:
        """Makes the run folders of kept trainings that have none; returns a sentence for each that
        is not used.

        scored: those alone whose checkpoints were scored, since there is no checkpoint to score.
        Raises UserError for a file that is damaged, or that is of another configuration.
        """
        refused = []
        fingerprints: dict[str, str] = {}
        for cell in cells:
            if not self.holds(cell):
                continue
            file = self.file_of(cell)
            kept = _KEPT.read(file)
            if scored and not kept["evaluations"]:
                continue
            data = repr((cell.config.task, cell.config.data, cell.config.imports))
            if data not in fingerprints:
                corpus: Any = task_of(cell.config).open(cell.config)
                fingerprints[data] = corpus.fingerprint
            if kept["environment"].get("data_fingerprint") != fingerprints[data]:
                refused.append(f"{file} is of other data, so that it is trained here")
                continue
            _restore(cell, kept, file)
        return refused


def keep_run(folder: RunFolder, cost_file: Path, file: Path) -> bool:
    """Keeps a training if it is finished, and tells whether it is.

    cost_file: what the training took, if that is known. Raises UserError for damaged metrics.
    """
    events = folder.events() if folder.is_run and folder.metrics_file.is_file() else []
    if not events or events[-1]["event"] not in _ENDS:
        return False
    table = folder.config_table()
    if isinstance(corpus := table.get("data", {}).get("corpus"), str):
        # Where the text lay is another place on every machine; its fingerprint says which it is.
        table["data"]["corpus"] = Path(corpus).name
    cost = COST.read(cost_file)["processor_seconds"] if cost_file.is_file() else None
    logged = {name for event in events for name in event}
    loss = next((name for name in _LOSSES if name in logged), "")
    environment = {key: value for key, value in folder.environment().items() if key not in _BOUND}
    kept = {
        "configuration": tomli_w.dumps(table),
        "environment": environment,
        "processor_seconds": cost,
        "evaluations": {file.name: file.read_text() for file in folder.path.glob(_EVALUATIONS)},
        "loss": loss,
        # In one line, where a list would have a line for each.
        "losses": " ".join(
            _in_short([one.get(loss) for one in events if one["event"] == "update"])
        ),
        "events": list(_beside_updates(events)),
    }
    with disk_errors(f"writing {file}"):
        make_folders(file.parent)
        write_atomically(file, _KEPT.text(kept))
    return True


def _in_short(losses: Sequence[float | None]) -> Iterator[str]:
    """Yields the losses as texts; the first one whole, as it stands for a run that did not stay
    finite.
    """
    for number, loss in enumerate(losses):
        if loss is None:
            yield _UNKNOWN
        else:
            yield f"{loss:.{_DIGITS}g}" if number else repr(loss)


def _beside_updates(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yields whatever was logged but the updates, each with how many updates stand before it.

    A validation has the rate summed over the updates before it, which are not kept.
    """
    before = 0
    rates: list[float] = []
    for event in events:
        if event["event"] == "update":
            before += 1
            rates.append(event.get("lr", 0.0))
            continue
        summed = {"summed_lr": math.fsum(rates)} if event["event"] == "validation" else {}
        yield {"after": before, "logged": {**summed, **event}}


def _restore(cell: Cell, kept: Mapping[str, Any], file: Path) -> None:
    """Makes the run folder of a kept training. Raises UserError for another configuration.

    The configuration is written first, as a folder that has one is a run, and the log last: a run
    that a kill leaves between the two is trained like any that has begun.
    """
    _refuse_other(cell, kept["configuration"], file)
    for path in (cell.above / "runs", cell.above / "logs", cell.folder.path):
        refuse_leading_out(path)
    with disk_errors(f"writing into {cell.folder.path}"):
        _write(cell, kept, file)


def _write(cell: Cell, kept: Mapping[str, Any], file: Path) -> None:
    make_folders(cell.folder.path)
    make_folders(cell.log_file.parent)
    cell.folder.write_config(tomli_w.dumps(as_table(cell.config)))
    cell.folder.write_environment(kept["environment"])
    if kept["processor_seconds"] is not None:
        cost = {"processor_seconds": kept["processor_seconds"]}
        write_over(cell.log_file.with_suffix(".json"), COST.text(cost), COST.kind)
    for name, text in kept["evaluations"].items():
        write_atomically(inside(cell.folder.path, name, file), text)
    log = MetricsLog(cell.folder.metrics_file, LogMark())
    try:
        for event in _logged(kept):
            log.append(event)
    finally:
        log.close()


def _refuse_other(cell: Cell, configuration: str, file: Path) -> None:
    """Raises UserError where the kept training is of other settings than the cell; where its text
    lies is no such setting.
    """
    with TemporaryDirectory() as made:
        there = RunFolder(Path(made))
        there.write_config(configuration)
        table = there.config_table()
        if "corpus" in table.get("data", {}):
            table["data"]["corpus"] = getattr(cell.config.data, "corpus", "")
        there.write_config(tomli_w.dumps(table))
        try:
            refuse_changes(there, cell.config)
        except UserError as error:
            raise UserError(
                f"{file} keeps a training of other settings; move it away, and it is trained "
                f"again: {str(error).replace(made, 'kept')}"
            ) from None


def _logged(kept: Mapping[str, Any]) -> Iterator[Event]:
    """Yields the events of a kept training in their order; updates are counted from 1, and one that
    was skipped counts.
    """
    update = 0
    following = 0
    losses = kept["losses"].split()
    for before in range(len(losses) + 1):
        if before:
            update += 1
            of_this: Event = {"event": "update", "update": update}
            if losses[before - 1] != _UNKNOWN:
                of_this[kept["loss"]] = float(losses[before - 1])
            yield of_this
        while following < len(kept["events"]) and kept["events"][following]["after"] == before:
            logged = kept["events"][following]["logged"]
            update += logged["event"] == "skipped"
            following += 1
            yield logged


def _main(words: Sequence[str]) -> None:
    """Keeps the finished trainings below a folder of grids. Raises UserError."""
    if len(words) != 2:
        raise UserError("name the folder of the grids, and that of the kept trainings")
    grids, kept = map(Path, words)
    for run in sorted(grids.glob("*/runs/*")):
        grid = run.parents[1]
        file = kept / grid.name / f"{run.name}.json"
        if not file.is_file() and keep_run(
            RunFolder(run), grid / "logs" / f"{run.name}.json", file
        ):
            print(file)


if __name__ == "__main__":
    try:
        _main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
