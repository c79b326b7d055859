"""What decides a verdict: exponents with their intervals, and a claim looked at in several settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...measure import Estimate, Summary
from ...report.study.contents import Claim, Verdict

Floats = NDArray[np.float64]


def estimate(values_S: ArrayLike) -> Estimate:
    """Mean over the first axis, the seeds, with its 95 % interval."""
    summary = Summary()
    for value in np.asarray(values_S, dtype=np.float64):
        summary.add({"": value})
    return summary.estimates()[""]


def slopes(x_X: ArrayLike, y_SX: ArrayLike) -> Floats:
    """Least-squares slope of ln y over x for each seed, (S,)."""
    x_X = np.asarray(x_X, dtype=np.float64)
    centred_X = x_X - x_X.mean()
    found: Floats = np.log(np.asarray(y_SX, dtype=np.float64)) @ centred_X / (centred_X @ centred_X)
    return found


def exponent(x_X: ArrayLike, y_SX: ArrayLike) -> Estimate:
    """Slope of ln y over ln x, fitted seed by seed: 1/2 for y = √x."""
    return estimate(slopes(np.log(np.asarray(x_X, dtype=np.float64)), y_SX))


def lies_within(found: Estimate, claimed: float, tolerance: float) -> bool | None:
    """Whether the interval lies in claimed ± tolerance, everywhere; None where it is too wide to tell."""
    if np.all((found.low >= claimed - tolerance) & (found.high <= claimed + tolerance)):
        return True
    outside = (found.low > claimed + tolerance) | (found.high < claimed - tolerance)
    return False if np.any(outside) else None


def number(value: float) -> str:
    """To three decimals, with a minus sign; 0.000 has none."""
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−")


def told(found: Estimate) -> str:
    """A number with its interval."""
    return f"{number(float(found.mean))} ± {number(float(found.half_width))}"


def spread(values: Sequence[float]) -> str:
    """From the least to the greatest."""
    return f"{number(min(values))} to {number(max(values))}"


def joined(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def judged(*, name: str, statement: str, source: str, found: str, holds: Mapping[str, bool | None]) -> Claim:
    """The claim with the verdict that the settings in which it holds give it; None, undecided, is not holding.

    Raises ValueError without any setting.
    """
    if not holds:
        raise ValueError(f"{name}: a claim needs at least one setting that it was looked at in")
    yes, open_ = ([key for key, held in holds.items() if held is state] for state in (True, None))
    rest = [key for key in holds if key not in yes]
    decided: Verdict = "reproduced" if not rest else "reproduced under conditions" if yes else "not reproduced"
    return Claim(
        name=name,
        statement=statement,
        source=source,
        found=found + (f" Too few seeds to tell: {joined(open_)}." if open_ else ""),
        verdict=decided,
        conditions=f"{joined(yes)}; not {joined(rest)}" if yes and rest else "",
    )


def plain_estimate(found: Estimate) -> dict[str, Any]:
    """For results.json."""
    return {
        "mean": found.mean,
        "half_width": found.half_width,
        "standard_error": found.deviation / np.sqrt(found.count),
        "seeds": found.count,
    }


def all_hold(answers: Collection[bool | None]) -> bool | None:
    """False where one is, else None where one is too wide to tell."""
    return False if False in answers else None if None in answers else True


def gathered(holds: Mapping[tuple[str, int], bool | None], unit: str) -> dict[str, bool | None]:
    """By setting, from (setting, number): one entry where all numbers agree, else one for each answer they give."""
    found: dict[str, bool | None] = {}
    for setting in dict.fromkeys(name for name, _ in holds):
        answers = {number: held for (name, number), held in holds.items() if name == setting}
        for answer in dict.fromkeys(answers.values()):
            numbers = [str(number) for number, held in answers.items() if held is answer]
            found[setting if len(numbers) == len(answers) else f"{setting} of {joined(numbers)} {unit}"] = answer
    return found
