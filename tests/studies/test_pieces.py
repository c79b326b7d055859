"""Pieces know the source that measured them: an edited measurement is made again, an edited page is
not.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from normscope import provenance
from normscope_studies.engine.discovery import studies
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.lemmas.study import STUDY

TINY = replace(STUDY.scales["smoke"], seeds=2, blocks=2, width=16, tokens=4, vectors=20)


@pytest.fixture
def package(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """A copy of the package's source that can be edited; what is measured is still the real one."""
    root = tmp_path / "normscope"
    for name in ("normscope", "normscope_studies"):
        there = provenance.ROOT.parent / name
        shutil.copytree(there, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "ROOT", root)
    forget()
    yield root
    forget()


def forget() -> None:
    for function in (provenance.source_sha256, provenance.source_of, provenance._commit):
        function.cache_clear()


def edit(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    forget()


def made(folder: Path) -> list[str]:
    pieces = Pieces(folder)
    run_study(STUDY, TINY, pieces, command="")
    return pieces.made


@pytest.mark.thorough
def test_an_edited_measurement_is_made_again_and_an_edited_page_is_not(
    package: Path, tmp_path: Path
):
    folder = tmp_path / "study"
    assert len(made(folder)) == 8
    assert made(folder) == []
    source = json.loads((folder / "results.json").read_text(encoding="utf-8"))["source_sha256"]
    edit(package.parent / "normscope_studies" / "lemmas" / "study.py")
    edit(package / "report" / "chart_svg.py")
    assert made(folder) == []
    assert (
        json.loads((folder / "results.json").read_text(encoding="utf-8"))["source_sha256"] != source
    )
    edit(package.parent / "normscope_studies" / "lemmas" / "measure.py")
    assert len(made(folder)) == 8
    edit(package / "model" / "sublayers.py")
    assert len(made(folder)) == 8


@pytest.mark.thorough
def test_the_page_and_the_data_name_what_made_them(tmp_path: Path):
    forget()
    _, page = run_study(STUDY, TINY, Pieces(tmp_path), command="")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (
        results["source_sha256"]
        == results["environment"]["source_sha256"]
        == provenance.source_sha256("normscope_studies")
    )
    html = page.read_text(encoding="utf-8")
    assert f"NormScope {results['normscope']}, source {results['source_sha256'][:12]}" in html
    assert results["source_sha256"] in html


OTHERWISE = (
    "adaptive",
    "converged",
    "deep",
    "figure-2",
    "figure-4",
    "figure-5",
    "figure-6",
    "families",
    "memo",
    "optimizers",
    "paper",
    "probes",
    "rate-law",
    "rescue",
    "spikes",
    "stable",
    "three-rates",
)


MEASURED_BY = {
    "advice": "advice.training",
    "rates-at-size": "rates_at_size.training",
    "horizons": "advice.training",
    "rate-transfer": "advice.training",
    "depth": "theory.simulation",
    "hidden-state": "theory.simulation",
}
"""Modules of the functions that are handed to `Pieces.get`, where they are not the study's own
`measure`.
"""


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", [name for name in studies() if name not in OTHERWISE])
def test_what_measures_does_not_depend_on_pages(name: str):
    """Else an edited caption would throw hours of measurements away.

    Figures 2, 4, 5 and 6, the cross of optimisers, adaptive, converged, deep and stable measure by
    runs alone, the studies of families, rescue and spikes by the doctor, whose room makes findings,
    and probes by scikit-learn's adapter, whose room has pages' adapters too: minutes; rate-law and
    three-rates read tables. Those of texts read the others.
    """
    module = f"normscope_studies.{MEASURED_BY.get(name, name.replace('-', '_') + '.measure')}"
    places = {
        path.relative_to(provenance.ROOT.parent).as_posix()
        for path in provenance.files_behind(module)
    }
    assert f"{module.replace('.', '/')}.py" in places
    assert not {
        place for place in places if place.startswith(("normscope/report/", "normscope/cli/"))
    }
    assert not {
        place
        for place in places
        if Path(place).name in ("page.py", "claims.py", "figures.py", "study.py")
    }
