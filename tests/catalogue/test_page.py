"""docs/placements.md and its pictures are what the placements say today."""

import re
from pathlib import Path

import pytest

from normscope.catalogue.page import files
from normscope.catalogue.rows import Size
from normscope.placement import registered, registry

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "run `normscope placements --write-docs docs` and commit what it writes"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """What the placements that come with NormScope give, whatever other tests have registered."""
    ours = {name: p for name, p in registry._REGISTRY.items() if p.__module__.startswith("normscope.placement.")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", ours)
        return files(Size())


def test_the_manual_is_up_to_date(written):
    stale = [name for name, text in written.items() if _text(DOCS / name) != text]
    assert not stale, AGAIN


def test_the_manual_has_no_picture_of_a_placement_that_is_gone(written):
    assert {f"placements/{path.name}" for path in (DOCS / "placements").iterdir()} <= set(written)


def test_the_page_shows_every_placement_with_its_picture(written):
    page = written["placements.md"]
    ours = [name for name, p in registered().items() if p.__module__.startswith("normscope.placement.")]
    for name in ours:
        assert f'<a id="{name}"></a>' in page
        assert f"](placements/{name}.svg)" in page
    for target in re.findall(r"\]\(#([^)]+)\)", page):
        assert f'id="{target}"' in page or f"## {target.replace('-', ' ').capitalize()}" in page


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
