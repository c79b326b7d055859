"""`normscope compare`, `tune` and `demo` train grids of runs and write their report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from .console import note, stderr, tell
from .display import GridDisplay, end_of, print_summary
from .options import described_by
from .shared import (
    COMPARE,
    ConfigFile,
    Imports,
    SettingOptions,
    StopWhen,
    Trust,
    complete_placements,
    listed,
    placement_names,
    read_config,
    resumable,
)

if TYPE_CHECKING:
    from ..compare.asked import AskedComparison
    from ..compare.pool import PoolOptions


_LEAST_TRIALS = 5
_TrialsOption = Annotated[int | None, typer.Option(min=1)]
_TrialsTogether = Annotated[int, typer.Option(min=1)]


@described_by(COMPARE)
@resumable()
def tune(
    config: ConfigFile = None,
    *,
    trials: _TrialsOption,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="[default: the configuration's model.placement]", autocompletion=complete_placements
        ),
    ] = None,
    warmup_updates: int | None = None,
    warmups: Annotated[str | None, typer.Option(metavar="UPDATES,…")] = None,
    peak_lr: Annotated[str | None, typer.Option(metavar="LOW:HIGH")] = None,
    optimizer: Annotated[str | None, typer.Option(help="[default: the configuration's optimizer.name]")] = None,
    out: Path | None = None,
    settings: SettingOptions = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    processes: int,
    stop_when: StopWhen,
    title: str | None = None,
    trials_together: _TrialsTogether,
) -> None:
    """Find the best peak learning rate of one configuration by a stated number of trials.

    Each trial is a run. The first five are both ends of the range and three rates between them; the others go where
    the losses so far say. After an interruption, run the same command to resume: no trial is lost or made twice.

    For example:

    \b
      normscope tune my.toml --placement post-ln --warmup-updates 200 --trials 8

    warmup_updates: Length of the warm-up in updates. By default the configuration's schedule.warmup_updates. warmups:
    Find the best of these warm-ups as well, in updates. peak_lr: The peak rates that are searched. By default a factor
    of 10 either side of the configuration's. out: Folder for the trials and their report. By default runs/tune-NAME.
    title: Title of the report. By default Trials of peak rates.
    """
    given = read_config(config, settings, imports)
    named = None if placement is None else placement_names([placement])[0]
    refuse_few(trials)
    rates = rate_range(peak_lr)
    from ..compare.asked import numbers
    from ..compare.compare import corpus_of, run_tuning
    from ..compare.search import OpenArm, asked_tuning
    from ..compare.tune import TuningTask
    from ..tasks.registry import config_of

    base = config_of(given.table, source=given.source)
    if warmups is not None and warmup_updates is not None:
        raise UserError("--warmups searches among several, and --warmup-updates gives one; leave one of them out")
    several = None if warmups is None else numbers(warmups, int, "warmups")
    one = base.schedule.warmup_updates if warmup_updates is None else warmup_updates
    arm = OpenArm(named or base.model.placement, tuple(several or [one]), optimizer or str(base.optimizer.name))
    tuning = asked_tuning("peak_lr", rates, trials, trials_together, centre=base.optimizer.peak_lr)
    assert tuning is not None
    folder = out or Path("runs") / f"tune-{config.stem if config else 'default'}"
    with GridDisplay(stderr()) as display:
        tuned, done = run_tuning(
            TuningTask(base=base, arms=[arm], tuning=tuning, corpus=corpus_of(base, None)),
            folder,
            _pool_options(processes, stop_when, display),
            title=title,
        )
    if not tuned.whole:
        end_of(done)
    print_summary(done.page, done.file)


def refuse_few(trials: int | None) -> None:
    """Raise UserError for fewer trials than a search begins with."""
    if trials is not None and trials < _LEAST_TRIALS:
        raise UserError(
            f"--trials must be at least {_LEAST_TRIALS}, got {trials}: both ends of the range and three rates between "
            "them come first"
        )


def rate_range(text: str | None) -> tuple[float, float] | None:
    """The ends LOW:HIGH; None of None. Raises UserError."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(":"))
    except ValueError as error:
        raise UserError(
            f"--peak-lr {text}: where rates are searched, it is a range LOW:HIGH such as 3e-4:3e-2"
        ) from error
    return low, high


@described_by(COMPARE)
@resumable()
def compare(
    config: ConfigFile = None,
    *,
    placements: Annotated[
        list[str],
        typer.Option(metavar="NAME,…", autocompletion=complete_placements),
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
    settings: SettingOptions = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    evaluate: str | None,
    processes: int,
    stop_when: StopWhen,
    dry_run: bool = False,
    title: str | None,
    tune: Annotated[str | None, typer.Option(metavar="peak_lr"), "The ends are written LOW:HIGH."],
    trials: _TrialsOption,
    trials_together: _TrialsTogether,
    trust: Trust = False,
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
    given = read_config(config, settings, imports, trust=trust or not dry_run)
    names = placement_names(placements) if placements else None
    refuse_few(trials)
    from ..compare.asked import ComparisonOptions, asked_comparison, numbers
    from ..tasks.registry import config_of
    from ..train import StopRule

    rates = None if peak_lr is None else rate_range(peak_lr) if tune else numbers(peak_lr, float, "peak-lr")
    options = ComparisonOptions(
        placements=names,
        warmups_updates=None if warmup_updates is None else numbers(warmup_updates, int, "warmup-updates"),
        arms=_listed(arms, _placement_and_warmup, "arms"),
        peak_lrs=rates,
        optimizers=_listed(optimizers, str, "optimizers"),
        seeds=seeds,
        tune=tune,
        trials=trials,
        trials_together=trials_together,
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


@described_by(COMPARE)
@resumable()
def demo(
    *,
    out: Path = Path("demo"),
    processes: int,
    stop_when: StopWhen,
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
    return None if text is None else listed(text, kind, option)


def _placement_and_warmup(text: str) -> tuple[str, int]:
    placement, sign, updates = text.partition(":")
    names = placement_names([placement])
    if not sign or len(names) != 1 or names == ["all"]:
        raise ValueError(f"{text!r} is not PLACEMENT:WARMUP, such as post-ln:4000")
    return names[0], int(updates)
