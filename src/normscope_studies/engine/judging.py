"""The one rule by which claims are judged, and the verdicts it gives.

An interval inside what is claimed bears the claim out, one outside speaks against it, and one that
reaches across the edge decides nothing. An answer is True, False or None for these three. Over
several settings the rule leans to no side: what most of them bear out is reproduced under
conditions, what more of them contradict than bear out is contradicted.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.measure import Estimate, t_beyond
from normscope.report.words import Tone, joined


class Verdict(StrEnum):
    """Names what became of a claim, in the order in which verdicts are counted up."""

    REPRODUCED = "reproduced"
    UNDER_CONDITIONS = "reproduced under conditions"
    IN_PART = "reproduced in part"
    """The verdict on a claim of which a part was tested, and that part was borne out."""
    VACUOUS = "held, but vacuous"
    """The verdict on a bound that lies so far from what it bounds that it could hardly fail."""
    UNDECIDED = "undecided"
    TOO_SMALL = "too small to tell"
    """The verdict on trainings too small for what is claimed to be seen in them, whichever way they
    came out.
    """
    CONTRADICTED = "contradicted"

    @property
    def tone(self) -> Tone:
        """The colour of its dot."""
        return _TONES[self]


_TONES = {
    Verdict.REPRODUCED: Tone.GOOD,
    Verdict.UNDER_CONDITIONS: Tone.MIXED,
    Verdict.IN_PART: Tone.MIXED,
    Verdict.VACUOUS: Tone.MIXED,
    Verdict.UNDECIDED: Tone.PLAIN,
    Verdict.TOO_SMALL: Tone.PLAIN,
    Verdict.CONTRADICTED: Tone.BAD,
}


def tally(verdicts: Iterable[Verdict]) -> str:
    """Counts the claims with each verdict: "5 reproduced, 1 undecided"; empty without any."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


Answer = bool | None
_Key = TypeVar("_Key", bound=Hashable)
_NAMED = 4
"""Settings in which a claim holds are named up to so many, and counted beyond."""
LEARNED_NATS = 0.05
"""A training has learned that ends at least so much below the unigram baseline; one that has not
decides nothing.
"""
WRONG_SHARE = 0.05
"""The share of families of claims that may have a wrong answer by chance."""
VACUOUS_FACTOR = 100.0
"""A bound at least so many times what it bounds says nothing of it: two orders of magnitude."""


def answers(low: ArrayLike, high: ArrayLike, least: ArrayLike, greatest: ArrayLike) -> list[Answer]:
    """For each interval [low, high], whether it lies in [least, greatest]; an interval of NaN
    decides nothing.
    """
    low, high = (
        np.atleast_1d(np.asarray(low, np.float64)),
        np.atleast_1d(np.asarray(high, np.float64)),
    )
    inside = (low >= least) & (high <= greatest)
    outside = (high < least) | (low > greatest)
    return [
        True if yes else False if no else None
        for yes, no in zip(inside.flat, outside.flat, strict=True)
    ]


def each_between(found: Estimate, least: ArrayLike, greatest: ArrayLike) -> list[Answer]:
    """For each place of an estimate, whether its interval lies between the bounds, which may differ
    by place.
    """
    return answers(found.low, found.high, least, greatest)


def between(
    found: Estimate, least: ArrayLike = -math.inf, greatest: ArrayLike = math.inf
) -> Answer:
    """Judges whether the intervals of all places lie between the bounds."""
    return all_hold(each_between(found, least, greatest))


def lies_within(found: Estimate, claimed: ArrayLike, tolerance: float) -> Answer:
    """Judges whether the intervals of all places lie in claimed ± tolerance."""
    claimed = np.asarray(claimed, dtype=np.float64)
    return between(found, claimed - tolerance, claimed + tolerance)


def all_hold(found: Collection[Answer]) -> Answer:
    """False where one is, else None where one is undecided."""
    return False if False in found else None if None in found else True


class SettingGroup(str):
    """Settings of one answer that are named together, such as "layers 1 to 4": each of them counts
    in the verdict.
    """

    settings: int

    def __new__(cls, words: str, settings: int) -> Self:
        made = super().__new__(cls, words)
        made.settings = settings
        return made


def number_of(setting: str) -> int:
    """Returns the number of settings that a name stands for."""
    return setting.settings if isinstance(setting, SettingGroup) else 1


def by_place(found: Sequence[Answer], noun: str, first: int = 1) -> dict[str, Answer]:
    """Returns the answers of places in a row by setting, one entry for all places of one answer:
    {"layers 1 to 4": False, …}.

    first: the number of the first place.
    """
    if len(set(found)) == 1:
        return {SettingGroup(f"every {noun}", len(found)): found[0]}
    settings: dict[str, Answer] = {}
    for answer in dict.fromkeys(found):
        places = [place for place, one in enumerate(found, first) if one is answer]
        words = f"{noun}{'s' if len(places) > 1 else ''} {joined(_runs(places))}"
        settings[SettingGroup(words, len(places))] = answer
    return settings


