"""The schedule that was meant beside the one that was trained: a warm-up or a peak rate of the
settings that the logged rates do not have.
"""

from collections.abc import Iterator

from ..report.words import counted, learning_rate, significant
from .episodes import Episode, EpisodeKind
from .record import History, LoggedSeries

CAUSE = "schedule-not-as-meant"
_SAME_RATE = 0.05
"""Share by which a highest rate may differ from the one that was meant, as where a log has every
tenth update of a short warm-up."""
_SAME_WARMUP = 0.1
_AT_PEAK = 0.999
"""The share of the highest rate from which on a warm-up has ended, however the rate goes on."""
_LEAST_VALUES = 3


def schedule_signs(history: History) -> Iterator[Episode]:
    """One where the rates of a log are not those that its settings, or the user, name."""
    rates = history.rate.finite()
    if len(rates.updates) < _LEAST_VALUES or max(rates.values) <= 0:
        return
    seen = [
        words
        for words in (_other_warmup(history, rates), _other_peak(history, rates))
        if words is not None
    ]
    if seen:
        yield Episode(
            kind=EpisodeKind.SIGN,
            cause=CAUSE,
            title="a schedule that is not the one that was meant",
            onset=rates.updates[0],
            evidence=tuple(seen),
            attempt=(
                "print the scheduler's rate in the first updates; it has to be stepped once after "
                "each update, be given updates where it counts updates, and its state be loaded "
                "where a training goes on"
            ),
        )


def warmup_seen(rates: LoggedSeries) -> int:
    """Returns the first logged update at which a rate has come to its highest."""
    highest = max(rates.values)
    return next(
        update
        for update, rate in zip(rates.updates, rates.values, strict=True)
        if rate >= _AT_PEAK * highest
    )


def _other_warmup(history: History, rates: LoggedSeries) -> str | None:
    meant = history.recipe.warmup_updates
    if meant is None:
        return None
    seen = warmup_seen(rates)
    first = rates.updates[0]
    # A log says where a rate is at its highest as exactly as it is spaced, and from its first
    # update on.
    near = max(rates.spacing, first, _SAME_WARMUP * meant, 1)
    if abs(seen - meant) <= near or (meant <= first == seen):
        return None
    still_rises = seen >= rates.updates[-1] - rates.spacing and seen < meant
    if still_rises:
        # The log ends within the warm-up.
        return None
    configured = counted(meant, "update")
    if seen == first:
        return (
            f"a warm-up over {configured} was meant, and the rate is at its highest, "
            f"{learning_rate(max(rates.values))}, in the first update that is logged, {first:,}"
        )
    return (
        f"a warm-up over {configured} was meant, and the rate comes to its highest, "
        f"{learning_rate(max(rates.values))}, at update {seen:,}"
    )


def _other_peak(history: History, rates: LoggedSeries) -> str | None:
    meant = history.recipe.peak_rate
    highest = max(rates.values)
    if meant is None or abs(highest - meant) <= _SAME_RATE * meant:
        return None
    warmup = history.recipe.warmup_updates
    if highest < meant and (warmup is None or warmup > rates.updates[-1] - rates.spacing):
        # It may not have come there yet.
        return None
    return (
        f"a peak of {learning_rate(meant)} was meant, and the highest rate is "
        f"{learning_rate(highest)}, {significant(highest / meant, 2)} times that"
    )
