"""How numbers are written wherever people read them: on pages, on the terminal, in captions and in sentences."""

import math
from collections.abc import Sequence

MISSING, NON_FINITE = "–", "non-finite"
"""What stands in place of a number that was not measured, and of NaN and the infinities."""
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e6
"""Sizes that are written without a power of ten."""


def significant(value: float | None, digits: int = 4) -> str:
    """Significant digits: "0.01234", "12.34", "1.234e-5". Integers are counts, written in full with commas."""
    if value is None:
        return MISSING
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return NON_FINITE
    if value == 0:
        return "0"
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 0.9996 is 1.00
        return f"{value:,.{max(0, digits - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def number(value: float | None, decimals: int = 3) -> str:
    """A fixed number of decimals, with a minus sign instead of a hyphen; 0.000 has none."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return NON_FINITE
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


def interval(mean: float | None, half_width: float | None, decimals: int = 3) -> str:
    """A mean with the half width of its interval: "0.507 ± 0.008"; the mean alone where there is no interval."""
    if half_width is None or math.isnan(half_width):
        return number(mean, decimals)
    return f"{number(mean, decimals)} ± {number(half_width, decimals)}"


def span(values: Sequence[float], decimals: int = 3) -> str:
    """From the least to the greatest: "−0.500 to 0.250"."""
    return f"{number(min(values), decimals)} to {number(max(values), decimals)}"


def percentage(share: float | None, decimals: int = 1) -> str:
    """A share of 1 in per cent: "91.4 %"."""
    return f"{number(100 * share, decimals)} %" if share is not None and math.isfinite(share) else number(share)


def probability(chance: float) -> str:
    """A chance in whole per cent; never 0 or 100 for one that is neither."""
    if 0 < chance < 0.005:
        return "under 1 %"
    if 0.995 <= chance < 1:
        return "over 99 %"
    return percentage(chance, 0)


def learning_rate(value: float | None, digits: int = 3) -> str:
    """A learning rate as one types it: "1e-3", "4.2e-4", "0.05"."""
    if value is None or value == 0 or not math.isfinite(value):
        return significant(value)
    if abs(value) >= 0.01:
        return f"{value:.{digits}g}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(power)}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 block", "1,200 blocks"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(parts: Sequence[str]) -> str:
    """A list as a sentence has it: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def duration(seconds: float) -> str:
    """A time that people wait for: "48 s", "2 min 05 s", "3 h 20 min", "2 d 04 h"."""
    whole = round(seconds)
    for unit, smaller, size, parts in (("d", "h", 86_400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // parts:02d} {smaller}"
    return f"{whole} s"
