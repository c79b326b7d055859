"""The examination that the verb `doctor` makes: of a target, with the log of its training or
without, or of a log by itself.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, place_in_user_code, user_errors
from .doctor_options import DoctorOptions, known_optimizer, read_best_at
from .shared import run_imports

if TYPE_CHECKING:
    from ..choosing.rates import BestOfSmaller
    from ..doctor.diagnose import Diagnosis
    from ..history.explain import Explanation
    from ..targets import Target

_Watch = Callable[[str, int, int], None]
"""Is told of a stage, how far it has come, and of how many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedTarget:
    """The findings about a model, about a training, or about both."""

    target: str = ""
    """The target as the user named it; empty for a log without a model."""
    diagnosis: "Diagnosis | None" = None
    """The model's diagnosis; None for a log without a model."""
    history: "Explanation | None" = None
    """The explanation of the training's log; None where no log is known."""

    def is_as_bad_as(self, severity: str) -> bool:
        """Tells whether a finding about the model, or about the training, is at least that
        severe.
        """
        from ..doctor.result import Severity, worst_of

        least = Severity(severity).rank
        of_model = None if self.diagnosis is None else worst_of(self.diagnosis.findings)
        of_training = None if self.history is None else self.history.severity
        return any(worst is not None and worst.rank >= least for worst in (of_model, of_training))


def explained(asked: DoctorOptions, log: Path) -> ExaminedTarget:
    """Returns what a log says without a model."""
    from ..targets.logs import explained_log

    history = explained_log(log, warmup_updates=asked.warmup_updates, baseline=asked.baseline)
    return ExaminedTarget(history=history)


def examined(asked: DoctorOptions, target: str, watch: _Watch) -> ExaminedTarget:
    """Returns the diagnosis of a target, and the explanation of its training where one is known."""
    optimizer = known_optimizer(asked.optimizer)
    silenced = _silenced(asked.silence)
    run_imports(asked.imports)
    if asked.trust:
        from ..targets.runs import trust_target

        trust_target(target)
    if asked.structure_only:
        return ExaminedTarget(target=target, diagnosis=_structure(asked, target, silenced, watch))
    found, history, rate = _beside_its_training(asked, target)
    watch(f"looking at {found.title}", 0, 1)
    if asked.warmup_updates is not None:
        found = replace(found, warmup_updates=asked.warmup_updates)
    if asked.batch_tokens is not None:
        found = replace(found, batch_tokens=asked.batch_tokens)
    taken = optimizer or found.optimizer or "adam"
    diagnosis = _measured(
        found,
        silenced,
        watch,
        optimizer=taken,
        wanted_rate=rate,
        advise=not asked.no_advice,
        laws=not asked.no_laws,
        smaller=_best_of_smaller(asked, target, taken),
    )
    if history is not None:
        from ..history.little import beside_rate
        from ..targets.logs import beside_model

        history = beside_model(history, classes=diagnosis.measured.classes, counting=None)
        history = beside_rate(history, diagnosis)
    return ExaminedTarget(target=target, diagnosis=diagnosis, history=history)


def _beside_its_training(
    asked: DoctorOptions, target: str
) -> "tuple[Target, Explanation | None, float | None]":
    """Returns a target, what its training's log tells, and the rate that is in question: the one
    that is asked about, or that of a log which brings it in question.
    """
    from ..history.joined import in_question, peak_of, warmup_seen
    from ..targets import opened
    from ..targets.logs import beside_model, explained_log, explained_run

    log, rate = asked.log, asked.rate
    history = (
        explained_run(target)
        if log is None
        else explained_log(log, warmup_updates=asked.warmup_updates, baseline=asked.baseline)
    )
    found = opened(
        target, asked.settings, tokens=asked.tokens, sequences=asked.sequences, seed=asked.seed
    )
    if history is not None:
        history = beside_model(history, classes=None, counting=found.counting)
    if history is None:
        return found, history, rate
    found = replace(found, logged_warmup_updates=warmup_seen(history.history))
    if rate is None and log is not None and in_question(history):
        rate, warmup = peak_of(history.history)
        if warmup is not None and found.warmup_updates is None:
            found = replace(found, warmup_updates=warmup)
    return found, history, rate


def _best_of_smaller(asked: DoctorOptions, target: str, optimizer: Any) -> "BestOfSmaller | None":
    """Returns the best rate of a smaller version of the target; None where the user gave none.
    Raises UserError for a version that cannot be looked at.
    """
    if asked.best_at is None:
        return None
    from ..choosing.rates import BestOfSmaller
    from ..doctor.advise import facts_of, name_of
    from ..doctor.diagnose import structure
    from ..targets import opened

    rate, settings = read_best_at(asked.best_at)
    version = opened(
        target,
        [*asked.settings, *settings],
        tokens=asked.tokens,
        sequences=asked.sequences,
        seed=asked.seed,
    )
    with user_errors(
        ValueError,
        said=lambda error: f"--best-at, the smaller version: {' '.join(str(error).split())}",
    ):
        stacks = structure(version.model, version.inputs).stacks
        return BestOfSmaller(rate, facts_of(stacks, name_of(optimizer)))


def _silenced(given: list[str]) -> tuple[str, ...]:
    from ..doctor.lint.linter import check_silenced, silenced_in

    try:
        check_silenced(given)
        return tuple(dict.fromkeys((*silenced_in(Path.cwd()), *given)))
    except ValueError as error:
        raise UserError(str(error)) from error


def _structure(
    asked: DoctorOptions, target: str, silenced: tuple[str, ...], watch: _Watch
) -> "Diagnosis":
    """Returns the diagnosis of a model without weights."""
    from ..targets import opened_on_meta

    found = opened_on_meta(target, asked.settings, tokens=asked.tokens, sequences=asked.sequences)
    watch(f"looking at {found.title}", 0, 1)
    from ..doctor.diagnose import structure

    with _refused(found):
        diagnosis = structure(
            found.model,
            found.inputs,
            wanted_placement=found.wanted_placement,
            silenced=silenced,
            target=found.title,
            built=found.built,
        )
    return _compared(diagnosis, found)


def _measured(
    found: "Target", silenced: tuple[str, ...], watch: _Watch, **asked: Any
) -> "Diagnosis":
    """Returns the diagnosis of a model with weights. asked: of `diagnose`, what the advice is
    about, and whether laws are asked.
    """
    from ..doctor.diagnose import diagnose

    with _refused(found):
        diagnosis = diagnose(
            found.model,
            found.inputs,
            loss=found.loss,
            wanted_warmup_updates=found.warmup_updates,
            batch_tokens=found.batch_tokens,
            loading=found.loading,
            clip_norm=found.clip_norm,
            scheduler=found.scheduler,
            logged_warmup_updates=found.logged_warmup_updates,
            wanted_placement=found.wanted_placement,
            silenced=silenced,
            target=found.title,
            built=found.built,
            watch=watch,
            **asked,
        )
    return _compared(diagnosis, found)


@contextmanager
def _refused(found: "Target") -> Iterator[None]:
    """Turns a ValueError of the doctor's into a UserError that names the target, and the place in
    the user's code where one is to blame.
    """
    try:
        yield
    except ValueError as error:
        where = place_in_user_code(error.__cause__) if error.__cause__ is not None else ""
        raise UserError(f"{found.title}: {' '.join(str(error).split())}{where}") from error


def _compared(diagnosis: "Diagnosis", found: "Target") -> "Diagnosis":
    """Returns the diagnosis with the words by which the target is compared on a command line."""
    return replace(diagnosis, compared=shlex.quote(found.compared) if found.compared else "")
