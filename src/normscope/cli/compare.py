"""`normscope compare` and `normscope demo` train grids of runs and write their report."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError
from .console import GridDisplay, say, stderr
from .names import PlacementOption, placement_names
from .shared import Imports, Settings, listed


def compare(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Configuration; every setting has its default without one."),
    ] = None,
    placements: PlacementOption = ["post-ln,pre-ln"],  # noqa: B006
    warmup_updates: Annotated[
        str, typer.Option(help="Lengths of warm-up in updates, separated by commas; 0 for none.")
    ] = "0,200",
    arms: Annotated[
        str | None,
        typer.Option(metavar="PLACEMENT:WARMUP,…", help="Train only these pairs instead of every combination."),
    ] = None,
    peak_lr: Annotated[str, typer.Option(help="Peak learning rates, separated by commas.")] = "3e-3",
    optimizers: Annotated[str, typer.Option(help="Optimisers, separated by commas, such as adam,sgd.")] = "adam",
    seeds: Annotated[int, typer.Option(help="Runs of each configuration, each with a seed of its own.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and the report.  [default: runs/compare-NAME]")
    ] = None,
    settings: Settings = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    evaluate: Annotated[
        str | None, typer.Option(help="Translate and score this split with the best checkpoint of each run.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Number of runs at a time; 0 for one on each core.")] = 0,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Comparison of norm placements",
) -> None:
    """Train every combination of the listed values and write report.html.

    Runs train in processes side by side. After an interruption, run the same command to resume: finished runs are
    skipped and unfinished ones resumed.

    For example: normscope compare my.toml --placements post-ln,pre-ln --warmup-updates 0,300 --seeds 3
    """
    from ..runs.config import load
    from ..studies.grids.compare import run_comparison
    from ..studies.grids.grid import Grid

    if arms is not None:
        pairs = listed(arms, _placement_and_warmup, "arms")
    else:
        warmups = listed(warmup_updates, int, "warmup-updates")
        pairs = list(itertools.product(_listed_placements(placements), warmups))
    grid = Grid(
        placements_and_warmups=tuple(pairs),
        peak_lrs=tuple(listed(peak_lr, float, "peak-lr")),
        optimizers=tuple(listed(optimizers, str, "optimizers")),
        seeds=seeds,
    )
    folder = out or Path("runs") / f"compare-{config.stem if config else 'default'}"
    base = load(config, settings, imports)
    _compare(run_comparison, base, grid, folder, processes=processes, evaluate=evaluate, title=title)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
    processes: Annotated[int, typer.Option(help="Number of runs at a time; 0 for one on each core.")] = 0,
) -> None:
    """Train Post-LN and Pre-LN with warm-up and without: about two minutes on two cores.

    The runs learn to translate the embedded toy language; the report is demo/report.html.
    """
    from ..studies.grids.compare import run_comparison
    from ..studies.grids.demo import DEMO_GRID, demo_config

    title = "Does it need warm-up? Post-LN and Pre-LN on the toy language"
    _compare(run_comparison, demo_config(), DEMO_GRID, out, processes=processes, evaluate=None, title=title)


def _compare(run_comparison: Callable[..., Any], base: Any, grid: Any, folder: Path, **options: Any) -> None:
    import shlex

    from ..train import Interrupted

    command = shlex.join(["normscope", *sys.argv[1:]])
    try:
        with GridDisplay(stderr) as display:
            page, file, failed = run_comparison(base, grid, folder, watch=display, command=command, **options)
    except Interrupted as stop:
        say(f"{stop}; run the same command to resume")
        raise typer.Exit(stop.exit_code) from None
    for row in page.configurations:
        typer.echo(f"{row.verdict.text:16} {row.summary}")
    typer.echo(f"report: {file}")
    for line in failed:
        say(f"failed: {line}")
    if failed:
        raise typer.Exit(1)


def _listed_placements(given: list[str]) -> list[str]:
    names = placement_names(given)
    if names == ["all"]:
        raise UserError("--placements takes names here, not `all`; `normscope placements` lists them")
    return names


def _placement_and_warmup(text: str) -> tuple[str, int]:
    placement, sign, updates = text.partition(":")
    if not sign:
        raise ValueError(f"{text!r} is not PLACEMENT:WARMUP, such as post-ln:4000")
    return placement, int(updates)
