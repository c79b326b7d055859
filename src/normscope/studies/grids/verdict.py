"""What became of a configuration, from where its runs ended."""

from enum import StrEnum

from ...report.comparison.contents import SeedResult, Status, Verdict
from ...report.words import Tone
from .facts import LEARNED_BELOW


class Outcome(StrEnum):
    """What became of one run."""

    LEARNED = "learned"
    BASELINE = "no better than the unigram baseline"
    DIVERGED = "diverged"
    FAILED = "failed"
    UNFINISHED = "unfinished"


_TONES = {Outcome.LEARNED: Tone.GOOD, Outcome.BASELINE: Tone.STUCK, Outcome.DIVERGED: Tone.BAD}
_OPEN = (Outcome.FAILED, Outcome.UNFINISHED)
"""What says nothing about the configuration yet."""


def outcome(result: SeedResult, unigram_nats: float) -> Outcome:
    """Judge one run by how it ended and, where it finished, by its loss beside that of the unigram baseline."""
    if result.status is Status.NON_FINITE:
        return Outcome.DIVERGED
    if result.status is Status.FAILED:
        return Outcome.FAILED
    if result.valid_loss_nats is None or result.status is not Status.FINISHED:
        return Outcome.UNFINISHED
    return Outcome.LEARNED if result.valid_loss_nats < LEARNED_BELOW * unigram_nats else Outcome.BASELINE


def verdict(seeds: list[SeedResult], unigram_nats: float) -> Verdict:
    """Judge a configuration: by the outcome that all its seeds share, or by how many of them learned."""
    outcomes = [outcome(result, unigram_nats) for result in seeds]
    several = set(outcomes)
    if len(several) == 1:
        return Verdict(outcomes[0], _TONES.get(outcomes[0], Tone.PLAIN))
    if learned := outcomes.count(Outcome.LEARNED):
        return Verdict(f"partly learned: {learned} of {len(outcomes)} seeds", Tone.MIXED)
    if still_open := [one for one in _OPEN if one in several]:
        return Verdict(" or ".join(still_open), Tone.PLAIN)
    return Verdict(f"{Outcome.DIVERGED} or {Outcome.BASELINE}", Tone.BAD)
