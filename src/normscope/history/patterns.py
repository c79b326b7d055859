"""The known causes of a spike, a rise or a plateau: what speaks for each, and what to try."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from ..optim.groups import Clipping
from ..report.words import counted, learning_rate, percentage, significant
from .episodes import ALIKE, Episode, EpisodeKind, max_similarity
from .flat import Standing, flat_words, frequencies_nats, level_words
from .places import GROWN, alike_at, grown_at, growth, run_away
from .record import History


@dataclass(frozen=True, slots=True, kw_only=True)
class _PatternMatch:
    """The fit of a pattern: one that fits has evidence."""

    evidence: tuple[str, ...] = ()
    """The evidence for it, in words."""
    missing: tuple[str, ...] = ()
    """The measurements that would decide; empty where the recorded ones do."""


_NO = _PatternMatch()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """A known pattern."""

    id: str
    title: str
    judge: Callable[[History, Episode], _PatternMatch]
    attempt: str
    """The remedy to try."""
    where: Literal["sub-layer", "output layer", "whole model"] = "whole model"
    """The place in which it begins: one sub-layer that may lead the others, the output layer, or
    nothing in particular.
    """


def _fits(*evidence: str) -> _PatternMatch:
    return _PatternMatch(evidence=evidence)


def _unless_recorded(*missing: str) -> _PatternMatch:
    """Returns the match of a pattern without evidence, because the log lacks the measurements."""
    return _PatternMatch(missing=missing)


def _judge_clip(history: History, episode: Episode) -> _PatternMatch:
    """Fits a plateau whose gradients are clipped to less than a thousandth, with an optimiser that
    feels it.
    """
    if episode.kind is not EpisodeKind.PLATEAU:
        return _NO
    norms = [v for v in history.gradient_norm.finite().since(episode.onset).values if v > 0]
    clip = history.recipe.clip_norm
    if not norms or clip is None:
        return _unless_recorded("the gradient's norm before clipping, and what it is clipped to")
    norm = median(norms)
    rates = [v for v in history.rate.finite().since(episode.onset).values if v > 0]
    rate = median(rates) if rates else None
    # Without ε and the gradient's entries an optimiser that divides is taken to divide well.
    epsilon = 0.0 if history.recipe.divides else None
    clipping = Clipping(gradient_norm=norm, clip_norm=clip, rate=rate or 1.0, epsilon=epsilon)
    if not clipping.is_far_below:
        return _NO
    if history.recipe.divides is None:
        return _unless_recorded(
            "the optimiser's class: SGD's updates shrink with the clip, Adam's do not"
        )
    if not clipping.hides_rate:
        return _NO
    felt = ""
    if rate is not None:
        felt = (
            f", so that the rate of {learning_rate(rate)} acts as "
            f"{learning_rate(clipping.effective_rate)}"
        )
    return _fits(
        f"the gradient's norm is {significant(norm, 3)} and is clipped to "
        f"{significant(clip, 3)}{felt}"
    )


_SWAMPS = 0.3
"""An update that ε alone shapes is rate · gradient / ε; from this share of it, ε is most of the
denominator.
"""


def _judge_epsilon(history: History, episode: Episode) -> _PatternMatch:
    """Fits a plateau where sub-layers move by rate · (clipped gradient) / ε, as they do where ε is
    all that divides.

    Adam's update is rate · m / (√v + ε). Where ε is lost beside √v, it is far smaller than rate ·
    gradient / ε.
    """
    if episode.kind is not EpisodeKind.PLATEAU or history.recipe.divides is False:
        return _NO
    epsilon = history.recipe.epsilon
    moved, norms = history.of_sublayers("update_norm"), history.of_sublayers("gradient_norm")
    if epsilon is None or not moved or not history.rate:
        return _unless_recorded(
            "ε, the rate, and how far each update moves the sub-layers (Monitor.stepped)"
        )
    shares = [
        step * epsilon / whole
        for place, series in moved.items()
        for update, step in zip(series.updates, series.values, strict=True)
        if update >= episode.onset
        and (gradient := norms[place].at(update) if place in norms else None)
        and (rate := history.rate.at(update))
        and (whole := rate * gradient * _clipped(history, update)) > 0
    ]
    if not shares or median(shares) < _SWAMPS:
        return _NO
    share = median(shares)
    return _fits(
        f"with ε = {significant(epsilon, 2)} updates are within a factor of "
        f"{significant(max(share, 1 / share), 2)} of rate · gradient / ε: it is ε that divides "
        "them, and not the gradient's own size"
    )


def _clipped(history: History, update: int) -> float:
    norm, clip = history.gradient_norm.at(update), history.recipe.clip_norm
    return 1.0 if not norm or clip is None else min(1.0, clip / norm)


def _judge_logits(history: History, episode: Episode) -> _PatternMatch:
    """Fits a rise at which logits have grown threefold, while the sub-layers' own updates have
    not.
    """
    if episode.kind is EpisodeKind.PLATEAU:
        return _NO
    if not history.logit_deviation.before(episode.onset) or not history.logit_deviation.since(
        episode.onset
    ):
        return _unless_recorded("the logits' standard deviation (Monitor)")
    found = grown_at(history, episode)
    steps = growth(history, "update_ratio", episode.onset)
    if found is None or run_away(history, episode) is not None or (steps or 0.0) >= GROWN:
        return _NO
    update, times = found
    return _fits(
        f"at update {update:,} the logits' standard deviation is {significant(times, 2)} times its "
        "median before",
        "the sub-layers' updates have not grown as much: what grows is the output layer",
    )


def _judge_collapse(history: History, episode: Episode) -> _PatternMatch:
    """Fits a loss that stays up while the tokens that leave a stack have become alike, which before
    they were not.
    """
    if episode.kind is EpisodeKind.SPIKE:
        return _NO
    if not any("end_correlation" in stack for stack in history.stacks.values()):
        return _unless_recorded("the mean cosine similarity between tokens (Monitor)")
    alike = alike_at(history, episode)
    grown = grown_at(history, episode)
    if alike is None or run_away(history, episode) is not None or (grown and grown[0] < alike):
        # One sub-layer has run away, or the output layer: the collapse is what came of it.
        return _NO
    now, before = max_similarity(history, alike), max_similarity(history, episode.onset - 1)
    if episode.onset > 1 and before >= ALIKE:
        return _NO
    was = f", {significant(before, 2)} before" if before else ""
    evidence = [
        f"at update {alike:,} the mean cosine similarity between the tokens that leave the stack "
        f"is {significant(now, 2)}{was}"
    ]
    limit = frequencies_nats(history.recipe)
    if limit is not None and episode.loss_worst >= limit:
        evidence.append(
            "the loss is that of a model that knows nothing but how frequent tokens are"
        )
    return _fits(*evidence)


_LONGEST = 2
"""Values of the loss that stand out: a rough batch may be followed by a small echo."""


def _judge_batch(history: History, episode: Episode) -> _PatternMatch:
    """Fits a spike that is over at once. What weights have learned is not learned again in two
    updates.
    """
    if episode.kind is not EpisodeKind.SPIKE or episode.end is None:
        return _NO
    loss = history.loss
    out = loss.count_between(episode.onset, episode.end)
    if out > _LONGEST or loss.spacing > 1:
        return _NO
    after = loss.at(episode.end)
    words = [
        f"the loss stands out for {counted(out, 'update')} and is back at {significant(after, 3)}"
    ]
    norm, before = (
        history.gradient_norm.at(episode.onset),
        history.gradient_norm.at(episode.onset - 1),
    )
    if norm and before:
        words.append(
            f"the gradient's norm is {significant(norm, 3)} there, {significant(before, 3)} the "
            "update before"
        )
    return _fits(*words)


_NEAR_PEAK = 0.5
"""Share of the highest rate so far from which a rate is near its peak."""
LARGE = 0.1
"""An update of a tenth of the weights' own norm; healthy trainings have a thousandth."""


