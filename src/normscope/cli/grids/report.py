"""`normscope report` writes the report of runs that are there."""

from pathlib import Path
from typing import Annotated

import typer

from ...errors import UserError
from ...settings.files import is_run
from .ending import print_summary


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of comparisons, or of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report.  [default: the comparison's own; report/ in a run's]")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.  [default: the comparison's]")] = None,
) -> None:
    """Write the report of a comparison, a demo or a run at any time, also while it is running.

    Runs of several folders make one report where they have the same model and data.

    For example:

    \b
      normscope report runs/compare-my
    """
    from ...compare.reports import report as write_report

    if len(folders) > 1 and out is None:
        raise UserError("several folders make one report: say with --out where to write it")
    first = folders[0]
    page, file = write_report(folders, out or (first / "report" if is_run(first) else first), title=title)
    print_summary(page, file)
