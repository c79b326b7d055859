"""The options of the verb `doctor`, and the checks that refuse some of them before anything is
examined.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from ..limits import kinds
from ..limits.inset import CARD
from .shared import (
    Imports,
    Trust,
    amount,
    refuse_missing_target,
    refuse_no_place,
    refuse_unwritable,
)

STDOUT = "-"
_FORMS = ("github", "gcc")
"""The forms of annotations."""
SEVERITIES = ("info", "warning", "error")
"""The severities of `doctor.result`, repeated here because that module imports torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of `normscope doctor`."""

    target: Annotated[str | None, typer.Argument(metavar="TARGET")] = None
    """package.module:function or file.py:function that returns a model, (model, inputs), (model,
    inputs, loss) or a dict of these and optimizer; a Hugging Face config.json, or a class such as
    GPT2Config; a folder with a checkpoint or a run; a TOML configuration.
    """
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = field(
        default_factory=list
    )
    """Change the configuration, or give the function an argument."""
    optimizer: str | None = None
    """Optimiser, such as adam or sgd. Without it: the target's own one, or adam."""
    rate: float | None = None
    """The peak learning rate that you plan to use."""
    warmup_updates: int | None = None
    """Over how many updates your own warm-up rises to that rate, 0 for none; the rates of --log are
    compared with it. Without it: the target's own, or none.
    """
    batch_tokens: Annotated[float | None, typer.Option(parser=amount, metavar="NUMBER")] = None
    """Tokens of one update, over all devices and accumulation, such as 500k or 5e5: the best rate
    hangs on them. Without it: the target's own, or three that are usual.
    """
    best_at: Annotated[str | None, typer.Option(metavar="RATE:KEY=VALUE")] = None
    """The peak rate that was best for a smaller version of the model, and the settings that make
    that version, such as 2e-3:n_layer=4,n_embd=256; the advice carries it to this one.
    """
    tokens: int = 128
    """Tokens in each sequence, for targets without inputs."""
    sequences: int = 4
    """Sequences in the batch, for targets without inputs."""
    seed: int = 0
    """Seed of initial weights and inputs, for targets without one."""
    html: Path | None = None
    """Write the report with its figures to this file."""
    as_json: Annotated[str | None, typer.Option("--json", metavar="FILE")] = None
    """Write everything as JSON to this file; - prints it. `null` stands for what was not
    measured.
    """
    card: Annotated[Path | None, typer.Option(metavar="FILE.md")] = None
    """Write a card for the model's README, and beside it a badge, FILE.svg."""
    fail_on: str = "warning"
    """The least severity that makes the exit code 1: error, warning or info."""
    no_advice: bool = False
    """Leave out the advice on the learning rate."""
    no_laws: bool = False
    """Look at the model without trying it: no copy of it is updated, put into both modes, or asked
    with other inputs.
    """
    structure_only: bool = False
    """Build the model without weights, and tell its streams, placements and formulas alone: a model
    of any size in seconds.
    """
    silence: Annotated[list[str], typer.Option(metavar="ID")] = field(default_factory=list)
    """Leave out this rule, beside those silenced in pyproject.toml."""
    log: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """Explain the spikes and plateaus of a training's log: a run folder, trainer_state.json,
    TensorBoard's, W&B's, mlflow's or trackio's files (FILE#RUN), a table (.csv), lines of JSON, or
    what a trainer printed (- reads a pipe). No TARGET is needed.
    """
    baseline: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """The log of a good training of the same: say from which update on, and in what first, the one
    of --log differs.
    """
    annotate: Annotated[str | None, typer.Option(metavar="FORM")] = None
    """Print each finding as a line for other programs too: github (annotations of a workflow), or
    gcc (file:line: severity: message, for editors).
    """
    brief: bool = False
    """Print at most 40 plain lines, of a name and what is said each: for programs, agents and
    logs.
    """
    rules: bool = False
    """List all rules and exit."""
    imports: Imports = field(default_factory=list)
    trust: Trust = False

    @property
    def badge(self) -> Path | None:
        """The file of the badge beside the card."""
        return self.card and self.card.with_suffix(".svg")

    @property
    def json_file(self) -> Path | None:
        """The file of the JSON; None where there is none, and where it is printed."""
        return None if self.as_json in (None, STDOUT) else Path(str(self.as_json))