def _judge_rate(history: History, episode: Episode) -> _PatternMatch:
    """Fits a rise near the highest rate so far, or one at which a sub-layer's updates have become
    large.
    """
    if episode.kind is EpisodeKind.PLATEAU:
        return _NO
    evidence = [*_updates(history, episode), *_peak(history, episode)]
    if evidence:
        return _fits(*evidence)
    known = {
        "the learning rate": history.rate,
        "update-to-weight ratios of the sub-layers (Monitor.stepped)": history.of_sublayers(
            "update_ratio"
        ),
    }
    return _unless_recorded(*(what for what, found in known.items() if not found))


def _updates(history: History, episode: Episode) -> list[str]:
    if (place := run_away(history, episode)) is not None:
        return [
            f"the updates of {place.sublayer} are {significant(place.times, 2)} times what they "
            "were"
        ]
    if (grown := growth(history, "update_ratio", episode.onset)) is not None and grown >= GROWN:
        return [f"the updates of most sub-layers are {significant(grown, 2)} times what they were"]
    ratios = [
        value
        for series in history.of_sublayers("update_ratio").values()
        for value in (
            *series.before(episode.onset).values[-1:],
            *series.since(episode.onset).values[:1],
        )
    ]
    if ratios and max(ratios) >= LARGE:
        return [f"an update changes weights by up to {percentage(max(ratios), 0)} of their norm"]
    return []


