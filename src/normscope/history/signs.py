"""The signs in a log beside its loss: rates that rise too long, clips that went away, gradients
that one place takes.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from ..report.words import counted, learning_rate, percentage, significant
from .episodes import (
    LEAST,
    LEAST_UPDATES,
    NEVER_LEARNED,
    WINDOW,
    Episode,
    EpisodeKind,
    episodes,
    logarithms,
)
from .places import QUANTITIES, departures
from .record import History, LoggedSeries
from .restarts import begins_anew
from .schedule import schedule_signs


def signs(history: History) -> Iterator[Episode]:
    """All of them."""
    yield from schedule_signs(history)
    yield from _restarts(history)
    yield from _endless_rise(history)
    yield from _clip_gone(history)
    yield from _one_place(history)
    yield from _sharpening(history)
    yield from _left_course(history)


_FALLS = 0.2
_RISES = 0.5
_LEAST_RESTARTS = 2
"""A warm-up starts anew where a rate falls at once to a fifth, and then comes back to half of its
highest by steps.
"""


def _restarts(history: History) -> Iterator[Episode]:
    """A rate that drops at once and rises slowly, again and again. Cosine restarts do the reverse:
    they jump up.
    """
    rates = history.rate.finite()
    if len(rates.updates) < LEAST_UPDATES:
        return
    highest, values = max(rates.values), rates.values
    drops = [
        at
        for at, (before, value) in enumerate(pairwise(values), 1)
        if before >= _RISES * highest > 0 and value <= _FALLS * before
    ]
    slow = [
        at
        for at, end in pairwise([*drops, len(values)])
        if _climbs(values[at:end], _RISES * highest)
    ]
    if len(slow) == 1 and begins_anew(rates, slow[0]):
        yield _begun_anew(history, rates.updates[slow[0]], highest)
    if len(slow) < _LEAST_RESTARTS:
        return
    updates = [rates.updates[at] for at in slow]
    apart = int(median([b - a for a, b in pairwise(updates)]))
    yield Episode(
        kind=EpisodeKind.SIGN,
        cause="warmup-restarts",
        title="a warm-up that begins again and again",
        onset=updates[0],
        evidence=(
            f"the rate drops from up to {learning_rate(highest)} and rises again {len(updates)} "
            f"times, about every {counted(apart, 'update')}",
            _loss_words(history),
        ),
        attempt=(
            "step the schedule by updates over the whole training, and make it once, not in each "
            "epoch; leave it where restarts are meant, as in ReLoRA"
        ),
    )


def _begun_anew(history: History, update: int, highest: float) -> Episode:
    return Episode(
        kind=EpisodeKind.SIGN,
        cause="warmup-restarts",
        title="a schedule that starts again",
        onset=update,
        evidence=(
            f"the rate drops at update {update:,} and rises again as in the first updates, to "
            f"{learning_rate(highest)}: as after a resume that counts from 0",
            _loss_words(history),
        ),
        attempt=(
            "give the schedule the number of updates that were done when a training goes on "
            "(last_epoch, counted in updates), or load its state; leave it where a second stage "
            "is meant"
        ),
    )


def _climbs(values: tuple[float, ...], to: float) -> bool:
    """Tells whether a rate comes back to `to` over three values at least, each above the one
    before.
    """
    reached = next((at for at, value in enumerate(values) if value >= to), None)
    return (
        reached is not None
        and reached >= 3
        and all(b > a for a, b in pairwise(values[: reached + 1]))
    )


def _endless_rise(history: History) -> Iterator[Episode]:
    """A rate that has risen in a line up to the last update. Range tests, whose rates grow by
    factors, are none.
    """
    rates = history.rate.finite()
    if len(rates.updates) < LEAST_UPDATES or rates.values[-1] <= 0:
        return
    (first, *_, last), (begin, *_, end) = rates.updates, rates.values
    line = [begin + (end - begin) * (update - first) / (last - first) for update in rates.updates]
    if begin > _RISES * end or any(
        abs(v - w) > 0.05 * end for v, w in zip(rates.values, line, strict=True)
    ):
        return
    logs = [value for value in logarithms(history.loss.values) if value < math.inf]
    learns = (
        len(logs) >= 2 * LEAST and median(logs[:LEAST]) - median(logs[-LEAST:]) >= NEVER_LEARNED
    )
    yield Episode(
        kind=EpisodeKind.NOTE if learns else EpisodeKind.SIGN,
        cause="warmup-never-ends",
        title="a rate that still rises where the log ends",
        onset=last,
        evidence=(
            f"the rate rises in a line from {learning_rate(begin)} to {learning_rate(end)} at the "
            "last update",
            _loss_words(history),
        ),
        attempt=(
            "where the training was to end here, count the warm-up in the unit of the schedule's "
            "steps: updates, not batches, samples or epochs"
        ),
    )


def _loss_words(history: History) -> str:
    finite = history.loss.finite().values
    if len(finite) < 2:
        return "the loss is no number"
    begin, end = median(finite[:LEAST]), median(finite[-LEAST:])
    return f"the loss goes from {significant(begin, 3)} to {significant(end, 3)} in all"


_SAME, _ABOVE = 1e-3, 1.05
_MOSTLY = 0.6


def _clip_gone(history: History) -> Iterator[Episode]:
    """Norms that were the same number in most updates, as clipped ones are, and then go beyond it
    for good.
    """
    norms = history.gradient_norm.finite()
    if len(norms.updates) < LEAST_UPDATES:
        return
    ((shown, _),) = Counter(f"{value:.3g}" for value in norms.values).most_common(1)
    clip = float(shown)
    pinned = [at for at, value in enumerate(norms.values) if abs(value - clip) <= _SAME * clip]
    if clip <= 0 or len(pinned) < LEAST or len(pinned) < _MOSTLY * (pinned[-1] - pinned[0] + 1):
        return
    before, after = norms.values[: pinned[-1] + 1], norms.values[pinned[-1] + 1 :]
    over = [at for at, value in enumerate(after) if value > _ABOVE * clip]
    if max(before) > _ABOVE * clip or len(over) < max(_MOSTLY * len(after), LEAST / 2):
        return
    onset = norms.updates[pinned[-1] + 1 + over[0]]
    times = median(after) / clip
    yield Episode(
        kind=EpisodeKind.SIGN,
        cause="clip-went-away",
        title="a clip that most updates had, and that later ones have not",
        onset=onset,
        evidence=(
            f"the gradient's norm was {significant(clip, 3)} in "
            f"{percentage(len(pinned) / len(before), 0)} of the updates up to "
            f"{norms.updates[pinned[-1]]:,}, as a clipped one is, and never more",
            f"from update {onset:,} on it is {significant(times, 2)} times that in the median",
        ),
        attempt=(
            "clip as before the change (an optimiser that clips by itself takes it away with it), "
            f"or lower the rate {significant(times, 2)} times where updates grow with the "
            "gradient, as SGD's do"
        ),
    )


_ALMOST_ALL, _BEFORE = 0.95, 0.5
OUTSIDE = "outside the sub-layers: embedding or output"


def _one_place(history: History) -> Iterator[Episode]:
    """Gradients of which one place has come to take 95 %, of the squared norm, and half or less at
    first.
    """
    sublayers = {
        place: one.finite() for place, one in history.of_sublayers("gradient_norm").items()
    }
    whole = history.gradient_norm.finite()
    if len(sublayers) < 2 or not whole:
        return
    updates = sorted(set(whole.updates).intersection(*(one.updates for one in sublayers.values())))
    if len(updates) < LEAST:
        return
    shares = {}
    for place, one in sublayers.items():
        shares[place] = [_share(one, whole, update) for update in updates]
    in_sublayers = [sum(several) for several in zip(*shares.values(), strict=True)]
    shares[OUTSIDE] = [1 - min(1.0, share) for share in in_sublayers]
    for place, found in shares.items():
        late = found[-(len(found) // 4) :]
        if median(found[: len(found) // 4]) > _BEFORE or median(late) < _ALMOST_ALL:
            continue
        clip, norm = history.recipe.clip_norm, median(whole.since(updates[-len(late)]).values)
        clipped = clip is None or norm > clip
        harmless = history.recipe.divides is True or not clipped
        why = (
            "the optimiser divides each entry by its own size, so that the others' updates do not "
            "shrink"
            if history.recipe.divides
            else "the norm stays below the clip, so that the others' updates do not shrink"
            if harmless
            else (
                f"a clip of the whole norm, {significant(norm, 3)} now, shrinks the updates of all "
                "others"
            )
        )
        yield Episode(
            kind=EpisodeKind.NOTE if harmless else EpisodeKind.SIGN,
            cause="one-place-takes-gradient",
            title="a gradient that is nearly all one place's",
            onset=next(
                update for update, share in zip(updates, found, strict=True) if share >= _ALMOST_ALL
            ),
            place=place,
            evidence=(
                f"{percentage(median(late), 0)} of the squared norm, {percentage(found[0], 0)} at "
                "first",
                why,
            ),
            attempt="leave it, and watch it"
            if harmless
            else "clip by groups, or take a lower rate for this place",
        )


def _share(one: LoggedSeries, whole: LoggedSeries, update: int) -> float:
    norm, part = whole.at(update), one.at(update)
    return (part / norm) ** 2 if norm and part else 0.0


_SHARPER = 3.0
_FROM = 2.0
_LARGE_LOGIT = 20.0
"""The size from which on logits that have grown threefold are said to grow, from the update on at
which they had doubled for good. Of logits themselves the median that they come to is asked too: a
softmax of 20 and 0 takes one of a million keys.
"""
_LEVEL = 1.05


def _sharpening(history: History) -> Iterator[Episode]:
    """Attentions whose queries and keys outgrow their values, so that their softmax takes fewer and
    fewer keys.
    """
    known = {place: of for place, parts in history.attentions.items() if (of := _logit_size(parts))}
    grown = {
        place: found
        for place, of in known.items()
        if (
            "logit" not in history.attentions[place]
            or median(of.values[-max(1, len(of.values) // 4) :]) >= _LARGE_LOGIT
        )
        and (found := _growth(of)) is not None
    }
    if not grown:
        return
    place = max(grown, key=lambda one: grown[one][1])
    onset, times = grown[place]
    what = "the norm of queries times that of keys, over values' squared,"
    if "logit" in history.attentions[place]:
        what = "attention's logits"
    values = known[place].values
    quarter = len(values) // 4
    levels = median(values[-quarter:]) <= _LEVEL * median(values[-2 * quarter : -quarter])
    yield Episode(
        kind=EpisodeKind.NOTE if levels else EpisodeKind.SIGN,
        cause="attention-logits-grow",
        title="queries and keys that outgrow what they weigh",
        onset=onset,
        place=place,
        evidence=(
            f"{what} is {significant(times, 2)} times what it was, twice that from update "
            f"{onset:,} on",
            f"so it is in {len(grown)} of {counted(len(known), 'attention')}",
            "it has come to a level" if levels else "it still grows where the log ends",
            _loss_words(history),
        ),
        attempt="watch it, and go on"
        if levels
        else "norm queries and keys (arXiv:2302.05442), cap the logits, or take a lower rate or "
        "more decay for the matrices of queries and keys; where a softmax takes one key alone, "
        "its gradient is gone (arXiv:2309.14322)",
    )


def _logit_size(parts: Mapping[str, LoggedSeries]) -> LoggedSeries:
    """Logits, or what they grow like against values; empty of an attention of which the log lacks
    either.
    """
    if "logit" in parts:
        return parts["logit"].finite()
    query, key, value = (
        parts.get(name, LoggedSeries()).finite() for name in ("query", "key", "value")
    )
    updates = set(query.updates).intersection(key.updates, value.updates)
    products = ((u, query.at(u), key.at(u), value.at(u)) for u in updates)
    return LoggedSeries.of({u: q * k / v**2 for u, q, k, v in products if q and k and v})


def _growth(of: LoggedSeries) -> tuple[int, float] | None:
    """Returns the update from which on a series has doubled for good, and how many times it has
    grown; None where it has not.
    """
    if len(of.updates) < LEAST:
        return None
    quarter = len(of.values) // 4
    begin, end = median(of.values[:quarter]), median(of.values[-quarter:])
    if begin <= 0 or end < _SHARPER * begin:
        return None
    below = [at for at, value in enumerate(of.values) if value < _FROM * begin]
    return of.updates[min(below[-1] + 1, len(of.updates) - 1)], end / begin


def _left_course(history: History) -> Iterator[Episode]:
    """Sub-layers that leave their own course before the loss does: a warning until it is seen what
    the loss does.
    """
    found = departures(history)
    departed = episodes(history) if found else []
    told = -1
    for update, leaders in found:
        # What the loss said before, or says at once, is told as an episode, with the place.
        if any(one.onset <= update <= (one.end or history.last_update) for one in departed):
            continue
        later = next((one.onset for one in departed if one.onset > update), None)
        if later is not None and later == told:
            continue
        told = later or told
        since = len(history.loss.since(update).updates) - 1
        most = max(leaders, key=lambda one: one.times)
        places = {one.sublayer for one in leaders}
        loss = (
            f"the loss left its course {counted(later - update, 'update')} later"
            if later is not None
            else f"the loss has kept its course for {counted(since, 'update')} since"
        )
        yield Episode(
            kind=EpisodeKind.NOTE if later is not None or since >= WINDOW else EpisodeKind.SIGN,
            cause="left-course-before-loss",
            title="sub-layers that left their course before the loss did",
            onset=update,
            place=most.sublayer,
            evidence=(
                f"{QUANTITIES[most.quantity]} is {significant(most.times, 2)} times its level "
                "before",
                f"{len(places)} of {counted(len(history.sublayers), 'sub-layer')} left their "
                "course",
                loss,
            ),
            attempt=(
                "look at what changed at this update (schedule, data, optimiser, code); the safe "
                "way on is from the checkpoint before it, at a lower rate"
            ),
        )
