"""Arms compared seed by seed: runs of one seed share their initial weights and the order of their batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from normscope.compare.reading.verdict import MOST_OF_THE_GAIN
from normscope.evidence.estimates import estimate
from normscope.evidence.judging import Answer, between
from normscope.measure import Estimate
from normscope.report.words import number, span

from .arms import Arm
from .curves import Curves


def finals(curves: Curves, arm: Arm) -> list[float]:
    """The last losses in nats, one a seed."""
    return [curve.final_nats for curve in curves[arm]]


def excess(curves: Curves, arm: Arm, other: Arm) -> Estimate:
    """By how many nats the arm ends above the other, over seeds taken in pairs."""
    return estimate([a - b for a, b in zip(finals(curves, arm), finals(curves, other), strict=True)])


def gain_kept(curves: Curves, arm: Arm, best: Arm, unigram_nats: float) -> Estimate | None:
    """The arm's gain over the unigram baseline as a share of the best one's; None where that has none for certain."""
    gains = [unigram_nats - loss for loss in finals(curves, best)]
    if between(estimate(gains), least=0.0) is not True:
        return None
    own = [unigram_nats - loss for loss in finals(curves, arm)]
    return estimate([a / b for a, b in zip(own, gains, strict=True)])


def is_essential(kept: Estimate | None) -> Answer:
    """Whether what is kept without it is less than most of the gain; None where nothing was gained with it."""
    return None if kept is None else between(kept, greatest=MOST_OF_THE_GAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of a gap between a run without warm-up and one with it: the share of the summed rate, by two ways and their mean.

    Four runs: without and with warm-up, each with the little summed rate of the paper's run without and with the large
    one of that with. From the first corner to the last there are two ways. Their mean is the Shapley value of the
    summed rate, and one minus it that of the warm-up.
    """

    gap: Estimate
    """In nats."""
    given_back: Estimate
    """Without warm-up: what raising the summed rate closes."""
    taken_away: Estimate
    """With warm-up: what lowering the summed rate opens."""
    summed_rate: Estimate
    """The mean of both."""

    def decided(self, greatest: float) -> dict[str, Answer]:
        """By way, whether the share is at most that; None where it is not certain that there is a gap."""
        ways = {"given back without warm-up": self.given_back, "taken away with warm-up": self.taken_away}
        there = between(self.gap, least=0.0) is True
        return {name: between(way, greatest=greatest) if there else None for name, way in ways.items()}


def shares(curves: Curves, *, without: Arm, long: Arm, without_equal_sum: Arm, long_equal_sum: Arm) -> Shares:
    """The arms are those of figure 2's `Group`."""
    rows = list(zip(*(finals(curves, arm) for arm in (without, long, without_equal_sum, long_equal_sum)), strict=True))
    gaps = [a - b for a, b, _, _ in rows]
    back = [(a - e) / gap for (a, _, e, _), gap in zip(rows, gaps, strict=True)]
    away = [(d - b) / gap for (_, b, _, d), gap in zip(rows, gaps, strict=True)]
    return Shares(
        gap=estimate(gaps),
        given_back=estimate(back),
        taken_away=estimate(away),
        summed_rate=estimate([(x + y) / 2 for x, y in zip(back, away, strict=True)]),
    )


def updates_shares(curves: Curves, slow: Arm, fast: Arm) -> list[float | None]:
    """For each seed: updates after which `fast` is where `slow` ends, as a part of all; None where it never is."""
    found: list[float | None] = []
    for one, other in zip(curves[slow], curves[fast], strict=True):
        reached = other.updates_to(one.final_nats)
        found.append(None if reached is None else reached / slow.updates)
    return found


def sooner(found: Sequence[float | None]) -> Answer:
    """Whether it is there before all updates are over; one seed does not decide it, nor do seeds that differ."""
    reached = [share for share in found if share is not None]
    if len(reached) == len(found):
        return between(estimate(reached), greatest=1.0)
    return False if not reached and len(found) > 1 else None


def several(values: Sequence[float], decimals: int = 3) -> str:
    """One number, or the range of several."""
    return number(values[0], decimals) if len(values) == 1 else span(values, decimals)


def bleu_of(arm: Arm, curves: Curves) -> str:
    """The last BLEU of its seeds, in words."""
    return several([curve.final_bleu for curve in curves[arm]], 1)


def caveat(curves: Curves) -> str:
    """A sentence to add where there is one seed."""
    return " One seed has no interval, and decides nothing." if len(next(iter(curves.values()))) == 1 else ""
