"""Compare: run a grid and write its report."""

from collections.abc import Callable
from pathlib import Path

from ...errors import UserError
from ...files import disk_errors
from ...report.comparison.contents import Comparison
from ...tasks.registry import task_from_scratch
from ...tasks.run_config import RunConfig
from .grid import Cell, Grid, write_configs
from .pool import CellState, at_once, run_cells
from .reading import compare


def run_comparison(
    base: RunConfig,
    grid: Grid,
    folder: Path,
    *,
    processes: int,
    evaluate: str | None,
    title: str,
    command: str,
    watch: Callable[[list[CellState[Cell]]], None],
) -> tuple[Comparison, Path, list[str]]:
    """Run what is not finished, then write the page; returns it, its file, and a line for each run that failed.

    processes: runs at a time, 0 for cores / threads of a run. evaluate: split to translate with each best checkpoint.
    Raises UserError before anything runs where the corpus, a setting or a run folder does not fit.
    """
    task = task_from_scratch(
        base,
        f"a comparison trains placements from the start, and task {base.task} starts from weights that have one; "
        "compare their pre-trainings, and fine-tune each with `normscope finetune`",
    )
    corpus = task.open(base)
    if evaluate is not None and not task.translates:
        raise UserError(f"--evaluate {evaluate}: task {base.task} has no translations to score; leave it out")
    if evaluate is not None and (evaluate == "train" or evaluate not in corpus.splits):
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(f"--evaluate {evaluate}: no such split to translate; the corpus has {allowed}")
    if processes < 0:
        raise UserError(f"--processes must be 0 or more, got {processes}")
    cells = grid.cells(base, folder)
    with disk_errors(f"writing into {folder}"):
        write_configs(cells)

    def translations(cell: Cell) -> list[list[str]]:
        """The command that translates and scores the split with the cell's best checkpoint, unless it was run."""
        if evaluate is None or cell.evaluation().get("split") == evaluate:
            return []
        file = str(cell.evaluation_file)
        return [["-m", "normscope", "evaluate", str(cell.folder.path), "--split", evaluate, "--save", file]]

    states = run_cells(cells, processes=at_once(processes, cells[0].config), evaluate=translations, watch=watch)
    failed = {state.cell: state.message for state in states if state.status == "failed"}
    with disk_errors(f"writing the report into {folder}"):
        page, file = compare(cells, corpus, folder, title=title, command=command, failed=failed)
    return page, file, [f"{cell.name}: {message} (log: {cell.log_file})" for cell, message in failed.items()]
