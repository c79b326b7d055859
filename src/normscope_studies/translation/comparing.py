"""Arms compared seed by seed: runs of one seed share their initial weights and the order of their batches."""

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from normscope.compare.verdict import MOST_OF_THE_GAIN
from normscope.evidence.estimates import estimate
from normscope.evidence.judging import Answer, between
from normscope.measure import Estimate, Sensitivity, lr_sensitivity
from normscope.report.words import number, span

from ..engine.page import Claim
from .config import TranslationArm
from .runs import ArmCurves


def finals(curves: ArmCurves, arm: TranslationArm) -> list[float]:
    """The last losses in nats, one a seed."""
    return [curve.final_nats for curve in curves[arm]]


def less(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """The mean difference over seeds taken in pairs."""
    return estimate([a - b for a, b in zip(values, others, strict=True)])


def excess(curves: ArmCurves, arm: TranslationArm, other: TranslationArm) -> Estimate:
    """By how many nats the arm ends above the other, over seeds taken in pairs."""
    return less(finals(curves, arm), finals(curves, other))


def gain_kept(curves: ArmCurves, arm: TranslationArm, best: TranslationArm, unigram_nats: float) -> Estimate | None:
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
class GapShares:
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


def gap_shares(
    curves: ArmCurves,
    *,
    without: TranslationArm,
    long: TranslationArm,
    without_equal_sum: TranslationArm,
    long_equal_sum: TranslationArm,
) -> GapShares:
    """Of the arms of one rate of figure 2."""
    rows = list(zip(*(finals(curves, arm) for arm in (without, long, without_equal_sum, long_equal_sum)), strict=True))
    gaps = [a - b for a, b, _, _ in rows]
    back = [(a - e) / gap for (a, _, e, _), gap in zip(rows, gaps, strict=True)]
    away = [(d - b) / gap for (_, b, _, d), gap in zip(rows, gaps, strict=True)]
    return GapShares(
        gap=estimate(gaps),
        given_back=estimate(back),
        taken_away=estimate(away),
        summed_rate=estimate([(x + y) / 2 for x, y in zip(back, away, strict=True)]),
    )


def updates_to(updates: Sequence[int], losses: Sequence[float], nats: float) -> float | None:
    """Where a curve first comes down to that loss, on a straight line between validations; None if never."""
    below = next((place for place, value in enumerate(losses) if value <= nats), None)
    if below is None:
        return None
    if below == 0:
        return float(updates[0])
    before, after = losses[below - 1], losses[below]
    share = (before - nats) / (before - after)
    return float(updates[below - 1] + share * (updates[below] - updates[below - 1]))


def updates_shares(curves: ArmCurves, slow: TranslationArm, fast: TranslationArm) -> list[float | None]:
    """For each seed: updates after which `fast` is where `slow` ends, as a part of all; None where it never is."""
    pairs = zip(curves[slow], curves[fast], strict=True)
    reached = [updates_to(other.updates, other.nll_nats, one.final_nats) for one, other in pairs]
    return [None if update is None else update / slow.updates for update in reached]


def sooner(shares: Sequence[float | None]) -> Estimate | Answer:
    """The share of the updates after which it is there; where it is not in every seed, whether it is in any.

    That it never is takes more than one seed to say, and seeds that differ decide nothing.
    """
    reached = [share for share in shares if share is not None]
    if len(reached) == len(shares):
        return estimate(reached)
    return False if not reached and len(shares) > 1 else None


def never(shares: Mapping[str, Sequence[float | None]]) -> str:
    """A sentence on the settings in which it is never there; empty where there is none."""
    missing = {setting: sum(share is None for share in row) for setting, row in shares.items()}
    words = [f"{setting}, in {count} of {len(shares[setting])}" for setting, count in missing.items() if count]
    return f"Never, by seeds: {'; '.join(words)}." if words else ""


def lr_sensitivity_of(arms: Sequence[TranslationArm], curves: ArmCurves) -> Sensitivity:
    """Of the last loss over the rates of arms that differ in their rate alone: as `measure.lr_sensitivity`.

    A run that did not stay finite counts as its loss at initialisation, that of its first batch. Raises ValueError for
    arms of fewer than two rates.
    """
    if len({arm.peak_lr for arm in arms}) < 2:
        raise ValueError("a sensitivity to the rate needs arms of two rates and more")
    by_rate = [curves[arm] for arm in arms]
    losses = [
        [run.nll_nats[-1] if run.ended == "finished" else math.inf for run in runs]
        for runs in zip(*by_rate, strict=True)
    ]
    return lr_sensitivity(losses, [run.first_nats for run in by_rate[0]])


def several(values: Sequence[float], decimals: int = 3) -> str:
    """One number, or the range of several."""
    return number(values[0], decimals) if len(values) == 1 else span(values, decimals)


def bleu_of(arm: TranslationArm, curves: ArmCurves) -> str:
    """The last BLEU of its seeds, in words."""
    return several([curve.final_bleu for curve in curves[arm]], 1)


def with_caveat(claims: Iterable[Claim], curves: Mapping[Any, Sized]) -> list[Claim]:
    """The claims; where there is one seed of each arm, each says that this decides nothing."""
    made, said = list(claims), "One seed has no interval, and decides nothing."
    if len(next(iter(curves.values()))) > 1:
        return made
    return [replace(one, found=f"{one.found.removesuffix('.')}. {said}") for one in made]
