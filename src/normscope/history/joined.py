"""A training that went wrong, joined with its model: what to do first, then what happened, where
and why.
"""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ..doctor.result import Record, Severity
from ..report.words import counted, joined, learning_rate, significant, surer_rate
from .episodes import Episode, EpisodeKind
from .explain import EVERYWHERE, FLAT_UNKNOWN, Explanation, episode_head, hanging
from .patterns import FLAT, LITTLE
from .record import History
from .remedies import has_normed_stack, is_normed, skip_fault
from .stuck import WaysOn

UNTUNED_WARMUP = 2_000
"""2 / (1 - β2) updates with Adam's usual β2 of 0.999: the untuned warm-up of Ma and Yarats 2019
(arXiv:1910.04209).
"""
_LASTING = (EpisodeKind.RISE, EpisodeKind.PLATEAU)
_RATE_CAUSES = ("rate-too-high", "post-ln-collapse", FLAT, LITTLE, "unknown")
"""The causes whose remedy is a lower rate; any other pattern has a remedy of its own."""
COMMAND = "command"
"""The row with what is to be typed, which stands on a line of its own and is not wrapped."""
_USUAL = "the usual rate of such a model"
_LESS_WITHOUT_BEST, _LESS_BELOW_BEST = 10.0, 3.0
"""The divisors of a rate where no best one is predicted, and where it is not above the predicted
one.
"""


def lasting(explanation: Explanation) -> Episode | None:
    """Returns the first rise or plateau; None of a training whose spikes all came back."""
    return next((one for one in explanation.episodes if one.kind in _LASTING), None)


def in_question(explanation: Explanation) -> bool:
    """Tells whether the log's own rate is to be judged: some trouble of the loss lasts, or may
    last.
    """
    flat = any(one.cause == FLAT_UNKNOWN for one in explanation.episodes)
    return flat or lasting(explanation) is not None


def peak_of(history: History) -> tuple[float | None, int | None]:
    """Returns the highest rate of a log and the updates over which it had risen to it; None where
    the log has no rate.
    """
    rates = history.rate.finite()
    if not rates or max(rates.values) <= 0:
        return None, None
    highest = max(rates.values)
    return highest, 0 if rates.values[0] == highest else rates.updates[rates.values.index(highest)]


def warmup_seen(history: History) -> int | None:
    """Returns the updates over which a log's rate rises; None where it has too few points to tell,
    or rises to its end.
    """
    rates = history.rate.finite()
    _, warmup = peak_of(history)
    if warmup is None or len(rates.updates) < _POINTS or warmup == rates.updates[-1]:
        return None
    # Between its first points a rate may have risen and fallen.
    rising = sum(update <= warmup for update in rates.updates)
    fine = rates.updates[0] <= 1 or rising >= _POINTS
    return warmup if fine else None


_POINTS = 4


def verdict_rows(explanation: Explanation, diagnosis: Record) -> list[tuple[str, str]]:
    """Returns what to do, and then its reasons, each with its name; an empty list where no event
    lasts and no sign is seen.

    Signs beside the loss are what is to be done where nothing of it lasts, and stand last where
    something does.
    """
    episode = lasting(explanation)
    seen = [one for one in explanation.episodes if one.kind is EpisodeKind.SIGN]
    # That a loss is flat for a reason that is not known is told where nothing else is.
    seen = seen or [one for one in explanation.episodes if one.cause == FLAT_UNKNOWN]
    if episode is None:
        return _of_signs(diagnosis, seen, explanation.history) if seen else []
    if episode.cause in _RATE_CAUSES and (
        episode.kind is EpisodeKind.PLATEAU or has_normed_stack(diagnosis)
    ):
        return _of_ways(diagnosis, episode, seen, explanation.history)
    peak, own = peak_of(explanation.history)
    rate, why_rate = _rate(diagnosis, peak)
    warmup, why_warmup = _warmup(explanation.history, own or 0)
    return [
        ("do", _first(diagnosis, episode, rate, warmup, peak)),
        (
            "what",
            f"{episode_head(episode)}, of {counted(explanation.history.last_update, 'update')}",
        ),
        ("where", episode.place),
        ("why", "; ".join(_why(diagnosis, episode, peak))),
        ("rate", f"{rate}: {why_rate}"),
        ("warm-up", f"{warmup}: {why_warmup}"),
        *(("also", f"{episode_head(one)}; {one.attempt}") for one in seen),
    ]


def _of_ways(
    diagnosis: Record, episode: Episode, seen: Sequence[Episode], history: History
) -> list[tuple[str, str]]:
    """The same of a loss that is flat, or that left a model without a path around its norms: the
    ways on in the order that trainings of ours say, and a comparison tells.
    """
    ways = ways_on(diagnosis, episode, history)
    first = [("do", ways.words), (COMMAND, ways.command), ("cost", ways.cost)]
    if mended := _mended_first(diagnosis):
        # A comparison of a model with an error would be one of the error.
        first = [("do", mended)]
    return [
        *first,
        ("what", f"{episode_head(episode)}, of {counted(history.last_update, 'update')}"),
        ("where", episode.place),
        ("why", "; ".join(_why(diagnosis, episode, ways.rate))),
        *ways.rows,
        *(("also", f"{episode_head(one)}; {one.attempt}") for one in seen),
    ]


