"""Results as the output of a notebook's cell: static, small, and nothing in it but words, tables
and pictures.

No script, no style sheet and no address: a notebook shows it wherever it is opened, trusted or not,
and it does not reach what stands around it. Text of others is escaped, and shortened where it is
long.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape

from .svg import CSS_NAMES, inlined
from .words import printable

LIMIT_BYTES = 100_000
"""The largest size of one output; a notebook holds many, and is kept under version control."""
_TABLE_BYTES, _CELL_CHARACTERS = 80_000, 600
_COLOURS = ";".join(f"{name}:{colour}" for colour, name in CSS_NAMES.items())


def fragment(pieces: Iterable[str]) -> str:
    """Returns the pieces below each other, within `LIMIT_BYTES`; those that no longer fit are left
    out, and a line says so.
    """
    kept = list[str]()
    left = 0
    room = LIMIT_BYTES - 300
    for piece in pieces:
        size = len(piece.encode())
        if size > room:
            left += 1
            continue
        room -= size
        kept.append(piece)
    if left:
        kept.append(
            paragraph(
                "Some of it is too large for a notebook's cell and left out here; `.plot()` draws "
                "it."
            )
        )
    return "<div>" + "\n".join(kept) + "</div>"


def heading(text: object) -> str:
    """Returns a line above what belongs together."""
    return f"<p><strong>{_text(text)}</strong></p>"


def paragraph(text: object) -> str:
    """Returns a sentence or several; what reads as an item of a list stays one."""
    return f"<p>{_text(text, longest=4000)}</p>"


def preformatted(text: object) -> str:
    """Returns lines whose letters stand below each other."""
    return f"<pre>{_text(text, longest=4000)}</pre>"


def table(heads: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table of text, numbers and nothing that is HTML; of a very long one the beginning,
    and how much is left.
    """
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    shown, room = list[str](), _TABLE_BYTES
    for row in rows:
        text = "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>"
        room -= len(text.encode())
        if room < 0:
            shown.append(
                f'<tr><td colspan="{len(heads)}">… and {len(rows) - len(shown)} more rows</td></tr>'
            )
            break
        shown.append(text)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(shown)}</tbody></table>"


def picture(svg: str) -> str:
    """Returns a figure of ours as part of the page, on white, so that its text can be searched and
    read aloud.

    Its ids begin with a number made from the picture, so that several can stand in one notebook.
    """
    name = f"n{hashlib.sha256(svg.encode()).hexdigest()[:8]}"
    wide = re.search(r'\swidth="([\d.]+)pt"', svg)
    style = f"background:#fff;max-width:{float(wide[1]) if wide else 480:.0f}pt;{_COLOURS}"
    return f'<div style="{style}">{inlined(svg, name)}</div>'


def image(svg: str, alt: str) -> str:
    """Returns a picture that brings its own style, shut off from the page around it."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{_text(alt)}" src="data:image/svg+xml;base64,{data}">'


def _text(value: object, longest: int = _CELL_CHARACTERS) -> str:
    text = printable(str(value))
    return escape(text if len(text) <= longest else f"{text[:longest]}…")