def refuse_misfits(asked: DoctorOptions) -> None:
    """Raise UserError where an option has a value that it does not allow, or names a file that
    cannot be written.
    """
    if asked.fail_on not in SEVERITIES:
        raise UserError(f"--fail-on {asked.fail_on}: choose one of {', '.join(SEVERITIES)}")
    if asked.rate is not None and not 0 < asked.rate < math.inf:
        raise UserError(f"--rate must be positive and finite, got {asked.rate}")
    annotates = asked.target is not None and asked.as_json != STDOUT
    if asked.annotate is not None and (asked.annotate not in _FORMS or not annotates):
        raise UserError(
            f"--annotate {asked.annotate}: choose one of {', '.join(_FORMS)}, for a TARGET, and "
            "without --json -, which has the output to itself"
        )
    if asked.brief and asked.as_json == STDOUT:
        raise UserError("--brief and --json - both print: choose one, or name a file for --json")
    if asked.baseline is not None and asked.log is None:
        raise UserError("--baseline is what the log of --log is held against: name that log too")
    for option, given, least in (
        ("--tokens", asked.tokens, 2),
        ("--sequences", asked.sequences, 1),
        ("--seed", asked.seed, 0),
        ("--warmup-updates", asked.warmup_updates or 0, 0),
    ):
        if given < least:
            raise UserError(f"{option} must be at least {least}, got {given}")
    _refuse_files(asked)


def _refuse_files(asked: DoctorOptions) -> None:
    card = asked.card
    if card is not None and card == asked.badge:
        raise UserError(
            f"--card {card}: a badge gets the ending .svg, and the card beside it another, such as "
            ".md"
        )
    for option, file, kind in (
        ("--html", asked.html, kinds.PAGE),
        ("--json", asked.json_file, kinds.DIAGNOSIS),
        ("--card", asked.badge, kinds.BADGE),
    ):
        if file is not None:
            refuse_unwritable(option, file, kind)
    if card is not None:
        refuse_no_place("--card", card, CARD.kind)
        CARD.set_into(card, "")


def refuse_of_a_model(asked: DoctorOptions) -> None:
    """Raise UserError where a log without a model is to have what only a model has."""
    for option, written in (("--html", asked.html), ("--card", asked.card)):
        if written is not None:
            raise UserError(f"{option} is of a model: name a TARGET beside --log, or take --json")


def target_of(asked: DoctorOptions) -> str:
    """Returns the target. Raises UserError where there is none, and for options that do not go
    together.
    """
    if asked.target is None:
        raise UserError(
            "name a TARGET, such as GPT2Config or file.py:function; `normscope doctor --help` "
            "lists them all"
        )
    if asked.no_advice and asked.best_at is not None:
        raise UserError("--best-at is for advice, which --no-advice leaves out")
    if asked.structure_only:
        for option, value in (
            ("--rate", asked.rate),
            ("--warmup-updates", asked.warmup_updates),
            ("--batch-tokens", asked.batch_tokens),
            ("--best-at", asked.best_at),
            ("--html", asked.html),
            ("--log", asked.log),
            ("--optimizer", asked.optimizer),
        ):
            if value is not None:
                raise UserError(
                    f"--structure-only takes no {option}: without weights there is nothing to "
                    "measure"
                )
    if asked.best_at is not None:
        read_best_at(asked.best_at)
    refuse_missing_target(asked.target)
    return asked.target


def read_best_at(text: str) -> tuple[float, list[str]]:
    """Returns a rate, and the settings of the model that it was best for. Raises UserError."""
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


def known_optimizer(optimizer: str | None) -> str | None:
    """Returns the optimiser as it is listed. Raises UserError for one that is not."""
    from ..optim import OPTIMIZERS
    from ..settings.tables import spelled

    known = optimizer and spelled(optimizer, OPTIMIZERS)
    if known is not None and known not in OPTIMIZERS:
        raise UserError(f"--optimizer {optimizer}: choose one of {', '.join(OPTIMIZERS)}")
    return known
