"""docs/placements.md and the pages of the placements are what formulas and results say today."""

import re
from pathlib import Path

import pytest

from normscope.catalogue.details import details
from normscope.catalogue.rows import Size
from normscope.placement import registered, registry
from normscope_studies.manual.measured import measured
from normscope_studies.manual.placements import _PredictedFigure, pages, placement_page

DOCS = Path(__file__).parents[3] / "docs"
AGAIN = "run `python -m normscope_studies.manual docs` and commit what it writes"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """What the placements that come with NormScope give, whatever other tests have registered."""
    ours = {
        name: p
        for name, p in registry._REGISTRY.items()
        if p.__module__.startswith("normscope.placement.")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", ours)
        return pages(DOCS.parent / "results")


def test_the_manual_is_up_to_date(written):
    stale = [name for name, text in written.items() if _text(DOCS / name) != text]
    assert not stale, AGAIN


def test_the_manual_has_no_file_of_a_placement_that_is_gone(written):
    assert {f"placements/{path.name}" for path in (DOCS / "placements").iterdir()} <= set(written)


def test_every_placement_has_a_page_with_its_pictures(written):
    ours = [
        name for name, p in registered().items() if p.__module__.startswith("normscope.placement.")
    ]
    for name in ours:
        assert f"](placements/{name}.md)" in written["placements.md"]
        page = written[f"placements/{name}.md"]
        pictures = {
            f"placements/{picture}" for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
        }
        assert f"placements/{name}.svg" in pictures <= set(written)
        assert (f"placements/{name}-depth.svg" in pictures) == (
            "Theory does not follow it" not in page
        )


def test_without_results_the_pages_say_so(tmp_path):
    known = {"pre-ln": registered()["pre-ln"]}
    nothing = measured(tmp_path / "missing", known)["pre-ln"]
    page = placement_page(
        details(known["pre-ln"], Size()),
        _PredictedFigure(command="", told=[]),
        nothing,
        [],
        "a model",
    )
    assert page.endswith("## Results\n\nNone of the committed results has numbers of it.\n")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
