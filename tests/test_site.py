"""The manual's site has every page and every public name; building it, which `make docs` does,
needs Sphinx.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import normscope

ROOT = Path(__file__).parents[1]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"docs/site/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def conf(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return loaded("conf")


def test_the_reference_has_every_public_name() -> None:
    outline = (ROOT / "docs/site/reference.md").read_text(encoding="utf-8")
    told = re.findall(r"^\.\. auto\w+:: normscope\.(\w+)$", outline, re.MULTILINE)
    assert sorted(told) == sorted(normscope.__all__)


def test_every_name_of_the_reference_is_there() -> None:
    """As autodoc looks for them, which else would tell when the site is built."""
    outline = (ROOT / "docs/site/reference.md").read_text(encoding="utf-8")
    for path in re.findall(r"^\.\. auto\w+:: ([\w.]+)", outline, re.MULTILINE):
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        assert found.__doc__, path


def test_every_page_stands_in_the_menu(conf: ModuleType) -> None:
    listed = {
        page for sections in conf.MENU.values() for pages in sections.values() for page in pages
    }
    shown = {path.removesuffix(".md") for path in conf.PAGES} | {conf.REFERENCE}
    assert listed <= shown
    below = {page for page in shown for folder in conf.FOLDERS.values() if page.startswith(folder)}
    assert shown - listed - below == {"README"}
    assert {f"docs/{page.stem}" for page in (ROOT / "docs").glob("*.md")} <= shown


def test_pages_get_their_menu(conf: ModuleType) -> None:
    source = ["# Placements\n"]
    conf.with_menu(None, "docs/placements", source)
    assert source[0].startswith(
        "# Placements\n\n\n```{toctree}\n:hidden:\n:titlesonly:\n\n/docs/placements/"
    )
    assert source[0].count("/docs/placements/") == len(
        list((ROOT / "docs/placements").glob("*.md"))
    )


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("One line.", "One line.\n"),
        ("A sum.\n\nTerms:\n    x, y: what is\n        added: both.\n    z: z.\n\n"
         "Raises ValueError for text.\n", "A sum.\n\n**Terms**\n\n"
         ":param x: what is added: both.\n:param y: what is added: both.\n:param z: z.\n\n"
         ":raises ValueError: for text.\n"),
        ("A sum. Raises TypeError where\n"
            "x is none.", "A sum. \n"
            "\n"
            ":raises TypeError: where x is none.\n"),
        ("Note: this is text; z: is no parameter.", "Note: this is text; z: is no parameter.\n"),
        ("Such as:\n\n    x: this is code", "Such as:\n\n    x: this is code\n"),
    ],
)  # fmt: skip
def test_parameters_and_errors_become_lists(docstring: str, expected: str) -> None:
    made = loaded("docstrings").as_fields(docstring.splitlines())
    assert "\n".join(made) == expected


def test_the_first_page_leads_to_pages_and_headings_that_are_there(conf: ModuleType) -> None:
    assert conf.html_additional_pages == {"index": "landing.html"}
    page = (ROOT / "docs/site/templates/landing.html").read_text(encoding="utf-8")
    led_to = re.findall(r"pathto\('([^']+)'\) }}(?:#([\w-]+))?", page)
    assert len(led_to) > 5
    for name, heading in led_to:
        assert f"{name}.md" in conf.PAGES
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        anchors = [
            re.sub(r"[^\w -]", "", one).strip().replace(" ", "-").lower()
            for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        ]
        assert not heading or heading in anchors


def test_the_menu_is_in_groups_of_what_one_comes_for(conf: ModuleType) -> None:
    assert list(conf.MENU["README"])[:5] == ["Start", "Use", "Understand", "Reference", "Results"]
