"""Templates and style sheets of the pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .printable import printable

_TEMPLATES = Path(__file__).parent / "templates"


def environment() -> Environment:
    """The environment of the templates: everything is escaped and printable, and a name not given is an error."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style_sheet(*more: str) -> str:
    """The style sheet of all pages, followed by those named in `more`."""
    return "".join((_TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in ("style", *more))