def _peak(history: History, episode: Episode) -> list[str]:
    """The rate at the onset is near its highest so far, which it has only just reached."""
    so_far = history.rate.finite().before(episode.onset + 1)
    if not so_far or len(set(so_far.values)) == 1:
        return []
    highest = max(so_far.values)
    reached = so_far.updates[so_far.values.index(highest)]
    # An update's effect on the loss may take as long as the rise to its rate took.
    if so_far.values[-1] < _NEAR_PEAK * highest or episode.onset > 2 * reached + 20:
        return []
    return [f"the rate had come to its highest, {learning_rate(highest)}, at update {reached:,}"]


def _judge_flat(history: History, episode: Episode) -> _PatternMatch:
    """Fits a plateau at which the model knows no more than how frequent tokens are."""
    if episode.flat is None or episode.standing is not Standing.FREQUENCIES:
        return _NO
    return _fits(flat_words(episode.flat), level_words(history.recipe, episode.flat.level_nats))


FLAT = "flat-before-learning"
"""The cause of a plateau of which nothing else is known ..."""
FLAT_TITLE = "flat before it had learned more than how frequent tokens are"
"""... and what it is."""
LITTLE = "learned-little"
"""The cause of a loss that hardly falls, little below where tokens' frequencies have it; no pattern
of a log alone, since it takes the rates that are usual for the model."""
PATTERNS = (
    _Pattern(
        id="clip-hides-rate",
        title="a clip that hides a rate a thousand times smaller",
        judge=_judge_clip,
        attempt=(
            "clip to about the gradient's usual norm, and then lower the rate: it has never acted "
            "as it is written"
        ),
    ),
    _Pattern(
        id="epsilon-swamps-gradients",
        title="Adam's ε larger than the gradients that it is added to",
        judge=_judge_epsilon,
        attempt="lower ε well below the gradient's usual entries (1e-8 is the default of most "
        "libraries)",
    ),
    _Pattern(
        id="post-ln-collapse",
        title="collapse: the stream no longer tells tokens apart, as in Post-LN at too high a rate",
        judge=_judge_collapse,
        attempt="go back to a checkpoint before the onset with a rate ten times lower or a longer "
        "warm-up, or take a placement that keeps a skip path free of norms (Pre-LN, Peri-LN, "
        "DeepNorm)",
    ),
    _Pattern(
        id="bad-batch",
        title="one bad batch of data; the weights were hardly changed",
        judge=_judge_batch,
        attempt="look at the data of that update (broken encoding, repeated lines, wrong labels); "
        "gradient clipping keeps such a batch from doing harm",
    ),
    _Pattern(
        id="logits-growing",
        title="logits that grow faster than the model learns",
        judge=_judge_logits,
        attempt=(
            "lower the rate of the output matrix, decay its weights, or add a z-loss (1e-4 · log² "
            "Z; PaLM, arXiv:2204.02311, section 5); norms on queries and keys where attention's "
            "scores grow too"
        ),
        where="output layer",
    ),
    _Pattern(
        id="rate-too-high",
        title="a rate too high for these weights",
        judge=_judge_rate,
        attempt=(
            "go back to a checkpoint before the onset with a lower peak rate or a longer warm-up; "
            "`normscope doctor` says which rates the model tolerates"
        ),
        where="sub-layer",
    ),
    _Pattern(
        id=FLAT,
        title=FLAT_TITLE,
        judge=_judge_flat,
        attempt=(
            "train again with a lower rate, or a longer warm-up; a placement that keeps a skip "
            "path free of norms (`normscope transplant --to pre-ln`) where every sum is "
            "normalised; the log does not say which, a comparison does"
        ),
    ),
)
"""The most particular first: the first that fits names the cause."""
