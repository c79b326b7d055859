"""Wiring diagrams as SVG files that need nothing else and follow the reader's light or dark
theme.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..placement.wiring import Wiring
from . import words
from .details import Details
from .rows import StackName
from .wiring_lanes import Crossbar, layout

_LETTER = (
    7.3  # pixels of a monospaced letter of 12 pixels, a little more than any font of the list has
)
_LINE = 15
_TURN = 12
_GAP = 14
_BESIDE = 34
_MARGIN = 20
_TITLE = 26
_BETWEEN = 48
_STYLE = Path(__file__).with_name("wiring.css").read_text(encoding="utf-8")


def diagram(found: Details, stack: StackName) -> str:
    """Returns the wiring of one stack of a placement."""
    title = f"Wiring of {found.row.title}, {stack}"
    return wiring_svg(found.wiring[stack], title=title, desc="; ".join(words.formula(found.row)))


def wiring_svg(sections: Sequence[Wiring], *, title: str, desc: str) -> str:
    """Returns all sections side by side, on a card of their own; `title` and `desc` are for screen
    readers.
    """
    x = float(_MARGIN)
    drawn = []
    height = 0.0
    for section in sections:
        picture = _Picture(section)
        heading = _text(0, 12, section.title, "title")
        drawn.append(f'<g transform="translate({x:g} {_MARGIN})">{heading}{picture.marks()}</g>')
        x += max(picture.width, len(section.title) * _LETTER) + _BETWEEN
        height = max(height, picture.height)
    wide, high = x - _BETWEEN + _MARGIN, height + 2 * _MARGIN
    size = f'width="{wide:g}" height="{high:g}" viewBox="0 0 {wide:g} {high:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wiring" role="img" {size}>\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(desc)}</desc>\n<style>\n{_STYLE}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{wide - 1:g}" height="{high - 1:g}" rx="8"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


class _Picture:
    """One section; its own corner is (0, 0)."""

    def __init__(self, section: Wiring) -> None:
        self.boxes, self.layout = section.boxes, layout(section)
        self.x: dict[int, float] = {}
        """The horizontal position of the middle of every lane."""
        x = 0.0
        for lane, wide in self.layout.widths(lambda box: self._size(box)[0], 8).items():
            self.x[lane] = x + wide / 2
            x += wide + _BESIDE
        self.width = x - _BESIDE
        self.y: list[float] = []
        """The vertical position of the middle of each row."""
        y = float(_TITLE)
        for row in self.layout.rows:
            high = max((self._size(box)[1] for box in row), default=0)
            self.y.append(y + high / 2 if row else y + _TURN / 2)
            y += high + _GAP if row else _TURN
        self.height = y - _GAP

    def marks(self) -> str:
        """Lines, then what lies over them."""
        lines = [self._vertical(line.lane, line.top, line.bottom) for line in self.layout.lines]
        bars = [self._horizontal(bar) for bar in self.layout.crossbars]
        return "\n".join(
            [*lines, *bars, *(self._box(box) for row in self.layout.rows for box in row)]
        )

    def _words(self, box: int) -> list[str]:
        return [self.boxes[box].label, *self.boxes[box].details]

    def _size(self, box: int) -> tuple[float, float]:
        words = self._words(box)
        letters = max(map(len, words)) * _LETTER
        match self.boxes[box].kind:
            case "sum":
                return 20, 20
            case "input" | "output":
                return letters + 8, 16
            case _:
                return letters + 18, _LINE * len(words) + 9

    def _vertical(self, lane: int, top: int, bottom: int) -> str:
        boxes = (self.layout.box_at(row, lane) for row in (top, bottom))
        halves = [0 if box is None else self._size(box)[1] / 2 for box in boxes]
        return (
            f'<path class="line" d="M{self.x[lane]:g} '
            f'{self.y[top] + halves[0]:g}V{self.y[bottom] - halves[1]:g}"/>'
        )

    def _horizontal(self, bar: Crossbar) -> str:
        y = self.y[bar.row]
        start = self.x[bar.start]
        end = self.x[bar.end]
        ahead = 1 if end > start else -1
        box, tip = self.layout.box_at(bar.row, bar.end), ""
        if bar.into_box and box is not None:
            end -= ahead * self._size(box)[0] / 2
            back = end - ahead * 7
            tip = f'<path class="tip" d="M{end:g} {y:g}L{back:g} {y - 4:g}V{y + 4:g}Z"/>'
            end = back
        joined = self.layout.joins(bar)
        crossed = [
            self.x[line.lane]
            for line in self.layout.lines
            if min(bar.start, bar.end) < line.lane < max(bar.start, bar.end)
            and line.top < bar.row < line.bottom
            and line.lane not in joined
        ]
        bridges = "".join(
            f'<path class="bridge" d="M{x - 6:g} {y:g}H{x + 6:g}"/>' for x in dict.fromkeys(crossed)
        )
        dots = "".join(
            f'<circle class="tip" cx="{self.x[lane]:g}" cy="{y:g}" r="3"/>'
            for lane in sorted(joined)
        )
        return f'{bridges}<path class="line" d="M{start:g} {y:g}H{end:g}"/>{dots}{tip}'

    def _box(self, box: int) -> str:
        row = next(number for number, boxes in enumerate(self.layout.rows) if box in boxes)
        x = self.x[self.layout.lanes[box]]
        y = self.y[row]
        kind = self.boxes[box].kind
        wide, high = self._size(box)
        if kind in ("input", "output"):
            return _text(x, y + 4, self.boxes[box].label)
        if kind == "sum":
            cross = f"M{x - 5:g} {y:g}H{x + 5:g}"
            if self.boxes[box].label == "+":
                cross += f"M{x:g} {y - 5:g}V{y + 5:g}"
            return (
                f'<circle class="box" cx="{x:g}" cy="{y:g}" r="10"/><path class="line" '
                f'd="{cross}"/>'
            )
        left, top = x - wide / 2, y - high / 2
        rect = (
            f'<rect class="box {kind}" x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" '
            'rx="4"/>'
        )
        words = (
            _text(x, top + 16 + number * _LINE, text)
            for number, text in enumerate(self._words(box))
        )
        return rect + "".join(words)


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    described = f' class="{kind}"' if kind else ""
    return f'<text{described} x="{x:g}" y="{y:g}">{escape(words)}</text>'
