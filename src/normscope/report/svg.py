"""The way from a matplotlib figure to short SVG text, described for screen readers and ready for a
page in two themes.

The same figure gives the same bytes. All colours of the room are named here once; `style.css` gives
their values.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

from matplotlib import style
from matplotlib.figure import Figure

from .words import printable

_PATH = re.compile(r'(?<=\sd=")[^"]+(?=")')
_FINE = re.compile(r"-?\d+\.\d+")


def _shortened(svg: str) -> str:
    """The same picture in fewer letters: lines to a tenth of a point, which no screen or printer
    tells apart.

    Curved paths, as of round markers, are to a hundredth. Groups lose their names, which nothing
    reads.
    """

    def rounded(path: re.Match[str]) -> str:
        digits = 2 if "C" in path[0] else 1
        return " ".join(_FINE.sub(lambda found: f"{float(found[0]):.{digits}f}", path[0]).split())

    svg = re.sub(r'<g id="[^"]*"', "<g", _PATH.sub(rounded, svg))
    return re.sub(r"\n\s+(?=<)", "\n", svg.replace(" stroke-dashoffset: 0;", ""))


PAPER = "#ffffff"
INK = "#1b1f24"
GRID = "#d0d7de"
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito 2008 (jfly.uni-koeln.de/color), the best separated on white first; yellow and black
left out.
"""

CSS_NAMES = {PAPER: "--figure", INK: "--ink", GRID: "--grid"} | {
    hue: f"--hue-{i}" for i, hue in enumerate(HUES)
}

_FONT = "DejaVu Sans"
"""The font that layouts are computed with; matplotlib brings it along."""
_FONTS = f"'{_FONT}', 'Bitstream Vera Sans', Verdana, sans-serif"
"""The fonts for a viewer: the house's, else one whose letters are as wide, else the viewer's own,
which is rarely wider.
"""

_RC = {
    "svg.hashsalt": "normscope",
    "svg.fonttype": "none",  # text stays text, which can be searched, selected and read aloud
    "font.family": _FONT,
    "font.size": 12,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 11.5,
    "legend.handlelength": 2.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture as part of a page."""

    svg: str
    caption: str
    name: str = ""
    """The name of its figure, where its curves can be explored."""


@contextmanager
def house_style() -> Iterator[None]:
    """Our settings over matplotlib's defaults, whatever the user's matplotlibrc says, and only
    inside the block.
    """
    with style.context(["default", _RC]):
        yield


def to_svg(figure: Figure, *, title: str, desc: str) -> str:
    """Returns a file of its own, on white, with nothing in it that changes from one call to the
    next.
    """
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # the prolog names a DTD by its address
    text = text.replace('id="matplotlib.', 'id="')
    text = re.sub(
        r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*|<style\b.*?</style>\s*",
        "",
        text,
        flags=re.DOTALL,
    )
    # What the dropped style sheet said, as inherited attributes: its selector `*` would reach the
    # page around it.
    head = (
        '<svg role="img" aria-labelledby="title desc" stroke-linejoin="round" stroke-linecap="butt"'
    )
    text = text.replace("<svg", f'{head} font-family="{_FONTS}"', 1)
    text = text.replace(f" font-family: '{_FONT}';", "")
    words = (
        ">\n"
        f' <title id="title">{_xml_text(title)}</title>\n'
        f' <desc id="desc">{_xml_text(desc)}</desc>'
    )
    return text.replace(">", words, 1)


def inlined(svg: str, name: str) -> str:
    """Returns the part of an HTML page: ids prefixed with `name`, colours by CSS variable, size
    left to the page, and short.
    """
    head, gap, body = _shortened(svg).partition(">")
    head = re.sub(r'\s(?:width|height|version|xmlns|xmlns:xlink)="[^"]*"', "", head)
    head = head.replace('"title desc"', f'"{name}-title {name}-desc"')
    text = re.sub(r'(\sid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", head + gap + body)
    text = text.replace("xlink:href=", "href=")
    return re.sub(
        r": (#[0-9a-f]{6})\b",
        lambda m: f": var({CSS_NAMES[m[1]]})" if m[1] in CSS_NAMES else m[0],
        text,
    ).strip()


def _xml_text(text: str) -> str:
    return escape(printable(text))
