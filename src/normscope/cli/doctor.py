"""The verb `doctor`: what is wrong with a model, from one forward and one backward pass."""

from pathlib import Path
from textwrap import wrap

import typer

from .console import LateStages, StageDisplay, columns, stderr
from .doctor_examination import ExaminedTarget, examined, explained
from .doctor_options import (
    DoctorOptions,
    known_optimizer,
    refuse_misfits,
    refuse_of_a_model,
    target_of,
)
from .doctor_output import write, write_alone, write_more
from .help.options import described_by, taking


@described_by("cli/doctor_options.py:DoctorOptions")
@taking(DoctorOptions)
def doctor(asked: DoctorOptions) -> None:
    """Find a model's residual streams and norm placements, measure them over depth, and say what is
    wrong.

    The exit code is 0 where no finding is as severe as --fail-on, 1 where one is, and 2 where the
    target cannot be examined. Of a training's history a spike that came back is an info, a rise or
    a plateau a warning.

    What is examined:
        target, settings, tokens, sequences, seed, imports, trust

    The training you plan:
        optimizer, rate, warmup_updates, batch_tokens, best_at

    The log of a training:
        log, baseline

    What is asked:
        structure_only, no_laws, no_advice, silence, fail_on, rules

    What is written:
        html, as_json, card, annotate, brief

    For example:

    \b
      normscope doctor my_model.py:build --rate 3e-4 --html report.html
    """
    if asked.rules:
        _list_rules()
        return
    target = _target(asked)
    found = _examined(asked, target)
    _show(asked, found)
    if found.is_as_bad_as(asked.fail_on):
        raise typer.Exit(1)


def _target(asked: DoctorOptions) -> str | Path:
    """Returns what is to be examined: a target, or a log by itself. Raises UserError for options
    that do not fit it.
    """
    refuse_misfits(asked)
    if asked.target is not None or asked.log is None:
        return target_of(asked)
    known_optimizer(asked.optimizer)
    refuse_of_a_model(asked)
    return asked.log


def _examined(asked: DoctorOptions, target: str | Path) -> ExaminedTarget:
    """Examines a target or a log, and shows the stages of a long examination on the terminal."""
    if isinstance(target, Path):
        return explained(asked, target)
    with StageDisplay(stderr()) as display, LateStages(display) as watch:
        watch(f"reading {target}", 0, 1)
        return examined(asked, target, watch)


def _show(asked: DoctorOptions, found: ExaminedTarget) -> None:
    """Writes and prints what was asked for."""
    if found.diagnosis is not None:
        write(asked, found.diagnosis, found.history)
        write_more(asked, found.diagnosis, found.target)
    elif found.history is not None:
        write_alone(asked, found.history)


def _list_rules() -> None:
    from ..doctor.lint.linter import RULES

    widest = max(len(rule.id) for rule in RULES)
    for rule in RULES:
        head = f"{rule.id:{widest}}  {rule.severity:7}  "
        typer.echo(
            "\n".join(
                wrap(rule.title, columns(), initial_indent=head, subsequent_indent=" " * len(head))
            )
        )
