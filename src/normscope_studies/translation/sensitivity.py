"""How much the last loss of arms that differ in their rate alone depends on that rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.measure import Sensitivity, lr_sensitivity

from ..engine.page import StudyTable
from .arms import Arm
from .curves import Curves

OverRates = Mapping[str, Sequence[Arm]]
"""Arms that differ in their rate alone, in rising order of it, by their words in a legend."""


def sensitivity(arms: Sequence[Arm], curves: Curves) -> Sensitivity:
    """Over the rates of the arms: as `measure.lr_sensitivity`. Raises ValueError for arms of fewer than two rates.

    A run that did not stay finite counts as its loss at initialisation, that of its first batch.
    """
    if len({arm.peak_lr for arm in arms}) < 2:
        raise ValueError("a sensitivity to the rate needs arms of two rates and more")
    by_rate = [curves[arm] for arm in arms]
    losses = [
        [run.nll_nats[-1] if run.ended == "finished" else math.inf for run in runs]
        for runs in zip(*by_rate, strict=True)
    ]
    return lr_sensitivity(losses, [run.first_nats for run in by_rate[0]])


def of_several_rates(panels: Mapping[str, OverRates]) -> dict[str, OverRates]:
    """The panels without those whose arms were run at one rate alone, of which no sensitivity can be stated."""
    return {title: kinds for title, kinds in panels.items() if all(len(arms) > 1 for arms in kinds.values())}


def sensitivity_tables(panels: Mapping[str, OverRates], curves: Curves) -> list[StudyTable]:
    """One table with a row for each curve over the rate, by the title of its panel; none where there is no panel."""
    if not panels:
        return []
    rows: list[tuple[str | float, ...]] = []
    for title, kinds in panels.items():
        for words, arms in kinds.items():
            rates = [arm.peak_lr for arm in arms]
            found = sensitivity(arms, curves)
            spread = "one seed" if math.isnan(found.low) else f"{found.low:.3f} to {found.high:.3f}"
            tried = ", ".join(f"{rate:g}" for rate in rates)
            rows.append((title, words, tried, f"{rates[found.best_rate]:g}", found.value, spread, found.seeds))
    table = StudyTable(
        title="Sensitivity of the last loss to the rate: nats above that at the best rate, on average over the rates "
        "(Wortsman et al. 2023, arXiv:2309.14322), with the interval of a bootstrap over seeds",
        columns=("panel", "configuration", "rates", "best rate", "sensitivity, nats", "95 % interval", "seeds"),
        rows=rows,
    )
    return [table]


def sensitivity_data(panels: Mapping[str, OverRates], curves: Curves) -> list[dict[str, Any]]:
    """The same for results.json."""
    return [
        {
            "panel": title,
            "configuration": words,
            "peak_lrs": [arm.peak_lr for arm in arms],
            "best_peak_lr": arms[found.best_rate].peak_lr,
            "sensitivity_nats": found.value,
            "low": None if math.isnan(found.low) else found.low,
            "high": None if math.isnan(found.high) else found.high,
            "seeds": found.seeds,
        }
        for title, kinds in panels.items()
        for words, arms in kinds.items()
        for found in (sensitivity(arms, curves),)
    ]
