"""How a page is put together: templates, style sheets, its script, and the policy that lets a browser run no other."""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..chart import Explorer
from ..words import printable
from .encode import encoded

_TEMPLATES = Path(__file__).parents[1] / "templates"


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


_ROOM = Path(__file__).parents[1]
VENDOR = _ROOM / "vendor" / "uplot"
_PARTS = (
    "numbers", "data", "state", "smooth", "paths", "chart", "pointer", "legend", "figure", "controls", "export",
    "tables", "reload", "main",
)  # fmt: skip
"""Files of `js/` in the order in which they stand in the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """What a template needs: all of it goes into the page as it is."""

    policy: str
    css: str
    data: str
    script: str


def scripted(explorer: Explorer, *sheets: str) -> Scripted:
    """A page's data beside the script that draws it; sheets: the style sheets that the page has beside the house's."""
    css = f"{(VENDOR / 'uPlot.min.css').read_text(encoding='utf-8')}\n{style_sheet(*sheets, 'explore')}"
    script = source()
    # Attributes of pictures are styled in place; `style-src` is for browsers that do not tell elements from attributes.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src 'unsafe-inline'; "
        f"style-src-elem '{_hash(css)}'; style-src-attr 'unsafe-inline'; img-src data:"
    )
    return Scripted(policy=policy, css=css, data=encoded(explorer), script=script)


@cache
def source() -> str:
    """uPlot, then our own files in one scope. Raises ValueError where it holds what would end its element."""
    own = "".join((Path(__file__).parent / "js" / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS)
    licence, uplot = ((VENDOR / name).read_text(encoding="utf-8") for name in ("LICENSE", "uPlot.iife.min.js"))
    text = f'/*\n{licence}*/\n{uplot}(() => {{\n"use strict";\n{_bare(own)}}})();\n'
    if any(end in text.lower() for end in ("</script", "<!--", "<script")):
        raise ValueError("the script would end its own element")
    return text


def _bare(script: str) -> str:
    """Without lines of comment and indentation, which every page would carry; the files have them."""
    lines = (line.strip() for line in re.sub(r"(?ms)^\s*/\*\*.*?\*/\n", "", script).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
