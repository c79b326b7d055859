"""The report of runs that are there, whenever it is asked for: of comparisons, of single runs, of several of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from ..files import disk_errors
from ..report.comparison.contents import Comparison
from ..runs.config import load_run_config
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_from_scratch
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from .grid import Cell
from .manifest import Manifest, about, cell_of, former_manifest, named_cells, refuse_unlike
from .reading.page import compare


def report(folders: Sequence[Path], out: Path, *, title: str | None = None) -> tuple[Comparison, Path]:
    """Write the page of all runs in the folders into `out`, as far as they have come; returns it and its file.

    A comparison's folder says itself what is needed of its corpus; otherwise the corpus of the run is opened. Raises
    UserError where a folder holds no runs, or where runs cannot stand in one comparison.
    """
    found = [opened(folder) for folder in folders]
    cells, manifest = found[0]
    for folder, (others, of_others) in zip(folders[1:], found[1:], strict=True):
        refuse_unlike(others, cells, manifest, of_others.corpus.fingerprint, folders[0])
        for other in others:
            if twice := [cell for cell in cells if cell.name == other.name]:
                raise UserError(
                    f"{folder}: {other.name} is also in {twice[0].folder.path}; a report holds each run once"
                )
        cells = [*cells, *others]
        manifest = replace(
            manifest,
            commands=tuple(dict.fromkeys([*manifest.commands, *of_others.commands])),
            failed={**manifest.failed, **of_others.failed},
        )
    with disk_errors(f"writing the report into {out}"):
        return compare(cells, replace(manifest, title=title or manifest.title), out)


def opened(folder: Path) -> tuple[list[Cell], Manifest]:
    """The runs of a folder, which is that of a comparison or a run, and what it says of them. Raises UserError."""
    run = RunFolder(folder)
    if run.is_run:
        config = load_run_config(run)
        return [cell_of(run, config)], about(config, _corpus(config))
    manifest = former_manifest(folder, _corpus)
    cells = named_cells(folder, manifest.cells) if manifest is not None else []
    if manifest is None or not cells:
        raise UserError(f"{folder} holds no comparison and is no run; give the --out of a comparison, or a run folder")
    return cells, manifest


def _corpus(config: RunConfig) -> AnyCorpus:
    corpus: AnyCorpus = task_from_scratch(config, f"task {config.task} has no comparison").open(config)
    return corpus
