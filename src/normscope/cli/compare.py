"""`normscope compare` and `demo` train grids of runs and write their report, which `report` does at
any time.
"""

import math
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..errors import UserError, user_errors
from ..settings.files import is_run
from . import shared
from .console import note, stderr, tell_commands
from .display import GridDisplay, end_of, print_summary
from .help.options import described_by, taking

if TYPE_CHECKING:
    from ..compare.grid import Cell
    from ..engines.choosing import EngineSettings

_Number = TypeVar("_Number", int, float)
_AROUND = "around"
"""Before a rate of which half, it and twice it are trained."""
_DIGITS = 3
"""Significant digits of the values between a grid's ends: what is written is what is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompareOptions:
    """The options of `normscope compare`, with the words of what Python offers."""

    config: shared.ConfigFile = None
    placements: Annotated[
        list[str],
        typer.Option(metavar="NAME,…", autocompletion=shared.complete_placements),
        "With commas or the option repeated; `normscope placements` lists them.",
    ] = field(default_factory=list)
    warmup_updates: Annotated[
        str | None, "Separated by commas, or a grid such as 50:800:5, as for --peak-lr."
    ]
    arms: Annotated[str | None, typer.Option(metavar="PLACEMENT:WARMUP,…")]
    peak_lr: Annotated[
        str | None,
        "Separated by commas, or a grid START:STOP:COUNT with equal steps in the logarithm, such "
        "as 3e-4:3e-1:7, or around:1e-3 for half of a rate, it and twice it.",
    ]
    optimizers: Annotated[str | None, "Separated by commas."]
    qk_norm: Annotated[str | None, typer.Option(metavar="none,head,…")]
    seeds: int
    out: Path | None
    settings: shared.SettingOptions = field(default_factory=list)
    imports: shared.Imports = field(default_factory=list)
    evaluate: str | None
    processes: int
    engine: str
    engine_set: shared.EngineSettingOptions = field(default_factory=list)
    stop_when: shared.StopWhen
    dry_run: bool = False
    title: str | None
    trust: shared.Trust = False


@described_by(shared.COMPARE)
@taking(_CompareOptions)
@shared.resumable()
def compare(asked: _CompareOptions) -> None:
    """Train every combination of the listed values and write report.html.

    Runs train in processes side by side. After an interruption, run the same command to resume:
    finished runs are skipped and unfinished ones resumed. With other values and the same folder, a
    comparison grows.

    What is compared:
        config, settings, imports, trust

    How the runs are trained:
        dry_run: Write the configurations, print the command that trains each run, or with --engine
            slurm the script of its array, and start nothing.

    For example:

    \b
      normscope compare my.toml --placements post-ln,pre-ln \\
          --warmup-updates 0,300 --seeds 3
    """
    config = asked.config
    given = shared.read_config(
        config, asked.settings, asked.imports, trust=asked.trust or not asked.dry_run
    )
    names = shared.placement_names(asked.placements) if asked.placements else None
    from ..compare.grid import grid_of
    from ..tasks.registry import config_of

    base = config_of(given.table, source=given.source)
    warmups, peaks = asked.warmup_updates, asked.peak_lr
    grid, defaults = grid_of(
        base,
        given.places,
        placements=names,
        warmups_updates=None if warmups is None else numbers(warmups, int, "warmup-updates"),
        arms=_listed(asked.arms, _placement_and_warmup, "arms"),
        peak_lrs=None if peaks is None else numbers(peaks, float, "peak-lr"),
        optimizers=_listed(asked.optimizers, str, "optimizers"),
        seeds=asked.seeds,
        query_key_norms=_listed(asked.qk_norm, str, "qk-norm"),
    )
    folder = asked.out or Path("runs") / f"compare-{config.stem if config else 'default'}"
    engine = shared.engine_asked(asked.engine, asked.engine_set)
    cells = grid.cells(base, folder, elsewhere=asked.dry_run or engine.elsewhere)
    if asked.dry_run:
        _write_down(cells, folder, asked.stop_when, engine)
        return
    _compare(
        cells,
        folder,
        _GridOptions(
            processes=asked.processes,
            engine=engine,
            stop_when=asked.stop_when,
        ),
        evaluate=asked.evaluate,
        title=asked.title,
        defaults=defaults,
    )


def _write_down(
    cells: "list[Cell]", folder: Path, stop_when: str | None, engine: "EngineSettings"
) -> None:
    """Writes the configurations, prints the commands or the script, and starts nothing."""
    from ..compare.compare import prepare
    from ..train import StopRule

    tell_commands(prepare(cells, folder, StopRule.of(stop_when), engine))


@described_by(shared.COMPARE)
@shared.resumable()
def demo(
    *,
    out: Path = Path("demo"),
    processes: int,
    engine: str,
    engine_set: shared.EngineSettingOptions = [],  # noqa: B006
    stop_when: shared.StopWhen,
) -> None:
    """Train Post-LN and Pre-LN with warm-up and without: about two minutes on two cores.

    The runs learn to translate the embedded toy language; the report is demo/report.html.

    What is written:
        out: Folder for the runs and the report.

    For example:

    \b
      normscope demo --out demo
    """
    from ..compare.grid import DEMO_GRID, DEMO_TITLE, demo_config

    options = _GridOptions(
        processes=processes,
        engine=shared.engine_asked(engine, engine_set),
        stop_when=stop_when,
    )
    _compare(DEMO_GRID.cells(demo_config(), out), out, options, title=DEMO_TITLE)


@described_by()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")],
    out: Path | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a comparison, a demo or a run at any time, also while it is running.

    Runs of several folders make one report where they have the same model and data.

    What is written:
        folders: Folders of comparisons, or of runs.
        out: Folder for the report. By default the comparison's own; report/ in a run's.
        title: Title of the report. By default the comparison's.

    For example:

    \b
      normscope report runs/compare-my
    """
    from ..compare.compare import report as write_report

    if len(folders) > 1 and out is None:
        raise UserError("several folders make one report: say with --out where to write it")
    first = folders[0]
    page, file = write_report(
        folders, out or (first / "report" if is_run(first) else first), title=title
    )
    print_summary(page, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GridOptions:
    """The options of how the runs of any grid are trained."""

    processes: int
    engine: "EngineSettings"
    stop_when: str | None


def _compare(cells: "list[Cell]", folder: Path, given: _GridOptions, **asked: Any) -> None:
    from ..compare.compare import run_comparison
    from ..compare.pool import PoolOptions
    from ..train import StopRule

    with GridDisplay(stderr()) as display:
        options = PoolOptions(
            command=shlex.join(["normscope", *sys.argv[1:]]),
            engine=given.engine,
            processes=given.processes,
            stop_when=StopRule.of(given.stop_when),
            watch=display,
            say=note,
        )
        done = run_comparison(cells, folder, options, **asked)
    end_of(done)


def numbers(text: str, kind: Callable[[str], _Number], option: str) -> list[_Number]:
    """Returns the values of "1e-3,2e-3" and "3e-4:3e-1:7", or of both in one list. Raises UserError
    naming the option.

    "around:1e-3" stands for 5e-4, 1e-3 and 2e-3. kind: int or float. A grid's values lie at equal
    distances in the logarithm, rounded to three significant digits or, for int, to whole numbers;
    its ends are as given.
    """
    found: list[_Number] = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            found += _several(part, kind) if ":" in part else [kind(part)]
        except ValueError as error:
            raise UserError(
                f"--{option} takes comma-separated values, and grids start:stop:count with equal "
                f"steps in the logarithm such as {'50:800:5' if kind is int else '3e-4:3e-1:7'}; "
                f"got {text!r}: {error}"
            ) from error
    return found


def _several(text: str, kind: Callable[[str], _Number]) -> list[_Number]:
    """Returns the values of a grid, or of three about one. Raises ValueError that says what is
    wrong with it.
    """
    word, _, middle = text.partition(":")
    if word != _AROUND:
        return _grid(text, kind)
    value = kind(middle)
    if kind is int:
        raise ValueError(f"{text!r}: three about one are of rates alone; write the values")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{text!r} must have a finite rate above 0 behind the colon")
    return [kind(f"{factor * value:.{_DIGITS}g}") for factor in (0.5, 1.0, 2.0)]


def _grid(text: str, kind: Callable[[str], _Number]) -> list[_Number]:
    """Reads a grid of numbers. Raises ValueError that says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(
            f"{text!r} has {len(parts)} parts, and a grid has three: where it starts, where it "
            "stops, and how many"
        )
    start = kind(parts[0])
    stop = kind(parts[1])
    count = int(parts[2])
    if not (0 < start < stop and math.isfinite(stop)):
        beside = "; write 0 beside it, as in 0,50:800:5" if start == 0 else ""
        raise ValueError(
            f"{text!r} must rise from a number above 0 to a finite one: its steps are "
            f"factors{beside}"
        )
    if not 2 <= count <= 1000:
        raise ValueError(f"{text!r} asks for {count} values, and a grid has from 2 to 1000")
    factor = (stop / start) ** (1 / (count - 1))
    form = ".0f" if kind is int else f".{_DIGITS - 1}e"
    values = [kind(f"{start * factor**step:{form}}") for step in range(count)]
    values[0], values[-1] = start, stop
    if any(not low < high for low, high in pairwise(values)):
        to = "whole numbers" if kind is int else f"{_DIGITS} significant digits"
        raise ValueError(
            f"{text!r} is so fine that two of its values are the same when rounded to {to}; ask "
            "for fewer"
        )
    return values


def _listed(text: str | None, kind: Any, option: str) -> list[Any] | None:
    """Returns the values that commas separate; None of None. Raises UserError naming the option."""
    if text is None:
        return None
    with user_errors(
        ValueError,
        said=lambda error: f"--{option} takes comma-separated values, got {text!r}: {error}",
    ):
        return [kind(part.strip()) for part in text.split(",") if part.strip()]


def _placement_and_warmup(text: str) -> tuple[str, int]:
    placement, sign, updates = text.partition(":")
    names = shared.placement_names([placement])
    if not sign or len(names) != 1 or names == ["all"]:
        raise ValueError(f"{text!r} is not PLACEMENT:WARMUP, such as post-ln:4000")
    return names[0], int(updates)
