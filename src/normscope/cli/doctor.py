"""The verb `doctor`: what is wrong with a model, from one forward and one backward pass."""

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import UserError, place_in_user_code, user_errors
from ..limits import kinds
from ..limits.inset import CARD
from ..report.words import printable
from .console import LateStages, StageDisplay, columns, print_history, standard_output, stderr
from .options import described_by
from .shared import (
    Imports,
    Trust,
    refuse_missing_target,
    refuse_no_place,
    refuse_unwritable,
    run_imports,
    write_inset,
    write_text,
)

if TYPE_CHECKING:
    from ..choosing.rates import BestOfSmaller
    from ..doctor.diagnose import Diagnosis
    from ..doctor.result import Severity
    from ..history.explain import Explanation
    from ..targets import Target

_STDOUT = "-"
_FORMS = ("github", "gcc")
"""Of annotations."""


@described_by()
def doctor(
    target: Annotated[str | None, typer.Argument(metavar="TARGET")] = None,
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = [],  # noqa: B006
    optimizer: str | None = None,
    rate: float | None = None,
    best_at: Annotated[str | None, typer.Option(metavar="RATE:KEY=VALUE")] = None,
    tokens: int = 128,
    sequences: int = 4,
    seed: int = 0,
    html: Path | None = None,
    as_json: Annotated[str | None, typer.Option("--json", metavar="FILE")] = None,
    card: Annotated[Path | None, typer.Option(metavar="FILE.md")] = None,
    fail_on: str = "warning",
    no_advice: bool = False,
    structure_only: bool = False,
    silence: Annotated[list[str], typer.Option(metavar="ID")] = [],  # noqa: B006
    log: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    annotate: Annotated[str | None, typer.Option(metavar="FORM")] = None,
    rules: bool = False,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Find a model's residual streams and norm placements, measure them over depth, and say what is
    wrong.

    The exit code is 0 where no finding is as severe as --fail-on, 1 where one is, and 2 where the
    target cannot be examined. Of a training's history a spike that came back is an info, a rise or
    a plateau a warning.

    For example:

    \b
      normscope doctor my_model.py:build --rate 3e-4 --html report.html

    target: package.module:function or file.py:function that returns a model, (model, inputs),
    (model, inputs, loss) or a dict of these and optimizer; a Hugging Face config.json, or a class
    such as GPT2Config; a folder with a checkpoint or a run; a TOML configuration. settings: Change
    the configuration, or give the function an argument.
    optimizer: Optimiser, such as adam or sgd. Without it: the target's own one, or adam. rate: The
    peak learning rate that you plan to use. best_at: The peak rate that was best for a smaller
    version of the model, and the settings that make that version, such as
    2e-3:n_layer=4,n_embd=256; the advice carries it to this one. tokens: Tokens in each sequence,
    for targets without inputs. sequences: Sequences in the batch, for targets without inputs. seed:
    Seed of initial weights and inputs, for targets without one. html: Write the report with its
    figures to this file. as_json: Write everything as JSON to this file; - prints it. `null` stands
    for what was not measured. card: Write a card for the model's README, and beside it a badge,
    FILE.svg. fail_on: The least severity that makes the exit code 1: error, warning or info.
    no_advice: Leave out the advice on the learning rate. structure_only: Build the model without
    weights, and tell its streams, placements and formulas alone: a model of any size in seconds.
    silence: Leave out this rule, beside those silenced in pyproject.toml. log: Explain the spikes
    and plateaus of a training's log: a run folder or metrics.jsonl, Trainer's trainer_state.json,
    TensorBoard's event files, W&B's, or lines of JSON (.jsonl) with a step and a loss. No TARGET is
    needed. annotate: Print each finding as a line for other programs too: github (annotations of a
    workflow), or gcc (file:line: severity: message, for editors). rules: List all rules and exit.
    """
    if rules:
        _list_rules()
        return
    _check(fail_on, rate)
    if annotate is not None and (annotate not in _FORMS or target is None or as_json == _STDOUT):
        raise UserError(
            f"--annotate {annotate}: choose one of {', '.join(_FORMS)}, for a TARGET, and without "
            "--json -, which has the output to itself"
        )
    for option, given, least in (
        ("--tokens", tokens, 2),
        ("--sequences", sequences, 1),
        ("--seed", seed, 0),
    ):
        if given < least:
            raise UserError(f"{option} must be at least {least}, got {given}")
    drawn = card and card.with_suffix(".svg")
    if card is not None and card == drawn:
        raise UserError(
            f"--card {card}: a badge gets the ending .svg, and the card beside it another, such as "
            ".md"
        )
    json_file = None if as_json in (None, _STDOUT) else Path(str(as_json))
    for option, file, kind in (
        ("--html", html, kinds.PAGE),
        ("--json", json_file, kinds.DIAGNOSIS),
        ("--card", drawn, kinds.BADGE),
    ):
        if file is not None:
            refuse_unwritable(option, file, kind)
    if card is not None:
        refuse_no_place("--card", card, CARD.kind)
        CARD.set_into(card, "")
    if target is None and log is not None:
        optimizer = _known_optimizer(optimizer)
        for option, written in (("--html", html), ("--card", card)):
            if written is not None:
                raise UserError(
                    f"{option} is of a model: name a TARGET beside --log, or take --json"
                )
        _explain_alone(log, as_json, fail_on)
        return
    if target is None:
        raise UserError(
            "name a TARGET, such as GPT2Config or file.py:function; `normscope doctor --help` "
            "lists them all"
        )
    if no_advice and best_at is not None:
        raise UserError("--best-at is for advice, which --no-advice leaves out")
    if structure_only:
        _refuse_with_structure(rate=rate, best_at=best_at, html=html, log=log, optimizer=optimizer)
    smaller = None if best_at is None else _read_best_at(best_at)
    refuse_missing_target(target)
    with StageDisplay(stderr()) as display, LateStages(display) as watch:
        watch(f"reading {target}", 0, 1)
        optimizer = _known_optimizer(optimizer)
        silenced = _silenced(silence)
        run_imports(imports)
        from ..history.joined import in_question, peak_of
        from ..targets import opened, opened_on_meta
        from ..targets.logs import beside_model, explained_log, explained_run

        if trust:
            from ..targets.runs import trust_target

            trust_target(target)
        if structure_only:
            found, history = (
                opened_on_meta(target, settings, tokens=tokens, sequences=sequences),
                None,
            )
        else:
            history = explained_run(target) if log is None else explained_log(log)
            found = opened(target, settings, tokens=tokens, sequences=sequences, seed=seed)
            if history is not None:
                history = beside_model(history, classes=None, counting=found.counting)
            if rate is None and log is not None and history is not None and in_question(history):
                rate, warmup = peak_of(history.history)
                found = found if warmup is None else replace(found, warmup_updates=warmup)
        watch(f"looking at {found.title}", 0, 1)
        measured: dict[str, Any] | None = (
            None
            if structure_only
            else {"optimizer": optimizer, "rate": rate, "advise": not no_advice}
        )
        if measured is not None and smaller is not None:
            version = opened(
                target, [*settings, *smaller[1]], tokens=tokens, sequences=sequences, seed=seed
            )
            measured["smaller"] = _best_of_smaller(
                smaller[0], version, optimizer or found.optimizer or "adam"
            )
        diagnosis = _diagnosed(found, silenced, measured, watch)
        if history is not None:
            history = beside_model(history, classes=diagnosis.measured.classes, counting=None)
    from ..doctor.result import worst_of

    compared = shlex.quote(found.compared) if found.compared else ""
    _write(replace(diagnosis, compared=compared), html, as_json, history)
    from ..doctor.report import card as model_card

    if card is not None and drawn is not None:
        write_text("--card", drawn, model_card.badge(diagnosis), kinds.BADGE)
        write_inset("--card", card, model_card.card(diagnosis, drawn.name), CARD)
        if as_json != _STDOUT:
            standard_output().print(f"written: {card} and {drawn}", soft_wrap=True)
    if annotate is not None:
        for line in model_card.annotations(diagnosis.findings, target, annotate):
            typer.echo(line)
    if _as_bad_as(fail_on, worst_of(diagnosis.findings)) or (
        history and _as_bad_as(fail_on, history.severity)
    ):
        raise typer.Exit(1)


def _explain_alone(log: Path, as_json: str | None, fail_on: str) -> None:
    """A log without a model."""
    from ..targets.logs import explained_log

    history = explained_log(log)
    text = _as_text({"history": history.to_json()})
    if as_json == _STDOUT:
        typer.echo(text)
    else:
        print_history(history)
        if as_json is not None:
            write_text("--json", Path(as_json), text + "\n", kinds.DIAGNOSIS)
            typer.echo(f"written: {as_json}")
    if _as_bad_as(fail_on, history.severity):
        raise typer.Exit(1)


def _refuse_with_structure(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise UserError(
                f"--structure-only takes no --{name.replace('_', '-')}: without weights there is "
                "nothing to measure"
            )


_SCHEMA = 2
"""The version of docs/doctor.schema.json: another one where a key goes or changes its meaning."""
_SEVERITIES = ("info", "warning", "error")
"""As `doctor.result` has them, which takes torch to import."""


def _check(fail_on: str, rate: float | None) -> None:
    """Raise UserError where an option has a value that it does not allow."""
    if fail_on not in _SEVERITIES:
        raise UserError(f"--fail-on {fail_on}: choose one of {', '.join(_SEVERITIES)}")
    if rate is not None and not 0 < rate < math.inf:
        raise UserError(f"--rate must be positive and finite, got {rate}")


def _known_optimizer(optimizer: str | None) -> str | None:
    """The optimiser as it is listed. Raises UserError for one that is not."""
    from ..optim import OPTIMIZERS
    from ..settings.tables import spelled

    known = optimizer and spelled(optimizer, OPTIMIZERS)
    if known is not None and known not in OPTIMIZERS:
        raise UserError(f"--optimizer {optimizer}: choose one of {', '.join(OPTIMIZERS)}")
    return known


def _read_best_at(text: str) -> tuple[float, list[str]]:
    """A rate, and the settings of the model that it was best for. Raises UserError."""
    rate, _, settings = text.partition(":")
    try:
        value = float(rate)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or not settings:
        raise UserError(
            f"--best-at {text}: give the best peak rate of a smaller version of the model and the "
            "settings that make that version, such as 2e-3:n_layer=4,n_embd=256"
        )
    return value, settings.split(",")


def _best_of_smaller(rate: float, target: "Target", optimizer: Any) -> "BestOfSmaller":
    """Raises UserError for a version that cannot be looked at."""
    from ..choosing.rates import BestOfSmaller
    from ..doctor.advise import facts_of, name_of
    from ..doctor.diagnose import structure

    with user_errors(
        ValueError,
        said=lambda error: f"--best-at, the smaller version: {' '.join(str(error).split())}",
    ):
        return BestOfSmaller(
            rate, facts_of(structure(target.model, target.inputs).stacks, name_of(optimizer))
        )


def _silenced(given: list[str]) -> tuple[str, ...]:
    from ..doctor.lint.linter import check_silenced, silenced_in

    try:
        check_silenced(given)
        return tuple(dict.fromkeys((*silenced_in(Path.cwd()), *given)))
    except ValueError as error:
        raise UserError(str(error)) from error


def _diagnosed(
    target: "Target",
    silenced: tuple[str, ...],
    measured: Mapping[str, Any] | None,
    watch: Callable[[str, int, int], None],
) -> "Diagnosis":
    """measured: what is asked of a model with weights; without it only the structure is looked
    at.
    """
    said: dict[str, Any] = {
        "wanted_placement": target.wanted_placement,
        "silenced": silenced,
        "target": target.title,
    }
    try:
        if measured is None:
            from ..doctor.diagnose import structure

            return structure(target.model, target.inputs, **said)
        from ..doctor.diagnose import diagnose

        return diagnose(
            target.model,
            target.inputs,
            loss=target.loss,
            optimizer=measured["optimizer"] or target.optimizer or "adam",
            wanted_rate=measured["rate"],
            wanted_warmup_updates=target.warmup_updates,
            loading=target.loading,
            clip_norm=target.clip_norm,
            advise=measured["advise"],
            smaller=measured.get("smaller"),
            watch=watch,
            **said,
        )
    except ValueError as error:
        where = place_in_user_code(error.__cause__) if error.__cause__ is not None else ""
        raise UserError(f"{target.title}: {' '.join(str(error).split())}{where}") from error


def _write(
    diagnosis: "Diagnosis",
    html: Path | None,
    as_json: str | None,
    history: "Explanation | None" = None,
) -> None:
    from ..history.joined import first_lines, verdict_lines, verdict_rows

    verdict = [] if history is None else verdict_rows(history, diagnosis)
    if html is not None:
        from ..doctor.lint.linter import RULES
        from ..doctor.report.page import render_doctor

        shown = None
        if history is not None:
            from ..history.section import section

            shown = section(history, verdict)
        write_text("--html", html, render_doctor(diagnosis, RULES, shown), kinds.PAGE)
    explained = (
        {} if history is None else {"history": history.to_json() | {"verdict": dict(verdict)}}
    )
    text = _as_text(diagnosis.to_json() | explained)
    if as_json == _STDOUT:
        typer.echo(text)
        return
    if as_json is not None:
        write_text("--json", Path(as_json), text + "\n", kinds.DIAGNOSIS)
    from ..doctor.lint.linter import reasons
    from ..doctor.report.text import terminal_page

    if history is not None and history.episodes:
        print_history(history, verdict_lines(verdict, columns()))
        typer.echo("\nthe model by itself:")
    console = standard_output()
    console.print(terminal_page(diagnosis, reasons(), verdict[0][1] if verdict else ""))
    if history is not None and not history.episodes:
        typer.echo("\nits training:")
        print_history(history)
    for file in (html, as_json):
        if file is not None:
            console.print(f"written: {file}", soft_wrap=True)
    if verdict:
        # The page is longer than a terminal: what to do stands last as well.
        typer.echo("\nwhat to do:")
        for line in first_lines(verdict, columns()):
            typer.echo(printable(line))


def _as_bad_as(severity: str, worst: "Severity | None") -> bool:
    from ..doctor.result import Severity

    return worst is not None and worst.rank >= Severity(severity).rank


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


def _as_text(values: Mapping[str, Any]) -> str:
    whole = {"normscope": __version__, "schema": _SCHEMA, **_finite(values)}
    return json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    """Return the same values with None in place of numbers that are not finite, which JSON does not
    have.
    """
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
