"""Claims with the verdict that the settings they were looked at in give them: one rule, one wording."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from normscope.evidence.estimates import part, proportion, with_interval
from normscope.evidence.judging import Answer, between, conditions_of, verdict_of
from normscope.measure import Estimate
from normscope.report.words import number, span

from .deviation import Spread
from .page import Claim

Made = tuple[Claim, dict[str, Any]]
"""A claim and the numbers it quotes."""
_ClaimBound = float | Mapping[str, float]
"""One for all settings, or each its own."""
_LISTED = 12
"""Settings whose values are all named; of more, the lowest and the highest are."""


def claim(
    name: str,
    statement: str,
    *,
    source: str,
    value: str,
    holds: Mapping[str, Estimate | Answer],
    least: _ClaimBound = -math.inf,
    greatest: _ClaimBound = math.inf,
    shown: Callable[[Estimate], str] = with_interval,
    beside: str = "",
    decided: Mapping[str, Answer] = {},
) -> Claim:
    """A claim that a value lies between bounds, judged in every setting and then over all of them.

    value: what the numbers are, with their unit; the sentence of what was found begins with it. holds: by setting, the
    value with its interval, or an answer where there is no single number. shown: how a value is written. beside: more
    sentences on what was found. decided: answers of settings that more than their own interval decides, such as a
    family that is judged together. Raises ValueError without a setting.
    """
    values = {setting: one for setting, one in holds.items() if isinstance(one, Estimate)}
    answers = {
        setting: between(one, _at(least, setting), _at(greatest, setting)) if isinstance(one, Estimate) else one
        for setting, one in holds.items()
    } | dict(decided)
    found = f"{value}: {listed(values, shown)}" if values else value
    return judged(
        name=name, statement=statement, source=source, found=". ".join(filter(None, [found, beside])), holds=answers
    )


def judged(*, name: str, statement: str, source: str, found: str, holds: Mapping[str, Answer]) -> Claim:
    """The claim with the verdict of its settings, where neither one value nor one sentence says what was found.

    Raises ValueError without a setting.
    """
    return Claim(
        name=name,
        statement=statement,
        source=source,
        found=found,
        verdict=verdict_of(holds),
        conditions=conditions_of(holds),
    )


def foretold(
    *, name: str, statement: str, source: str, of: str, spread: Spread, place: str = "l", beside: str = ""
) -> Claim:
    """The claim that what is predicted lies within a limit of what was measured, judged curve by curve.

    of: what was drawn, which the sentence of what was found begins with. place: as `Spread.words` has it. beside: more
    sentences.
    """
    within = f"{len(spread.within)} of {len(spread.holds)} surely within the limit"
    found = ". ".join(filter(None, [f"{of}: {spread.words(place)}; {within}", beside]))
    return judged(name=name, statement=statement, source=source, found=found, holds=spread.holds)


def around(value: _ClaimBound, by: _ClaimBound) -> dict[str, Any]:
    """The bounds of a claim that something is `value`, `by` more or less."""
    ends = {"least": -1, "greatest": 1}
    settings = value if isinstance(value, Mapping) else by
    if not isinstance(settings, Mapping):
        return {end: _at(value, "") + sign * _at(by, "") for end, sign in ends.items()}
    return {end: {one: _at(value, one) + sign * _at(by, one) for one in settings} for end, sign in ends.items()}


def by_names(found: Estimate, names: Iterable[str]) -> dict[str, Estimate]:
    """The places of an estimate by the names of the settings that they stand for."""
    return {name: part(found, place) for place, name in enumerate(names)}


def share_claim(name: str, statement: str, *, source: str, of: str, holds: Mapping[str, bool]) -> Claim:
    """A claim that something is so in every one of many cases, with the share of those in which it is.

    of: what the cases are, such as "checkpoints". Raises ValueError without one.
    """
    count, total = sum(holds.values()), len(holds)
    low, high = proportion(count, total)
    found = f"{count} of {total} {of} (95 % interval {low:.2f} to {high:.2f})"
    return judged(name=name, statement=statement, source=source, found=found, holds=holds)


def listed(values: Mapping[str, Estimate], shown: Callable[[Estimate], str] = with_interval) -> str:
    """ "Post-LN: 0.120 ± 0.031; Pre-LN: 0.002 ± 0.010"; of very many, from the lowest to the highest."""
    if len(values) <= _LISTED:
        return "; ".join(f"{setting}: {shown(one)}" for setting, one in values.items())
    lowest, highest = (which(values, key=lambda setting: float(values[setting].mean)) for which in (min, max))
    return f"from {shown(values[lowest])}, {lowest}, to {shown(values[highest])}, {highest}"


def shown_span(found: Estimate) -> str:
    """Of several places, the least mean and the greatest."""
    return span(found.mean.tolist())


def shown_factor(found: Estimate) -> str:
    """A factor whose logarithm was estimated, with its interval: "1.20 (1.10 to 1.31)"."""
    with np.errstate(over="ignore"):
        factors = np.exp([found.low, found.mean, found.high])
    low, middle, high = (number(float(factor), 2) for factor in factors)
    return middle if math.isnan(factors[0]) else f"{middle} ({low} to {high})"


def _at(bound: _ClaimBound, setting: str) -> float:
    return bound[setting] if isinstance(bound, Mapping) else bound
