"""Small pictures of curves over depth, of some kilobytes each, that follow the reader's light or
dark theme.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from normscope.report.words import significant

_WIDTH = 330
_HEIGHT = 200
_LEFT = 62
_BETWEEN = 78
_TOP = 46
_BELOW = 46
_ROW = 18
_LETTER = 6.6  # pixels of a letter of 12 pixels
_LOOKS = ("curve", "curve thin", "curve reference", "curve reference dashed")
_STYLE = """
.curves { font: 12px system-ui, "DejaVu Sans", Verdana, sans-serif; }
.curves .paper { fill: #ffffff; stroke: #d0d7de; }
.curves text { fill: #1b1f24; }
.curves .grid { stroke: #d0d7de; }
.curves .axis { stroke: #50575f; }
.curves .curve { fill: none; stroke: #d55e00; stroke-width: 2.2; }
.curves .thin { stroke-width: 1.1; }
.curves .reference { stroke: #0072b2; stroke-width: 1.5; }
.curves .dashed { stroke: #50575f; stroke-dasharray: 6 3; }
@media (prefers-color-scheme: dark) {
.curves .paper { fill: #171c22; stroke: #363e48; }
.curves text { fill: #e6eaef; }
.curves .grid { stroke: #363e48; }
.curves .axis { stroke: #aab3bd; }
.curves .curve { stroke: #ff8a3d; }
.curves .reference { stroke: #58a6e6; }
.curves .dashed { stroke: #aab3bd; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthCurve:
    """A quantity over depth. look: 0 for the subject of the picture, 1 for more of it, 2 and 3 to
    compare with.
    """

    label: str
    look: int
    first: int
    """The depth of the first value."""
    values: Sequence[float]

    @property
    def points(self) -> list[tuple[int, float]]:
        """Returns the points that a logarithmic axis can show."""
        pairs = enumerate(self.values, self.first)
        return [(depth, value) for depth, value in pairs if 0 < value < math.inf]


class DepthPanel(NamedTuple):
    """Curves that share their axes."""

    x_label: str
    """The unit of depth."""
    y_label: str
    curves: Sequence[DepthCurve]


def curves_svg(panels: Sequence[DepthPanel], *, title: str) -> str:
    """Draws panels side by side, with logarithmic heights."""
    looks = {curve.label: curve.look for panel in panels for curve in panel.curves}
    wide = _LEFT + len(panels) * (_WIDTH + _BETWEEN) - _BETWEEN + 22
    legend, rows = _legend(looks, wide)
    top = _TOP + _ROW * (rows - 1)
    high = top + _HEIGHT + _BELOW
    drawn = [
        f'<g transform="translate({_LEFT + i * (_WIDTH + _BETWEEN)} '
        f'{top})">{"".join(_panel(panel))}</g>'
        for i, panel in enumerate(panels)
    ]
    told = ". ".join(map(_panel_in_words, panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" role="img" width="{wide}" '
        f'height="{high}" viewBox="0 0 {wide} {high}">\n'
        f"<title>{escape(title)}</title>\n"
        f"<desc>{escape(told)}</desc>\n"
        f"<style>{_STYLE}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="8"/>\n'
        + "\n".join([*legend, *drawn])
        + "\n</svg>\n"
    )


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` for a logarithmic axis, about five of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high / low < 100:
        round_numbers = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    else:
        round_numbers = [10.0**power for power in powers[:: -(-len(powers) // 6)]]
    return [number for number in round_numbers if low <= number <= high]


def _panel(panel: DepthPanel) -> Iterator[str]:
    curves = panel.curves
    low, high = _heights([value for curve in curves for _, value in curve.points])
    depth = max(curve.first + len(curve.values) - 1 for curve in curves)

    def x(at: float) -> str:
        return f"{at / depth * _WIDTH:.1f}".removesuffix(".0")

    def y(value: float) -> str:
        share = math.log(value / low) / math.log(high / low)
        return f"{(1 - share) * _HEIGHT:.1f}".removesuffix(".0")

    for value in ticks(low, high):
        yield f'<path class="grid" d="M0 {y(value)}H{_WIDTH}"/>'
        yield f'<text x="-6" y="{y(value)}" dy="4" text-anchor="end">{value:g}</text>'
    yield f'<path class="axis" d="M0 {_HEIGHT}H{_WIDTH}"/>'
    for at in range(0, depth + 1, max(1, depth // 4)):
        yield f'<text x="{x(at)}" y="{_HEIGHT + 16}" text-anchor="middle">{at}</text>'
    middle, below = _WIDTH // 2, _HEIGHT + 34
    yield f'<text x="{middle}" y="{below}" text-anchor="middle">{escape(panel.x_label)}</text>'
    yield f'<text x="{8 - _LEFT}" y="-10">{escape(panel.y_label)}</text>'
    for curve in sorted(curves, key=lambda curve: -curve.look):  # the subject lies over the others
        line = "L".join(f"{x(at)} {y(value)}" for at, value in curve.points)
        yield f'<path class="{_LOOKS[curve.look]}" d="M{line}"/>' if line else ""


def _heights(values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis, at least a factor of four apart, with a margin."""
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    wider = max(1.0, 2 / math.sqrt(high / low))
    margin = 1.12 * wider
    return low / margin, high * margin


def _legend(looks: dict[str, int], wide: int) -> tuple[list[str], int]:
    """Draws the legend in rows that are no wider than the picture."""
    marks = []
    x = 8.0
    row = 0
    for label, look in looks.items():
        needed = 34 + len(label) * _LETTER + 18
        if x + needed > wide and x > 8:
            x, row = 8.0, row + 1
        y = 18 + _ROW * row
        marks.append(f'<path class="{_LOOKS[look]}" d="M{x:g} {y - 4}h26"/>')
        marks.append(f'<text x="{x + 32:g}" y="{y}">{escape(label)}</text>')
        x += needed
    return marks, row + 1


def _panel_in_words(panel: DepthPanel) -> str:
    ends = [
        f"{c.label} {significant(c.values[0], 3)} to {significant(c.values[-1], 3)}"
        for c in panel.curves
    ]
    return f"{panel.y_label}: {', '.join(ends)}"
