"""The output of the verb `doctor`: its page, its JSON, a card with its badge, annotations, and the
text on the terminal.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .. import __version__
from ..limits import kinds
from ..limits.inset import CARD
from ..report.plain import plain_values
from ..report.words import printable
from .console import columns, print_history, standard_output
from .doctor_options import STDOUT, DoctorOptions
from .shared import write_inset, write_text

if TYPE_CHECKING:
    from ..doctor.diagnose import Diagnosis
    from ..history.explain import Explanation

_SCHEMA = 2
"""The version of docs/doctor.schema.json: another one where a key goes or changes its meaning."""


def write(
    asked: DoctorOptions, diagnosis: "Diagnosis", history: "Explanation | None" = None
) -> None:
    """Writes and prints what is known of a model, and of its training beside it."""
    from ..history.joined import first_lines, verdict_lines, verdict_rows

    html, as_json = asked.html, asked.as_json
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
    text = as_text(diagnosis.to_json() | explained)
    if as_json == STDOUT:
        typer.echo(text)
        return
    if as_json is not None:
        write_text("--json", Path(as_json), text + "\n", kinds.DIAGNOSIS)
    if asked.brief:
        from ..doctor.report.brief import brief

        for line in brief(diagnosis, verdict):
            typer.echo(line)
        return
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


def write_alone(asked: DoctorOptions, history: "Explanation") -> None:
    """Writes and prints what is known of a log without a model."""
    text = as_text({"history": history.to_json()})
    if asked.as_json == STDOUT:
        typer.echo(text)
        return
    if asked.brief:
        from ..history.explain import brief_lines

        for line in brief_lines(history):
            typer.echo(line)
    else:
        print_history(history)
    if asked.as_json is not None:
        write_text("--json", Path(asked.as_json), text + "\n", kinds.DIAGNOSIS)
        if not asked.brief:
            typer.echo(f"written: {asked.as_json}")


def write_more(asked: DoctorOptions, diagnosis: "Diagnosis", target: str) -> None:
    """Writes the card with its badge, and prints annotations, where they are asked for."""
    from ..doctor.report import card as model_card

    card, badge = asked.card, asked.badge
    if card is not None and badge is not None:
        write_text("--card", badge, model_card.badge(diagnosis), kinds.BADGE)
        write_inset("--card", card, model_card.card(diagnosis, badge.name), CARD)
        if asked.as_json != STDOUT:
            standard_output().print(f"written: {card} and {badge}", soft_wrap=True)
    if asked.annotate is not None:
        for line in model_card.annotations(diagnosis.findings, target, asked.annotate):
            typer.echo(line)


def as_text(values: Mapping[str, Any]) -> str:
    whole = {"normscope": __version__, "schema": _SCHEMA, **plain_values(values)}
    return json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)