def ways_on(diagnosis: Record, episode: Episode, history: History) -> WaysOn:
    """Returns the remedies that may end an event that lasts."""
    peak, warmup = peak_of(history)
    fell = episode.loss_before > 1.1 * episode.loss_worst
    if episode.kind is EpisodeKind.RISE:
        # What rose had learned something, at a rate that was not too low for it.
        fell = True
    return WaysOn.of(history, diagnosis, rate=peak, warmup_updates=warmup, fell=fell)


def _of_signs(
    diagnosis: Record, seen: Sequence[Episode], history: History
) -> list[tuple[str, str]]:
    """The same of a loss in which nothing lasts: the first sign decides."""
    first, *others = seen
    asked = first.attempt
    if first.kind is EpisodeKind.NOTE:
        asked = f"{first.title}; {first.attempt}"
    rows = [
        ("do", _mended_first(diagnosis) or asked),
        ("what", f"{episode_head(first)}, of {counted(history.last_update, 'update')}"),
        ("where", first.place or EVERYWHERE),
        ("why", "; ".join([*first.evidence, *_found_in(diagnosis)])),
    ]
    return [*rows, *(("also", f"{episode_head(one)}; {one.attempt}") for one in others)]


_NARROWEST = 8
"""Columns for the names of rows, at least."""


def verdict_lines(rows: list[tuple[str, str]], width: int) -> list[str]:
    """The same for a terminal, what to do without a name before it."""
    if not rows:
        return []
    rest = [(name, words) for name, words in rows[1:] if name != COMMAND]
    widest = max([_NARROWEST, *(len(name) + 1 for name, _ in rest)])
    return [
        *first_lines(rows, width),
        "",
        *(line for name, words in rest for line in hanging(f"  {name:{widest}}", words, width)),
        "",
    ]


def first_lines(rows: list[tuple[str, str]], width: int) -> list[str]:
    """Returns what to do alone, with the command to type where there is one, which may be longer
    than a line: a broken one cannot be copied.
    """
    commands = [words for name, words in rows if name == COMMAND]
    return [*wrap(rows[0][1], width), *commands]


def _first(diagnosis: Record, episode: Episode, rate: str, warmup: str, peak: float | None) -> str:
    if mended := _mended_first(diagnosis):
        return mended
    if episode.cause not in _RATE_CAUSES:
        return episode.attempt
    start = "train again" if episode.onset < 2 else f"go back to before update {episode.onset:,}"
    instead = "" if peak is None else f" instead of {learning_rate(peak)}"
    return f"{start} and take a peak rate of {rate}{instead}, with a warm-up of {warmup}"


def _mended_first(diagnosis: Record) -> str:
    """Returns the fix of an error of the model, or of a wrong skip path; "" without any."""
    errors = [one for one in diagnosis.findings if one.severity is Severity.ERROR]
    wrong = errors[0] if errors else skip_fault(diagnosis)
    return "" if wrong is None else f"fix the model first ({wrong.id}): {wrong.fix}"


def _found_in(diagnosis: Record) -> list[str]:
    found = [one for one in diagnosis.findings if one.severity is not Severity.INFO]
    return [f"the model has {joined([one.id for one in found[:3]])}"] if found else []


def _rate(diagnosis: Record, peak: float | None) -> tuple[str, str]:
    advice = diagnosis.advice
    usual = None if advice is None else advice.cautious_rate
    if advice is None or usual is None:
        if peak is None:
            return (
                "a tenth of yours",
                "neither the log nor the model says what it was and what is usual",
            )
        rate, why = (
            peak / _LESS_WITHOUT_BEST,
            "a tenth of yours; no usual rate is known for this model",
        )
    elif peak is None or usual < peak:
        span = advice.best_interval
        likely = (
            ""
            if span is None
            else f", range {learning_rate(span.low, 2)} to {learning_rate(span.high, 2)}"
        )
        rate, why = usual, _USUAL + likely
    else:
        rate = peak / _LESS_BELOW_BEST
        why = f"a third of yours, though {learning_rate(usual, 2)} is {_USUAL}"
    optimizer = "adam" if advice is None else advice.optimizer
    sure = surer_rate(rate, compared=diagnosis.compared, optimizer=optimizer)
    return learning_rate(rate, 2), f"{why}; to check: {sure}"


def _warmup(history: History, own: int) -> tuple[str, str]:
    least = max(own, min(UNTUNED_WARMUP, -(-history.last_update // 10)))
    which = (
        "as yours was"
        if least == own
        else "a tenth of this training, or 2 / (1 - β2) of Adam where that is less"
    )
    return counted(least, "update"), f"{which}; not tested"


def _why(diagnosis: Record, episode: Episode, peak: float | None) -> Iterator[str]:
    yield from episode.evidence
    yield from _found_in(diagnosis)
    stacks = [one for one in diagnosis.stacks if is_normed(one)]
    if stacks:
        which = joined(
            [f"{one.name or 'the model'} ({one.placement or 'unnamed'})" for one in stacks]
        )
        blocks = counted(sum(one.blocks for one in stacks), "block")
        yield f"a norm on every sum of {which} leaves {blocks} no path around the norms"
    advice = diagnosis.advice
    usual = None if advice is None else advice.cautious_rate
    if usual is not None and peak is not None and peak > usual:
        times, best = significant(peak / usual, 2), learning_rate(usual, 2)
        yield f"{learning_rate(peak)} is {times} times {best}, {_USUAL}"
