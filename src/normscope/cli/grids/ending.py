"""How a command that has trained a grid ends: what its report says, what failed, and the exit code."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..console import say

if TYPE_CHECKING:
    from ...compare.compare import ComparisonResult
    from ...report.comparison.contents import Comparison


def end_of(done: "ComparisonResult") -> None:
    """Print the summary and what failed; exit where something failed, or a signal ended it."""
    # Where a closed terminal has stopped it there is nobody to tell.
    with contextlib.suppress(OSError) if done.stopped else contextlib.nullcontext():
        print_summary(done.page, done.file)
    for line in done.problems:
        say(f"failed: {line}")
    if done.stopped is not None:
        say(f"{done.stopped}; the report shows what there is. Run the same command to resume")
        raise typer.Exit(done.stopped.exit_code)
    if done.problems:
        raise typer.Exit(1)


def print_summary(page: "Comparison", file: Path) -> None:
    """Print what a report says of every configuration, and where it is."""
    for row in page.configurations:
        typer.echo(f"{row.verdict.text} – {row.summary}")
    typer.echo(f"\n{page.conclusion.found}\n{page.conclusion.paper}\n")
    for curve in page.rate_curves:
        typer.echo(f"{curve.name}: {curve.summary}")
    if page.rate_curves:
        typer.echo("")
    for arm in page.tuned:
        typer.echo(arm.summary)
    if page.tuned:
        typer.echo("")
    for row in page.configurations:
        for run in row.seeds:
            if run.status == "decided":
                typer.echo(f"stopped early: {row.name}, seed {run.seed}, after update {run.updates}: {run.message}")
    typer.echo(f"report: {file}")
