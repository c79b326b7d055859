"""The claims on gradients throughout a training, and the memo's open question."""

import math
from collections.abc import Mapping, Sequence

from normscope.measure import Estimate
from normscope.report.words import counted, joined

from ..engine.claims import claim, judged, listed, shown_factor
from ..engine.estimates import with_interval
from ..engine.judging import Answer, all_hold, holm
from ..engine.page import Claim
from .config import ConditioningConfig
from .courses import WORSE, WORST, PlacementGradients, times_worse

_AT_START = ("spread, at the start", "stable rank, at the start")
_LATER = tuple(what for what in WORSE if what not in _AT_START)
_HIGHWAY = (
    "the memo on stability, key findings: Pre-LN “keeps gradients well-conditioned at "
    "initialization”"
)
_QUESTION = (
    "the memo on stability, open question: a scheme that “keeps gradients well-conditioned "
    "throughout training while matching post-LN’s final accuracy”; measured here, not proved"
)


def claims(
    config: ConditioningConfig, found: Mapping[str, PlacementGradients], unigram_nats: float
) -> list[Claim]:
    """Returns those of Pre-LN beside Post-LN, at the start and throughout; those of every
    placement; and the open question.
    """
    standard, post = found[config.standard], found[config.post]
    learned = [one for one in found.values() if one.learned(unigram_nats)]
    stays = _stays(config, learned, standard)
    low = _as_low(config, learned, post)
    return [
        # What is so before the first update does not rest on what is learned after it.
        _beside_post(
            standard, post, list(found.values()), "at the start", "at initialisation", _AT_START
        ),
        _beside_post(standard, post, learned, "throughout", "at its worst and at its end", _LATER),
        _conditioned(config, found, learned, standard, stays),
        _ends_as_low(config, found, learned, post, low),
        _open_question(config, found, stays, low),
    ]


def _beside_post(
    standard: PlacementGradients,
    post: PlacementGradients,
    learned: Sequence[PlacementGradients],
    when: str,
    words: str,
    whats: Sequence[str],
) -> Claim:
    decides = all(one in learned and one.courses for one in (standard, post))
    worse: dict[str, Estimate | None] = dict.fromkeys(whats)
    if decides:
        worse = {what: times_worse(standard, post, what) for what in whats}
    return claim(
        f"{standard.title} is better conditioned than {post.title} {when}",
        f"The gradients of {standard.title} are better conditioned than those of {post.title} "
        f"{words}: their norms spread less over the blocks, and their stable rank is higher.",
        source=_HIGHWAY,
        value=f"how many times worse {standard.title}'s are (of ranks the inverse)",
        holds=worse,
        greatest=0.0,
        shown=shown_factor,
        beside="" if decides else "One of both did not learn, which decides nothing",
    )


def _stays(
    config: ConditioningConfig,
    learned: Sequence[PlacementGradients],
    standard: PlacementGradients,
) -> dict[str, Answer]:
    """Tells by placement whether its worst spread and its worst rank are those of the standard, a
    factor apart; all corrected together. The standard's own are so by definition.
    """
    if standard not in learned:
        return {}
    edge = math.log(config.conditioned_factor)
    others = [one for one in learned if one is not standard]
    answers = holm(
        {
            (one.placement, what): (times_worse(one, standard, what), -math.inf, edge)
            for one in others
            for what in WORST
        }
    )
    found: dict[str, Answer] = {standard.placement: True}
    for one in others:
        found[one.placement] = all_hold([answers[one.placement, what] for what in WORST])
    return found


def _as_low(
    config: ConditioningConfig, learned: Sequence[PlacementGradients], post: PlacementGradients
) -> dict[str, Answer]:
    """Tells by placement whether it ends as low as Post-LN; all corrected together."""
    return holm(
        {
            one.placement: (one.ladder.less(post.ladder), -math.inf, config.matching_nats)
            for one in learned
            if one is not post
        }
    )


def _conditioned(
    config: ConditioningConfig,
    found: Mapping[str, PlacementGradients],
    learned: Sequence[PlacementGradients],
    standard: PlacementGradients,
    stays: Mapping[str, Answer],
) -> Claim:
    others = [one for one in found.values() if one is not standard]
    worse = {
        f"{one.title}, {what}": times_worse(one, standard, what)
        for one in others
        if one.placement in stays
        for what in WORST
    }
    words = listed(worse, shown_factor) if worse else "none is known"
    return judged(
        name=f"as well conditioned as {standard.title} throughout",
        statement="Throughout its training a placement's gradients are conditioned at most "
        f"{config.conditioned_factor:g} times worse than {standard.title}'s at their worst: in the "
        "spread of their norms over blocks, and in their stable rank.",
        source="the first half of the open question",
        found=f"how many times worse: {words}. {_corrected(2 * len(stays) - 2, others, learned)}",
        holds={one.title: stays.get(one.placement) for one in others},
    )


def _ends_as_low(
    config: ConditioningConfig,
    found: Mapping[str, PlacementGradients],
    learned: Sequence[PlacementGradients],
    post: PlacementGradients,
    low: Mapping[str, Answer],
) -> Claim:
    others = [one for one in found.values() if one is not post]
    return claim(
        f"ends as low as {post.title}",
        f"A placement ends at most {config.matching_nats:g} nats above {post.title}, each at its "
        "own best rate.",
        source="the second half of the open question",
        value=f"last loss less {post.title}'s, in nats",
        holds={
            one.title: one.ladder.less(post.ladder) if one.placement in low else None
            for one in others
        },
        decided={one.title: low.get(one.placement) for one in others},
        beside=_corrected(len(low), others, learned),
    )


def _corrected(
    count: int, asked: Sequence[PlacementGradients], learned: Sequence[PlacementGradients]
) -> str:
    told = f"Corrected by Holm over {counted(max(0, count), 'comparison')}"
    left = [one.title for one in asked if one not in learned]
    if left:
        told += f"; did not learn, so that they decide nothing: {joined(left)}"
    return told


def _open_question(
    config: ConditioningConfig,
    found: Mapping[str, PlacementGradients],
    stays: Mapping[str, Answer],
    low: Mapping[str, Answer],
) -> Claim:
    """Makes the claim that both hold, for every placement but Post-LN itself."""
    post = found[config.post]
    others = [one for one in found.values() if one is not post]
    holds = {
        one.title: all_hold([stays.get(one.placement), low.get(one.placement)]) for one in others
    }
    lowest = min(others, key=lambda one: one.ladder.mean_nats)
    less = with_interval(lowest.ladder.less(post.ladder))
    both = [title for title, answer in holds.items() if answer]
    words = joined(both) if both else "none surely"
    return judged(
        name="the open question, at this size",
        statement="A placement keeps its gradients as well conditioned as "
        f"{found[config.standard].title}'s throughout its training, and ends as low as "
        f"{post.title}.",
        source=_QUESTION,
        found=f"both: {words}. The lowest of all is {lowest.title}, {less} nats less "
        f"{post.title}'s",
        holds=holds,
    )
