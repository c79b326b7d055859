"""What the paper says of warm-up, beside what the runs of a comparison show of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...placement import named
from ...report.words import counted, joined
from .verdict import MOST_OF_THE_GAIN, Judged

NEEDS_WARMUP = {"post-ln": True, "pre-ln": False}
"""By placement, what Xiong et al. 2020 (arXiv:2002.04745) conclude in section 5; they speak of no other."""
_SAID = "Xiong et al. (2020) say that Post-LN needs warm-up and Pre-LN does not"


class Seen(StrEnum):
    """What the runs of one placement show in one setting, alike but for their warm-up."""

    NEEDED = "learned with warm-up, and without it not or much less"
    NOT_NEEDED = "learned without warm-up too (a higher rate may need it)"
    HARMFUL = "learned without warm-up alone"
    NO_BARE_RUN = "was not trained without warm-up"
    NO_WARM_RUN = "did not learn without warm-up and was not trained with it"
    NEVER = "did not learn with the warm-up tried either"
    OPEN = "has runs without a result, or seeds that disagree"
    ABSENT = "was not compared"


class Answer(StrEnum):
    """How that stands to what the paper says."""

    AGREES = "agree on"
    DIFFERS = "differ on"
    OPEN = "cannot say for"


_ANSWERS = {
    (True, Seen.NEEDED): Answer.AGREES,
    # That Post-LN learned without warm-up may be for a low rate, unless warm-up took it away.
    (True, Seen.HARMFUL): Answer.DIFFERS,
    (False, Seen.NOT_NEEDED): Answer.AGREES,
    (False, Seen.HARMFUL): Answer.AGREES,
    (False, Seen.NEEDED): Answer.DIFFERS,
}
"""By whether the paper says that the placement needs warm-up, and what was seen; all else is open."""


@dataclass(frozen=True, slots=True)
class _View:
    """What one placement shows in one setting."""

    placement: str
    setting: str
    seen: Seen
    answer: Answer
    least_seeds: int


def what_the_paper_says(configurations: Sequence[Judged], unigram_nats: float) -> str:
    """A sentence: what it says, and whether the runs agree, differ or cannot say, and why they cannot."""
    others = list(dict.fromkeys(one.row.name.group for one in configurations if one.row.placement not in NEEDS_WARMUP))
    silent = joined(others) if len(others) <= 3 else f"the other {counted(len(others), 'placement')}"
    nothing = f"; of {silent} it says nothing" if others else ""
    views = list(_views(configurations, unigram_nats))
    if {view.seen for view in views} == {Seen.ABSENT}:
        return f"{_SAID}, and these runs cannot say whether that is so, as neither was compared{nothing}."
    clauses = [
        f"{answer} {joined(subjects)}"
        for answer in (Answer.AGREES, Answer.DIFFERS)
        if (subjects := [_subject(views, name, answer) for name in NEEDS_WARMUP if _of(views, name, answer)])
    ]
    for name in NEEDS_WARMUP:
        own = [view for view in views if view.placement == name]
        if len(_of(views, name, Answer.OPEN)) == len(own):
            reasons = " or ".join(dict.fromkeys(view.seen for view in own))
            clauses.append(f"{Answer.OPEN} {named(name).title}, which {reasons}")
    few = any(view.least_seeds == 1 for view in views if view.answer is not Answer.OPEN)
    return f"{_SAID}: {'as far as one seed can say, ' if few else ''}these runs {joined(clauses)}{nothing}."


def _views(configurations: Sequence[Judged], unigram_nats: float) -> Iterator[_View]:
    for placement, needed in NEEDS_WARMUP.items():
        own = [one for one in configurations if one.row.placement == placement]
        if not own:
            yield _View(placement, "", Seen.ABSENT, Answer.OPEN, 0)
        for setting in dict.fromkeys(one.row.setting for one in own):
            alike = [one for one in own if one.row.setting == setting]
            seen = _seen(alike, unigram_nats)
            least = min(len(one.row.seeds) for one in alike)
            yield _View(placement, setting, seen, _ANSWERS.get((needed, seen), Answer.OPEN), least)


def _seen(alike: Sequence[Judged], unigram_nats: float) -> Seen:
    """From configurations of one placement and setting, which differ in warm-up alone."""
    bare = next((one for one in alike if not one.row.warmup_updates), None)
    warm = [one for one in alike if one.row.warmup_updates]
    if bare is None:
        return Seen.NO_BARE_RUN
    learned_warm = [one for one in warm if one.learned]
    undecided = any(one.learned is None for one in warm)
    if bare.learned is None:
        return Seen.OPEN
    if not bare.learned:
        if learned_warm:
            return Seen.NEEDED
        return Seen.OPEN if undecided else Seen.NEVER if warm else Seen.NO_WARM_RUN
    if not learned_warm:
        return Seen.NOT_NEEDED if undecided or not warm else Seen.HARMFUL
    gains = [unigram_nats - loss for loss in bare.row.losses]
    most = max(learned_warm, key=lambda one: unigram_nats - one.row.mean_loss)
    warm_gains = [unigram_nats - loss for loss in most.row.losses]
    if max(gains) < MOST_OF_THE_GAIN * min(warm_gains):
        return Seen.NEEDED
    return Seen.NOT_NEEDED if min(gains) >= MOST_OF_THE_GAIN * max(warm_gains) else Seen.OPEN


def _of(views: Sequence[_View], placement: str, answer: Answer) -> list[_View]:
    return [view for view in views if view.placement == placement and view.answer is answer]


def _subject(views: Sequence[_View], placement: str, answer: Answer) -> str:
    """The placement, and in which settings where it was trained in others too."""
    settings = [view.setting for view in _of(views, placement, answer)]
    everywhere = len(settings) == sum(view.placement == placement for view in views)
    return named(placement).title + ("" if everywhere else f" at {joined(settings)}")
