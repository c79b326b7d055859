"""The forms of numbers, names and short curves wherever people read them: pages, terminal,
captions, sentences.
"""

import codecs
import hashlib
import io
import math
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


MISSING, NON_FINITE = "–", "non-finite"
"""The words in place of a number that was not measured, and of NaN and the infinities."""
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e6
"""Sizes that are written without a power of ten."""


def significant(value: float | None, digits: int = 4) -> str:
    """Significant digits: "0.01234", "12.34", "1.234e-5". Integers are counts, written in full with
    commas.
    """
    if value is None:
        return MISSING
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return NON_FINITE
    if value == 0:
        return "0"
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        exponent = int(
            f"{value:.{digits - 1}e}".partition("e")[2]
        )  # after rounding: 0.9996 is 1.00
        return f"{value:,.{max(0, digits - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def number(value: float | None, decimals: int = 3) -> str:
    """Returns a fixed number of decimals, with a minus sign instead of a hyphen; 0.000 has none."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return NON_FINITE
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


def interval(mean: float | None, half_width: float | None, decimals: int = 3) -> str:
    """Returns a mean with the half width of its interval: "0.507 ± 0.008"; the mean alone where
    there is no interval.
    """
    if half_width is None or math.isnan(half_width):
        return number(mean, decimals)
    return f"{number(mean, decimals)} ± {number(half_width, decimals)}"


def span(values: Sequence[float], decimals: int = 3) -> str:
    """Writes the range from the least to the greatest: "−0.500 to 0.250"."""
    return f"{number(min(values), decimals)} to {number(max(values), decimals)}"


def percentage(share: float | None, decimals: int = 1) -> str:
    """Returns a share of 1 in per cent: "91.4 %"."""
    return (
        f"{number(100 * share, decimals)} %"
        if share is not None and math.isfinite(share)
        else number(share)
    )


def probability(chance: float) -> str:
    """Returns a chance in whole per cent; never 0 or 100 for one that is neither."""
    if 0 < chance < 0.005:
        return "under 1 %"
    if 0.995 <= chance < 1:
        return "over 99 %"
    return percentage(chance, 0)


def learning_rate(value: float | None, digits: int = 3) -> str:
    """Returns a learning rate as one types it: "1e-3", "4.2e-4", "0.05"."""
    if value is None or value == 0 or not math.isfinite(value):
        return significant(value)
    if abs(value) >= 0.01:
        return f"{value:.{digits}g}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(power)}"


def rates_command(rate: float | None, *, compared: str = "", optimizer: str = "adam") -> str:
    """Returns the command that trains half of a peak rate, the rate and twice it; without a rate, a
    sweep that is to be filled in.

    compared: what `normscope compare` is given to train the model; "" where that is not known.
    """
    rates = "LOW:HIGH:7" if rate is None else f"around:{learning_rate(rate, 2)}"
    under = "" if optimizer == "adam" else f"--optimizers {optimizer} "
    if not compared:
        return f"`normscope compare` with `{under}--peak-lr {rates}`"
    return f"`normscope compare {compared} --placements own {under}--peak-lr {rates}`"


def surer_rate(
    rate: float | None, *, of: str = "it", compared: str = "", optimizer: str = "adam"
) -> str:
    """Returns how to check a peak rate, in the imperative; docs/decisions.md has the trainings that
    support it.

    of: what the rate is called. The others are as of `rates_command`.
    """
    seven = "train with seven rates from a low one to a high one"
    what = seven if rate is None else f"train with half of {of}, with it and with twice it"
    how = rates_command(rate, compared=compared, optimizer=optimizer)
    return f"{what}, and choose after 70 % of the updates: {how}"


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: "1 block", "1,200 blocks"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(parts: Sequence[str]) -> str:
    """Returns a list as a sentence has it: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def duration(seconds: float) -> str:
    """Returns a time that people wait for: "48 s", "2 min 05 s", "3 h 20 min", "2 d 04 h"."""
    whole = round(seconds)
    for unit, smaller, size, parts in (
        ("d", "h", 86_400, 3600),
        ("h", "min", 3600, 60),
        ("min", "s", 60, 1),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // parts:02d} {smaller}"
    return f"{whole} s"


def unit_time(seconds: float, unit: str) -> str:
    """Returns a time of one core or one accelerator, as an estimate: "about 12 core-minutes"."""
    minutes = seconds / 60
    if minutes < 1:
        return f"less than a minute of one {unit}"
    if minutes < 60:
        return f"about {significant(minutes, 2)} {unit}-minutes"
    return f"about {significant(minutes / 60, 3)} {unit}-hours"


_NORMS = {
    "layer-norm": "LayerNorm",
    "rms-norm": "RMSNorm",
    "scale-norm": "ScaleNorm",
    "sphere-norm": "SphereNorm",
    "dyt": "DyT",
    "derf": "Derf",
}
_KINDS = {"cross_attention": "cross-attention", "feed_forward": "feed-forward"}


class Tone(StrEnum):
    """The tone of a verdict: the class of its dot in the style sheet. The verdict always stands
    beside it.
    """

    GOOD = "good"
    MIXED = "mixed"
    STUCK = "stuck"
    BAD = "bad"
    INFO = "info"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class TonedWords:
    """A judgement in words, and its tone."""

    text: str
    tone: Tone


def norm_name(norm: str) -> str:
    """Returns a norm as papers write it; "no norms" for none."""
    return _NORMS.get(norm, norm) or "no norms"


def kind_name(kind: str) -> str:
    """Returns a kind of sub-layer as papers write it, such as "feed-forward"."""
    return _KINDS.get(kind, kind)


_STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_LONGEST = 200


def printable(text: str) -> str:
    """Returns the text with a sign in place of every character that steers a terminal, or the
    direction of what follows.
    """
    return _STEERING.sub("\ufffd", text)


def short_name(text: str) -> str:
    """Returns a printable name; of a long one its beginning, and a number by which it differs from
    others.
    """
    text = printable(text)
    if len(text) <= _LONGEST:
        return text
    return (
        f"{text[: _LONGEST - 10]}… "
        f"{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:6]}"
    )


BARS, BROKEN = "▁▂▃▄▅▆▇█", "×"
"""Letters by height, and what stands for values that are not finite."""
ASCII_BARS, ASCII_BROKEN = "_.-:=+*#", "x"
"""The same for what shows nothing but ASCII."""


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Returns one letter for each value, from the lowest finite one to the highest; level values
    lie at the bottom.
    """
    bars, broken = (ASCII_BARS, ASCII_BROKEN) if ascii_only else (BARS, BROKEN)
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    step = (high - low) / (len(bars) - 1) or 1.0
    return "".join(
        bars[round((value - low) / step)] if math.isfinite(value) else broken for value in values
    )


def broken(text: str, columns: int | None = None) -> str:
    """Returns the text with every line broken to the columns, of the terminal where they are not
    given; words stay whole.
    """
    width = columns or shutil.get_terminal_size((80, 24)).columns
    lines = [(line, " " * (len(line) - len(line.lstrip()))) for line in text.split("\n")]
    return "\n".join(
        "\n".join(
            wrap(
                line,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        for line, indent in lines
    )


def plain_text(*shown: "RenderableType") -> str:
    """Each below the other, as wide as the terminal, or 80 columns without one; in ASCII where it
    has nothing else.
    """
    from rich.console import Console

    letters = getattr(sys.stdout, "encoding", None) or "utf-8"
    file = io.TextIOWrapper(io.BytesIO(), encoding=letters, errors=LIKE_LETTERS, newline="\n")
    width = shutil.get_terminal_size((80, 24)).columns
    console = Console(
        file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    for one in shown:
        console.print(one)
    file.flush()
    text = file.buffer.getvalue().decode(letters)
    return "\n".join(line.rstrip() for line in text.splitlines())


_ALIKE = str.maketrans("▁▂▃▄▅▆▇█▲×┐┘—–−…·√‖←→≤≥≈∞∈’‘“”", "_.-:=+*#^x||---.*v|<><>~8e''\"\"")


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end].translate(_ALIKE)
    return "".join(map(_ascii_letter, letters)), error.end


def _ascii_letter(letter: str) -> str:
    """Returns for a Greek letter the first of its name, for one with an accent the letter without
    it, else a question mark.
    """
    greek = re.match("GREEK (SMALL|CAPITAL) LETTER (.)", unicodedata.name(letter, ""))
    if greek:
        return greek[2].lower() if greek[1] == "SMALL" else greek[2]
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return plain if plain.isascii() else "?"


LIKE_LETTERS = "normscope"
"""The name, for `errors`, of the handler that writes letters which a stream's encoding lacks: by
similar letters, one for one, so that lines keep their length.
"""
codecs.register_error(LIKE_LETTERS, _alike)

_ASCII = codecs.lookup("ascii")
ASCII_BY_ANOTHER_NAME = "normscope-ascii"
"""The same encoding: where a stream says that it is ASCII by its own, click writes UTF-8 past
it.
"""


def _named(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != ASCII_BY_ANOTHER_NAME:
        return None
    return codecs.CodecInfo(
        _ASCII.encode,
        _ASCII.decode,
        incrementalencoder=_ASCII.incrementalencoder,
        incrementaldecoder=_ASCII.incrementaldecoder,
        name=ASCII_BY_ANOTHER_NAME,
    )


codecs.register(_named)


def writes_like_letters(stream: io.TextIOWrapper) -> None:
    """Has a stream write a similar letter for each that its encoding lacks, for every writer."""
    is_ascii = codecs.lookup(stream.encoding).name == _ASCII.name
    stream.reconfigure(encoding=ASCII_BY_ANOTHER_NAME if is_ascii else None, errors=LIKE_LETTERS)
