"""Wiring diagrams for the terminal, in box-drawing characters; data flows downwards."""

from collections.abc import Sequence

from ..placement.wiring import Box, Wiring
from .wiring_lanes import Crossbar, layout

_UP = 1
_DOWN = 2
_LEFT = 4
_RIGHT = 8
_GLYPHS = {
    _UP: "│",
    _DOWN: "│",
    _UP | _DOWN: "│",
    _LEFT: "─",
    _RIGHT: "─",
    _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "╭",
    _DOWN | _LEFT: "╮",
    _UP | _RIGHT: "╰",
    _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤",
    _LEFT | _RIGHT | _DOWN: "┬",
    _LEFT | _RIGHT | _UP: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}
_FRAMED = ("sublayer", "norm", "mix", "product")
_NOTES = {
    "⊖": "⊖ takes off what enters from the side.",
    "┼": "┼ Two lines cross and do not meet.",
    "●": "● They meet.",
}
_GAP = 4  # columns between the boxes of neighbouring lanes: an arrow, a line, a corner


def wiring_text(sections: Sequence[Wiring]) -> str:
    """Returns all sections below each other, each under its title where there are several."""
    drawn = [_Drawing(section).text() for section in sections]
    if len(sections) > 1:
        drawn = [
            f"{section.title}\n\n{text}" for section, text in zip(sections, drawn, strict=True)
        ]
    everything = "\n\n".join(drawn)
    notes = [note for sign, note in _NOTES.items() if sign in everything]
    return "\n\n".join([everything, *notes])


def label(box: Box) -> str:
    """Returns the text in the box."""
    return {"+": "⊕", "-": "⊖"}.get(box.label, box.label) if box.kind == "sum" else box.label


class _Drawing:
    """A canvas of characters: cells know in which directions a line leaves them, and text lies over
    them.
    """

    def __init__(self, section: Wiring) -> None:
        self.boxes, self.layout = section.boxes, layout(section)
        self.lines: dict[tuple[int, int], int] = {}
        self.letters: dict[tuple[int, int], str] = {}
        self.column: dict[int, int] = {}
        """Lane -> the column of its line."""
        x = 0
        for lane, width in self.layout.widths(self._width, 1).items():
            self.column[lane] = x + int(width) // 2
            x += int(width) + _GAP
        self.top: dict[int, int] = {}
        """Row of the layout -> its first row of characters."""
        y = 0
        for number, row in enumerate(self.layout.rows):
            above = self.layout.rows[number - 1] if number else ()
            if any(self._bare_below(box, other) for box in row for other in above):
                y += 1
            self.top[number] = y
            y += max((self._height(box) for box in row), default=1)

    def text(self) -> str:
        """Lines first, then boxes and letters over them."""
        for line in self.layout.lines:
            self._vertical(line.lane, line.top, line.bottom)
        for bar in self.layout.crossbars:
            self._horizontal(bar)
        for number, row in enumerate(self.layout.rows):
            for box in row:
                self._box(box, self.top[number])
        cells = {cell: _GLYPHS[bits] for cell, bits in self.lines.items()} | self.letters
        height = 1 + max(y for y, _ in cells)
        width = 1 + max(x for _, x in cells)
        rows = []
        for y in range(height):
            written = "".join(cells.get((y, x), " ") for x in range(width))
            rows.append(written.rstrip())
        return "\n".join(rows)

    def _framed(self, box: int) -> bool:
        return self.boxes[box].kind in _FRAMED

    def _bare_below(self, box: int, other: int) -> bool:
        """Tells whether two words of one lane follow each other, which need a line between them."""
        same = self.layout.lanes[box] == self.layout.lanes[other]
        return same and not self._framed(box) and not self._framed(other)

    def _words(self, box: int) -> list[str]:
        return [label(self.boxes[box]), *self.boxes[box].details]

    def _width(self, box: int) -> int:
        return max(map(len, self._words(box))) + (4 if self._framed(box) else 0)

    def _height(self, box: int) -> int:
        return len(self._words(box)) + 2 if self._framed(box) else 1

    def _side(self, row: int) -> int:
        """Returns the row of characters at which lines enter a box from the side."""
        boxes = self.layout.rows[row]
        return self.top[row] + (1 if boxes and self._framed(boxes[0]) else 0)

    def _vertical(self, lane: int, top: int, bottom: int) -> None:
        above, below = self.layout.box_at(top, lane), self.layout.box_at(bottom, lane)
        start = self.top[top] + (self._height(above) - 1 if above is not None else 0)
        self._down(
            self.column[lane], start, self.top[bottom] if below is not None else self._side(bottom)
        )

    def _horizontal(self, bar: Crossbar) -> None:
        y = self._side(bar.row)
        x = self.column[bar.start]
        end = self.column[bar.end]
        step = 1 if end > x else -1
        box = self.layout.box_at(bar.row, bar.end)
        if bar.into_box and box is not None:
            left, right = self._edges(box)
            end = left - 1 if step > 0 else right + 1
            self.letters[y, end] = "►" if step > 0 else "◄"
        for lane in self.layout.joins(bar):
            self.letters[y, self.column[lane]] = "●"
        self._across(y, min(x, end), max(x, end))

    def _down(self, x: int, start: int, end: int) -> None:
        for y in range(start, end):
            self._join((y, x), _DOWN)
            self._join((y + 1, x), _UP)

    def _across(self, y: int, start: int, end: int) -> None:
        for x in range(start, end):
            self._join((y, x), _RIGHT)
            self._join((y, x + 1), _LEFT)

    def _join(self, cell: tuple[int, int], direction: int) -> None:
        self.lines[cell] = self.lines.get(cell, 0) | direction

    def _edges(self, box: int) -> tuple[int, int]:
        """Returns the first and last column of a box."""
        width = self._width(box)
        left = self.column[self.layout.lanes[box]] - width // 2
        return left, left + width - 1

    def _box(self, box: int, top: int) -> None:
        left, right = self._edges(box)
        framed = self._framed(box)
        for number, words in enumerate(self._words(box)):
            inner = right - left + 1 - (4 if framed else 0)
            text = f" {words:^{inner}} " if framed else words
            for offset, letter in enumerate(text):
                self.letters[top + number + framed, left + offset + framed] = letter
        if framed:
            bottom = top + self._height(box) - 1
            for y in (top, bottom):
                self._across(y, left, right)
            for x in (left, right):
                self._down(x, top, bottom)