def by_setting(found: Mapping[tuple[str, int], Answer], unit: str) -> dict[str, Answer]:
    """Returns by setting, from (setting, number), one entry where all numbers agree, else one for
    each answer they give.
    """
    settings: dict[str, Answer] = {}
    for setting in dict.fromkeys(name for name, _ in found):
        own = {number: answer for (name, number), answer in found.items() if name == setting}
        for answer in dict.fromkeys(own.values()):
            numbers = [str(number) for number, one in own.items() if one is answer]
            words = (
                setting if len(numbers) == len(own) else f"{setting} of {joined(numbers)} {unit}"
            )
            settings[SettingGroup(words, len(numbers))] = answer
    return settings


def learned(last_nats: float, unigram_nats: float) -> bool:
    """Returns whether a training ends below the unigram baseline by as much as counts."""
    return last_nats < unigram_nats - LEARNED_NATS


def bigram_nats(train: NDArray[Any], valid: NDArray[Any]) -> float:
    """Loss of a model that knows how often each token follows each: counts of `train`, smoothed by
    Witten and Bell.

    A token's successors share what is left of one by their frequencies: the more different ones it
    had, the more.
    """
    size = int(max(train.max(), valid.max())) + 1
    follows = np.zeros((size, size))
    np.add.at(follows, (train[:-1], train[1:]), 1.0)
    alone = (np.bincount(train, minlength=size) + 1.0) / (len(train) + size)
    seen, different = (
        follows.sum(1, keepdims=True),
        np.maximum((follows > 0).sum(1, keepdims=True), 1),
    )
    shares = (follows + different * alone) / (seen + different)
    return float(-np.log(shares[valid[:-1], valid[1:]]).mean())


def holm(family: Mapping[_Key, tuple[Estimate, float, float]]) -> dict[_Key, Answer]:
    """Judges whether each number lies between its bounds, so that one family in twenty has a wrong
    answer, however large.

    By Holm 1979: the surest of n answers stands where it does at a level of 0.05 / n, the next at
    0.05 / (n - 1), and none after the first that does not stand. One alone is judged as by
    `between`.
    """
    levels = {key: _level(*one) for key, one in family.items()}
    made: dict[_Key, Answer] = dict.fromkeys(family)
    for place, key in enumerate(sorted(levels, key=levels.__getitem__)):
        if levels[key] > WRONG_SHARE / (len(levels) - place):
            break
        found, least, greatest = family[key]
        made[key] = bool(least <= found.mean <= greatest)
    return made


def _level(found: Estimate, least: float, greatest: float) -> float:
    """Returns the smallest share of wrong answers at which its interval decides; 1 for one seed."""
    if found.count < 2 or not math.isfinite(float(found.mean)):
        return 1.0
    away = min(abs(float(found.mean) - edge) for edge in (least, greatest))
    error = float(found.deviation) / math.sqrt(found.count)
    return t_beyond(away / error, found.count - 1) if error else 0.0


def verdict_of(holds: Mapping[str, Answer]) -> Verdict:
    """Judges a claim that was looked at in several settings. Raises ValueError without any.

    Reproduced in all of them; contradicted where more contradict it than bear it out; reproduced
    under conditions where more than half bear it out; else undecided.
    """
    if not holds:
        raise ValueError("a claim needs at least one setting that it was looked at in")
    counts = _counts(holds)
    if counts[True] == counts.total():
        return Verdict.REPRODUCED
    if counts[False] > counts[True]:
        return Verdict.CONTRADICTED
    return Verdict.UNDER_CONDITIONS if 2 * counts[True] > counts.total() else Verdict.UNDECIDED


def verdict_of_a_bound(holds: Mapping[str, Answer], slack: float) -> Verdict:
    """Returns the verdict of a claim that something stays on one side of a bound.

    slack: by how many times, at the least, the bound lies beyond what was measured. One that holds
    by a factor of hundreds is held and vacuous, as one much smaller would have held as well. Raises
    ValueError without a setting.
    """
    verdict = verdict_of(holds)
    if verdict is Verdict.REPRODUCED and slack >= VACUOUS_FACTOR:
        return Verdict.VACUOUS
    return verdict


def _counts(holds: Mapping[str, Answer]) -> Counter[Answer]:
    """Counts the settings that have each answer."""
    counts: Counter[Answer] = Counter()
    for setting, answer in holds.items():
        counts[answer] += number_of(setting)
    return counts


def answered(holds: Mapping[str, Answer], answer: Answer) -> list[str]:
    """Returns the settings that have this answer."""
    return [setting for setting, one in holds.items() if one is answer]


def conditions_of(holds: Mapping[str, Answer]) -> str:
    """Settings by answer, in words; empty where all settings agree.

    "a and c; not b; undecided: d"; of a claim that is contradicted: "not b and c; but a".
    """
    if len(set(holds.values())) < 2:
        return ""
    yes = answered(holds, True)
    no = answered(holds, False)
    open_ = answered(holds, None)
    counts = _counts(holds)
    holding = joined(yes) if len(yes) <= _NAMED else f"{counts[True]} of {counts.total()}"
    undecided = f"undecided: {joined(open_)}" if open_ else ""
    if counts[False] > counts[True]:
        parts = [f"not {joined(no)}", f"but {holding}" if yes else "", undecided]
    else:
        parts = [holding, f"not {joined(no)}" if no else "", undecided]
    return "; ".join(filter(None, parts))


def _runs(places: Sequence[int]) -> list[str]:
    """ "1 to 4", "7" for places in rising order; two in a row are named one by one."""
    named: list[str] = []
    for _, pairs in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        run = [place for _, place in pairs]
        named += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return named
