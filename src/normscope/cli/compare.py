"""`normscope compare` and `demo` train grids of runs and write their report, which `report` does at any time."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..settings.files import is_run
from . import shared
from .console import note, stderr, tell
from .display import GridDisplay, end_of, print_summary
from .options import described_by

if TYPE_CHECKING:
    from ..compare.asked import AskedComparison
    from ..compare.pool import PoolOptions


@described_by(shared.COMPARE)
@shared.resumable()
def compare(
    config: shared.ConfigFile = None,
    *,
    placements: Annotated[
        list[str],
        typer.Option(metavar="NAME,…", autocompletion=shared.complete_placements),
        "With commas or the option repeated; `normscope placements` lists them.",
    ] = [],  # noqa: B006
    warmup_updates: Annotated[str | None, "Separated by commas, or a grid such as 50:800:5, as for --peak-lr."],
    arms: Annotated[str | None, typer.Option(metavar="PLACEMENT:WARMUP,…")],
    peak_lr: Annotated[
        str | None,
        "Separated by commas, or a grid START:STOP:COUNT with equal steps in the logarithm, such as 3e-4:3e-1:7.",
    ],
    optimizers: Annotated[str | None, "Separated by commas."],
    seeds: int,
    out: Path | None,
    settings: shared.SettingOptions = [],  # noqa: B006
    imports: shared.Imports = [],  # noqa: B006
    evaluate: str | None,
    processes: int,
    stop_when: shared.StopWhen,
    dry_run: bool = False,
    title: str | None,
    trust: shared.Trust = False,
) -> None:
    """Train every combination of the listed values and write report.html.

    Runs train in processes side by side. After an interruption, run the same command to resume: finished runs are
    skipped and unfinished ones resumed. With other values and the same folder, a comparison grows.

    For example:

    \b
      normscope compare my.toml --placements post-ln,pre-ln \\
          --warmup-updates 0,300 --seeds 3

    dry_run: Write the configurations, print the command that trains each run, and start nothing.
    """
    given = shared.read_config(config, settings, imports, trust=trust or not dry_run)
    names = shared.placement_names(placements) if placements else None
    from ..compare.asked import ComparisonOptions, asked_comparison, numbers
    from ..tasks.registry import config_of
    from ..train import StopRule

    options = ComparisonOptions(
        placements=names,
        warmups_updates=None if warmup_updates is None else numbers(warmup_updates, int, "warmup-updates"),
        arms=_listed(arms, _placement_and_warmup, "arms"),
        peak_lrs=None if peak_lr is None else numbers(peak_lr, float, "peak-lr"),
        optimizers=_listed(optimizers, str, "optimizers"),
        seeds=seeds,
        evaluate=evaluate,
        title=title,
    )
    folder = out or Path("runs") / f"compare-{config.stem if config else 'default'}"
    asked = asked_comparison(config_of(given.table, source=given.source), given.places, options, folder)
    if dry_run:
        from ..compare.compare import prepare

        tell(*prepare(asked, StopRule.of(stop_when)))
        return
    _compare(asked, processes, stop_when)


@described_by(shared.COMPARE)
@shared.resumable()
def demo(
    *,
    out: Path = Path("demo"),
    processes: int,
    stop_when: shared.StopWhen,
) -> None:
    """Train Post-LN and Pre-LN with warm-up and without: about two minutes on two cores.

    The runs learn to translate the embedded toy language; the report is demo/report.html.

    For example:

    \b
      normscope demo --out demo

    out: Folder for the runs and the report.
    """
    from ..compare.asked import AskedComparison
    from ..compare.grid import DEMO_GRID, DEMO_TITLE, demo_config

    asked = AskedComparison(base=demo_config(), grid=DEMO_GRID, folder=out, title=DEMO_TITLE)
    _compare(asked, processes, stop_when)


@described_by()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")],
    out: Path | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a comparison, a demo or a run at any time, also while it is running.

    Runs of several folders make one report where they have the same model and data.

    For example:

    \b
      normscope report runs/compare-my

    folders: Folders of comparisons, or of runs. out: Folder for the report. By default the comparison's own; report/ in
    a run's. title: Title of the report. By default the comparison's.
    """
    from ..compare.compare import report as write_report

    if len(folders) > 1 and out is None:
        raise UserError("several folders make one report: say with --out where to write it")
    first = folders[0]
    page, file = write_report(folders, out or (first / "report" if is_run(first) else first), title=title)
    print_summary(page, file)


def _compare(asked: "AskedComparison", processes: int, stop_when: str | None) -> None:
    from ..compare.compare import run_comparison

    with GridDisplay(stderr()) as display:
        done = run_comparison(asked, _pool_options(processes, stop_when, display))
    end_of(done)


def _pool_options(processes: int, stop_when: str | None, display: GridDisplay) -> "PoolOptions":
    from ..compare.pool import PoolOptions
    from ..train import StopRule

    return PoolOptions(
        command=shlex.join(["normscope", *sys.argv[1:]]),
        processes=processes,
        stop_when=StopRule.of(stop_when),
        watch=display,
        say=note,
    )


def _listed(text: str | None, kind: Any, option: str) -> list[Any] | None:
    return None if text is None else shared.listed(text, kind, option)


def _placement_and_warmup(text: str) -> tuple[str, int]:
    placement, sign, updates = text.partition(":")
    names = shared.placement_names([placement])
    if not sign or len(names) != 1 or names == ["all"]:
        raise ValueError(f"{text!r} is not PLACEMENT:WARMUP, such as post-ln:4000")
    return names[0], int(updates)
