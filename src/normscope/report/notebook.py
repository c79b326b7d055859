"""Pages and pictures as the output of a notebook's cell."""

from collections.abc import Sequence
from html import escape


def framed(page: str, *, height: int = 640) -> str:
    """A whole page in a frame of its own, so that neither its style nor the notebook's reaches the other."""
    style = f"width: 100%; height: {height}px; border: 1px solid #d0d7de; border-radius: 6px"
    return f'<iframe style="{style}" srcdoc="{escape(page)}"></iframe>'


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of text, numbers and nothing that is HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
