"""Sphinx's settings of the manual: README and all that it links to, at the repository's own paths.

So a link works in the repository as on the site, and a new page needs only a link from another one.
"""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from docstrings import as_fields

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\]\(([^)#\s]+)")


def linked(first: str) -> list[str]:
    """Paths of this page and of all pages that it links to, directly or through others, in the
    order of the links.
    """
    found: list[str] = []
    left = [first]
    while left:
        path = left.pop(0)
        if path in found:
            continue
        found.append(path)
        text = _FENCED.sub("", (ROOT / path).read_text(encoding="utf-8"))
        targets = (((ROOT / path).parent / target).resolve() for target in _TARGET.findall(text))
        left += [str(t.relative_to(ROOT)) for t in targets if t.suffix == ".md" and t.is_file()]
    return found


PAGES = list(
    dict.fromkeys(
        page for first in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") for page in linked(first)
    )
)
REFERENCE = "docs/site/reference"
"""Made of docstrings, so the repository holds its outline alone."""

project = "NormScope"
copyright = "NormScope, Apache-2.0"
root_doc = "README"
include_patterns = [*PAGES, f"{REFERENCE}.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
suppress_warnings = [
    "myst.header"
]  # README's and the results' first headings are not all of level 1
myst_heading_anchors = 4

default_role = "code"  # docstrings write code in single backticks, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = "NormScope"
html_static_path = ["site.css"]
html_extra_path = ["../../llms.txt"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_additional_pages = {"index": "landing.html"}
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which a browser refuses to pages from files
html_show_sourcelink = False
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = False

MENU = {
    "README": {
        "Start": ["docs/doctor", "docs/choosing", "docs/placements", "docs/studies"],
        "Use": [
            *(
                "docs/comparing",
                "docs/transplant",
                "docs/own-models",
                "docs/own-placements",
                "docs/walks",
            ),
            *("docs/training", "docs/data", "docs/models", "docs/pretraining", "docs/finetuning"),
            *("docs/exchange", "docs/gpu", "docs/one-large-run", "docs/clusters"),
        ],
        "Understand": ["docs/predicting", "docs/theory", "docs/decisions"],
        "Reference": [
            *("docs/python", REFERENCE, "docs/doctor-json", "docs/run-folders"),
            *("docs/agents", "docs/trust"),
        ],
        "Results": ["results/README", "docs/choosing-tables", "benchmarks/README"],
        "About": ["CONTRIBUTING", "tests/mutants", "SECURITY", "CHANGELOG"],
    },
}
"""Page -> heading -> pages of the menu below it; those of the folders below come after."""
ACCESSIBLE = {
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Menu">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
}
"""What the theme leaves to be said, by axe-core's rules."""
FOLDERS = {"docs/placements": "docs/placements/", "results/README": "results/"}


def with_menu(app: Any, page: str, source: list[str]) -> None:
    """Append to a page the pages that stand below it in the menu."""
    sections = MENU.get(page, {})
    if folder := FOLDERS.get(page):
        below = [path.removesuffix(".md") for path in PAGES if path.startswith(folder)]
        sections = {"": [name for name in below if name != page]}
    for heading, pages in sections.items():
        names = "\n".join(f"/{name}" for name in pages)
        caption = f":caption: {heading}\n" if heading else ""
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:titlesonly:\n{caption}\n{names}\n```\n"


def finished(app: Any, error: Exception | None) -> None:
    """Name the landmarks of every page, and let keys scroll code."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    for page in out.rglob("*.html"):
        if "_downloads" not in page.parts:  # a report is a page of ours, and as it was written
            text = page.read_text(encoding="utf-8")
            for plain, accessible in ACCESSIBLE.items():
                text = text.replace(plain, accessible)
            page.write_text(text, encoding="utf-8")


def with_levels(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Give the headings of the menu the level that readers of screens go by."""
    menu = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = menu.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def with_fields(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Give a docstring its lists of parameters and errors."""
    lines[:] = as_fields(lines)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", with_fields)
    app.connect("source-read", with_menu)
    app.connect("html-page-context", with_levels, priority=900)  # after the theme
    app.connect("build-finished", finished)
