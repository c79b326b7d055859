"""`normscope tune` finds the best peak rate of one configuration; `compare --tune` shares its options."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from .console import note, stderr
from .display import GridDisplay, end_of, print_summary
from .options import described_by
from .shared import (
    COMPARE,
    ConfigFile,
    EngineName,
    Imports,
    SettingOptions,
    StopWhen,
    complete_placements,
    placement_names,
    read_config,
    resumable,
)

_LEAST_TRIALS = 5
TrialsOption = Annotated[int | None, typer.Option(min=1)]
TrialsTogether = Annotated[int, typer.Option(min=1)]


@described_by(COMPARE)
@resumable()
def tune(
    config: ConfigFile = None,
    *,
    trials: TrialsOption,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="[default: the configuration's model.placement]", autocompletion=complete_placements
        ),
    ] = None,
    warmup_updates: Annotated[
        int | None,
        typer.Option(help="Length of the warm-up in updates.  [default: the configuration's schedule.warmup_updates]"),
    ] = None,
    warmups: Annotated[
        str | None, typer.Option(metavar="UPDATES,…", help="Find the best of these warm-ups as well, in updates.")
    ] = None,
    peak_lr: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH",
            help="The peak rates that are searched.  [default: a factor of 10 either side of the configuration's]",
        ),
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="[default: the configuration's optimizer.name]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the trials and their report.  [default: runs/tune-NAME]")
    ] = None,
    settings: SettingOptions = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    processes: int,
    engine: EngineName,
    stop_when: StopWhen,
    title: Annotated[str | None, typer.Option(help="Title of the report.  [default: Trials of peak rates]")] = None,
    trials_together: TrialsTogether,
) -> None:
    """Find the best peak learning rate of one configuration by a stated number of trials.

    Each trial is a run. The first five are both ends of the range and three rates between them; the others go where
    the losses so far say. After an interruption, run the same command to resume: no trial is lost or made twice.

    For example:

    \b
      normscope tune my.toml --placement post-ln --warmup-updates 200 --trials 8
    """
    given = read_config(config, settings, imports)
    named = None if placement is None else placement_names([placement])[0]
    refuse_few(trials)
    rates = rate_range(peak_lr)
    from ..compare.axes import numbers
    from ..compare.compare import corpus_of
    from ..compare.search import OpenArm, asked_tuning
    from ..compare.tune import TuningTask, run_tuning
    from ..engines.choosing import chosen
    from ..tasks.registry import config_of
    from ..train import StopRule

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
            processes=processes,
            engine=chosen(engine, given.engine),
            title=title,
            command=shlex.join(["normscope", *sys.argv[1:]]),
            watch=display,
            stop_when=StopRule.of(stop_when),
            say=note,
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
