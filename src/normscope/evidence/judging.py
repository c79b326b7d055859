"""The one rule by which claims are judged, and the verdicts it gives.

An interval inside what is claimed bears the claim out, one outside speaks against it, and one that reaches across the
edge decides nothing. An answer is True, False or None for these three.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from ..measure import Estimate
from ..report.words import Tone, joined


class Verdict(StrEnum):
    """In the order in which they are counted up."""

    REPRODUCED = "reproduced"
    UNDER_CONDITIONS = "reproduced under conditions"
    UNDECIDED = "undecided"
    NOT_REPRODUCED = "not reproduced"

    @property
    def tone(self) -> Tone:
        """Which colour its dot has."""
        return _TONES[self]


_TONES = {
    Verdict.REPRODUCED: Tone.GOOD,
    Verdict.UNDER_CONDITIONS: Tone.MIXED,
    Verdict.UNDECIDED: Tone.PLAIN,
    Verdict.NOT_REPRODUCED: Tone.BAD,
}


def tally(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which verdict: "5 reproduced, 1 undecided"; empty without any."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


Answer = bool | None
_NAMED = 4
"""Settings in which a claim holds are named up to so many, and counted beyond."""


def answers(low: ArrayLike, high: ArrayLike, least: ArrayLike, greatest: ArrayLike) -> list[Answer]:
    """For each interval [low, high], whether it lies in [least, greatest]; an interval of NaN decides nothing."""
    low, high = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    inside = (low >= least) & (high <= greatest)
    outside = (high < least) | (low > greatest)
    return [True if yes else False if no else None for yes, no in zip(inside.flat, outside.flat, strict=True)]


def each_between(found: Estimate, least: ArrayLike, greatest: ArrayLike) -> list[Answer]:
    """For each place of an estimate, whether its interval lies between the bounds, which may differ by place."""
    return answers(found.low, found.high, least, greatest)


def between(found: Estimate, least: ArrayLike = -math.inf, greatest: ArrayLike = math.inf) -> Answer:
    """Whether the intervals of all places lie between the bounds."""
    return all_hold(each_between(found, least, greatest))


def lies_within(found: Estimate, claimed: ArrayLike, tolerance: float) -> Answer:
    """Whether the intervals of all places lie in claimed ± tolerance."""
    claimed = np.asarray(claimed, dtype=np.float64)
    return between(found, claimed - tolerance, claimed + tolerance)


def all_hold(found: Collection[Answer]) -> Answer:
    """False where one is, else None where one is undecided."""
    return False if False in found else None if None in found else True


def by_place(found: Sequence[Answer], noun: str, first: int = 1) -> dict[str, Answer]:
    """Answers of places in a row by setting, one entry for all places of one answer: {"layers 1 to 4": False, …}.

    first: the number of the first place.
    """
    if len(set(found)) == 1:
        return {f"every {noun}": found[0]}
    settings: dict[str, Answer] = {}
    for answer in dict.fromkeys(found):
        places = [place for place, one in enumerate(found, first) if one is answer]
        settings[f"{noun}{'s' if len(places) > 1 else ''} {joined(_runs(places))}"] = answer
    return settings


def by_setting(found: Mapping[tuple[str, int], Answer], unit: str) -> dict[str, Answer]:
    """By setting, from (setting, number): one entry where all numbers agree, else one for each answer they give."""
    settings: dict[str, Answer] = {}
    for setting in dict.fromkeys(name for name, _ in found):
        own = {number: answer for (name, number), answer in found.items() if name == setting}
        for answer in dict.fromkeys(own.values()):
            numbers = [str(number) for number, one in own.items() if one is answer]
            settings[setting if len(numbers) == len(own) else f"{setting} of {joined(numbers)} {unit}"] = answer
    return settings


def verdict_of(holds: Mapping[str, Answer]) -> Verdict:
    """Of a claim that was looked at in several settings. Raises ValueError without any."""
    if not holds:
        raise ValueError("a claim needs at least one setting that it was looked at in")
    seen = set(holds.values())
    if len(seen) == 1:
        return {True: Verdict.REPRODUCED, False: Verdict.NOT_REPRODUCED, None: Verdict.UNDECIDED}[seen.pop()]
    # Found in one setting, it holds there at least; found in none, those that are open may still bear it out.
    return Verdict.UNDER_CONDITIONS if True in seen else Verdict.UNDECIDED


def conditions_of(holds: Mapping[str, Answer]) -> str:
    """Settings by answer, in words: "a and c; not b; undecided: d"; empty where all settings agree."""
    yes, no, open_ = ([key for key, answer in holds.items() if answer is state] for state in (True, False, None))
    if len([some for some in (yes, no, open_) if some]) < 2:
        return ""
    holding = joined(yes) if len(yes) <= _NAMED else f"{len(yes)} of {len(holds)}"
    parts = [holding, f"not {joined(no)}" if no else "", f"undecided: {joined(open_)}" if open_ else ""]
    return "; ".join(filter(None, parts))


def _runs(places: Sequence[int]) -> list[str]:
    """ "1 to 4", "7" for places in rising order; two in a row are named one by one."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [
        text for run in runs for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(place) for place in run])
    ]
