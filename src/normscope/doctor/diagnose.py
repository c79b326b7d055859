"""The whole diagnosis of a model: find, measure, lint, predict, advise; or its structure alone,
without weights.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from ..choosing.rates import BestOfSmaller
from ..measure.autocast import without_autocast
from ..optim.courses import RateCourse, course_of
from .advise import advise as advised, wanted_rate_of
from .identify.stacks import as_stacks, streams_in
from .laws.meant import places_meant
from .laws.tried import LEFT_OUT, UNTRIED, Tried, tried
from .lint.linter import asked_rules, lint, reasons
from .lint.patient import Loading, Patient
from .measured import ModelMeasurements
from .observe.examine import examined, examined_without_gradients
from .observe.gradients import NoGradient
from .predict import with_predictions
from .record import Stack
from .result import Advice, Record
from .trace.code_places import NO_PLACES, CodePlaces, calls_noted
from .trace.forward import (
    Inputs,
    NonfiniteWeight,
    are_trained,
    loss_of_output,
    nonfinite_weights,
    read_as_zero,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Record):
    """All that was found out about a model."""

    def plot(self) -> "Figure":
        """Draws every stack over depth, measured and predicted, as a matplotlib figure. Raises
        ValueError without a stack.
        """
        from ..report.chart_svg import panels_figure
        from .report.notebook import stack_panels

        if not self.stacks:
            raise ValueError(
                f"{self.target} has no residual stream, so there is nothing to draw over depth"
            )
        return panels_figure(stack_panels(self))

    def __str__(self) -> str:
        """Returns the text that the terminal shows."""
        from ..report.words import plain_text
        from .report.text import terminal_page

        return plain_text(terminal_page(self, reasons()))

    def __repr__(self) -> str:
        from .report.words import headline, summary

        return f"Diagnosis({self.target}: {headline(self)[0]}; {summary(self)})"

    def _repr_html_(self) -> str:
        from .report.notebook import diagnosis_html

        return diagnosis_html(self)


@without_autocast()
def diagnose(
    model: nn.Module,
    batch: Inputs,
    *,
    loss: Callable[..., Tensor] | None = None,
    optimizer: str | torch.optim.Optimizer = "adam",
    wanted_rate: float | None = None,
    wanted_warmup_updates: int | None = None,
    loading: Loading | None = None,
    wanted_placement: str | None = None,
    clip_norm: float | None = None,
    scheduler: LRScheduler | None = None,
    logged_warmup_updates: int | None = None,
    silenced: Collection[str] = (),
    target: str = "",
    advise: bool = True,
    laws: bool = True,
    smaller: BestOfSmaller | None = None,
    batch_tokens: float | None = None,
    built: CodePlaces = NO_PLACES,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Diagnosis:
    """Returns the whole diagnosis on a batch; `normscope.diagnose` explains every argument.

    Weights, gradients, buffers, modes and random states are bit for bit as they were. What the
    forward pass does under autocast is read in the precision of the weights. Raises ValueError for
    a model that cannot be looked at, a loss that is not finite, an unknown optimiser or rule, or a
    rate that is not positive.
    """
    watch("streams and gradients", 0, 1)
    trained = loading is not None or are_trained(model)
    told = _told(scheduler, optimizer, wanted_rate, wanted_warmup_updates)
    seen = _seen(model, batch, loss, built, trained=trained)
    asked = advise and seen.learns
    advice = None
    if asked:
        advice = _advice(seen, optimizer, told, smaller, batch_tokens, trained=trained)
    watch("prediction", 0, 1)
    patient = Patient(
        model=model,
        stacks=seen.stacks if trained else seen.predicted,
        observed=seen.measured,
        dtype=_dtype(model),
        optimizer=optimizer if isinstance(optimizer, torch.optim.Optimizer) else None,
        loading=loading,
        wanted_placement=wanted_placement,
        clip_norm=clip_norm,
        nonfinite=seen.nonfinite,
        no_gradient=seen.no_gradient,
        advice=advice,
        places=seen.places,
        course=told.course,
        no_course=told.no_course,
        told_warmup_updates=wanted_warmup_updates,
        logged_warmup_updates=logged_warmup_updates,
        tried=_tried(seen, model, batch, loss, optimizer, told, watch, laws),
    )
    watch("rules", 0, 1)
    return _linted(patient, silenced, target, trained=trained)


class _Told(NamedTuple):
    """The known rates of a training."""

    rate: float | None
    """The peak that is in question; None where the user named none."""
    warmup_updates: int | None
    course: RateCourse | None
    no_course: str
    """The reason why there is no course, as a clause."""


def _told(
    scheduler: LRScheduler | None,
    optimizer: str | torch.optim.Optimizer,
    rate: float | None,
    warmup_updates: int | None,
) -> _Told:
    """Collects the rates that the user named, and takes from the scheduler those that were not
    named.
    """
    if scheduler is None:
        return _Told(rate, warmup_updates, None, "no scheduler was given")
    if not isinstance(optimizer, torch.optim.Optimizer):
        why = "a scheduler was given without the optimiser that it is over"
        return _Told(rate, warmup_updates, None, why)
    try:
        course = course_of(scheduler, optimizer)
    except ValueError as error:
        return _Told(rate, warmup_updates, None, str(error))
    if course.peak > 0:
        rate = course.peak if rate is None else rate
        warmup_updates = course.warmup_updates if warmup_updates is None else warmup_updates
    return _Told(rate, warmup_updates, course, "")


class _Seen(NamedTuple):
    """The measurements of a model, and the reason where some are missing."""

    stacks: tuple[Stack, ...]
    measured: ModelMeasurements
    nonfinite: tuple[NonfiniteWeight, ...] = ()
    no_gradient: str = ""
    """The reason why no gradient can be taken; "" where one was."""
    places: CodePlaces = NO_PLACES

    @property
    def learns(self) -> bool:
        return not self.nonfinite and not self.no_gradient

    @property
    def predicted(self) -> tuple[Stack, ...]:
        """The stacks with theory's predictions where there are gradients to compare them with;
        predictions are of random weights, and say nothing of others.
        """
        return with_predictions(self.stacks, self.measured) if self.learns else self.stacks


def _advice(
    seen: _Seen,
    optimizer: str | torch.optim.Optimizer,
    told: _Told,
    smaller: BestOfSmaller | None,
    batch_tokens: float | None,
    *,
    trained: bool,
) -> Advice:
    return advised(
        optimizer,
        stacks=seen.stacks,
        wanted_rate=wanted_rate_of(optimizer) if told.rate is None else told.rate,
        wanted_warmup_updates=told.warmup_updates,
        trained=trained,
        smaller=smaller,
        batch_tokens=batch_tokens,
    )


def _tried(
    seen: _Seen,
    model: nn.Module,
    batch: Inputs,
    loss: Callable[..., Tensor] | None,
    optimizer: str | torch.optim.Optimizer,
    told: _Told,
    watch: Callable[[str, int, int], None],
    asked: bool,
) -> Tried:
    """Tries the laws where they are asked for and the model can learn."""
    if not asked or not seen.learns:
        return UNTRIED if asked else LEFT_OUT
    return tried(
        model,
        batch,
        loss,
        optimizer=optimizer,
        rate=told.rate,
        peaks=() if told.course is None else told.course.peaks,
        seen=seen.measured,
        is_causal=_is_causal(seen.stacks),
        places=places_meant(model, seen.stacks, seen.measured),
        watch=watch,
    )


def _is_causal(stacks: tuple[Stack, ...]) -> bool:
    """Tells whether every sub-layer that looks at other tokens looks at earlier ones, and at no
    later ones.
    """
    inside = [one for stack in stacks for one in stack.sublayers]
    known = [one.measured.attention for one in inside if one.kind.endswith("attention")]
    hides = [one is not None and one.sees_later == 0 for one in known]
    looks = any(one is not None and one.sees_earlier for one in known)
    return looks and all(hides) and not any(one.measured.reads_later for one in inside)


def _seen(
    model: nn.Module,
    batch: Inputs,
    loss: Callable[..., Tensor] | None,
    built: CodePlaces,
    *,
    trained: bool,
) -> _Seen:
    """Measures a model on a batch, without gradients where none can be taken, and with 0 in the
    place of weights that are not finite.
    """
    nonfinite = nonfinite_weights(model)
    no_gradient = ""
    with calls_noted(model) as called:
        places = replace(built, called=called)
        if not nonfinite:
            try:
                found = examined(
                    model,
                    batch,
                    loss_of_output(loss, batch),
                    rewire=trained,
                    known_finite=True,
                )
                return _Seen(*found, places=places)
            except NoGradient as error:
                no_gradient = str(error)
        with read_as_zero(model, nonfinite):
            found = examined_without_gradients(model, batch)
    return _Seen(*found, nonfinite, no_gradient, places)


@without_autocast()
def structure(
    model: nn.Module,
    batch: Inputs,
    *,
    wanted_placement: str | None = None,
    silenced: Collection[str] = (),
    target: str = "",
    built: CodePlaces = NO_PLACES,
) -> Diagnosis:
    """Reads the wiring of a model from its operations alone; it may lie on the meta device, and
    have no weights at all.

    Every measurement of the diagnosis is NaN or None, and its rules say which of them were not
    asked for that reason. Scales that are parameters or buffers are unknown on the meta device.
    Raises ValueError as `find_stacks` does.
    """
    with calls_noted(model) as called:
        _, streams = streams_in(model, batch)
    patient = Patient(
        model=model,
        stacks=tuple(as_stacks(streams)),
        observed=ModelMeasurements(),
        dtype=_dtype(model),
        wanted_placement=wanted_placement,
        measured=False,
        places=replace(built, called=called),
    )
    return _linted(patient, silenced, target)


def _dtype(model: nn.Module) -> torch.dtype:
    return next(
        (p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype()
    )


def _linted(
    patient: Patient, silenced: Collection[str], target: str, *, trained: bool = False
) -> Diagnosis:
    return Diagnosis(
        target=target or type(patient.model).__name__,
        parameters=sum(parameter.numel() for parameter in patient.model.parameters()),
        stacks=patient.stacks,
        measured=patient.observed,
        findings=lint(patient, silenced),
        advice=patient.advice,
        silenced=tuple(silenced),
        trained=trained,
        rules=asked_rules(patient, silenced),
    )
