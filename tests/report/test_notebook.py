"""Results as cells of a notebook: static, within 100 kB, and inert whatever others have named."""

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from normscope.api.comparison import Comparison as Result
from normscope.api.placements import choose, placements
from normscope.api.prediction import predict
from normscope.doctor.report.notebook import diagnosis_html
from normscope.report import notebook
from normscope.report.chart import Panel, Series
from normscope.report.chart_svg import panels_svg
from normscope.report.comparison.contents import (
    ComparedConfiguration,
    ComparisonPage,
    Name,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.comparison.page import comparison_html
from normscope.report.words import Tone, TonedWords
from report.diagnoses import advice, broken, healthy, streams, with_stack, with_sublayer

HOSTILE = "</script><img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m<b>" + "x" * 10_000
ALLOWED = {
    *("div", "p", "strong", "pre", "table", "thead", "tbody", "tr", "th", "td", "img"),
    *(
        "svg",
        "title",
        "desc",
        "g",
        "path",
        "use",
        "defs",
        "clippath",
        "rect",
        "text",
        "tspan",
        "circle",
    ),
}


class Page(HTMLParser):
    """Tags with their attributes, and the text; fails on a tag that closes out of order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "img":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def static(html: str) -> Page:
    """The output, which has no tag, handler or address by which something could be fetched or
    run.
    """
    assert len(html.encode()) <= notebook.LIMIT_BYTES
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag in ALLOWED, tag
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:image/svg+xml;base64,")), (
                address
            )
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not re.search("[\u202e\x1b]", page.text)
    return page


def grown(
    comparison: ComparisonPage, placements: int, seeds: int = 3, points: int = 200
) -> ComparisonPage:
    """The comparison with many more configurations, each of many points."""
    names = [
        Name(f"Placement {i}", variant)
        for i in range(placements)
        for variant in ("no warm-up", "warm-up 150")
    ]
    results = [
        SeedResult(
            seed=seed,
            status=Status.FINISHED,
            updates=points,
            valid_loss_nats=2.0 + seed / 7,
            summed_lr=1.0,
        )
        for seed in range(seeds)
    ]
    configurations = [
        ComparedConfiguration(
            name=name,
            warmup_updates=0,
            peak_lr=1e-3,
            optimizer="adam",
            seeds=results,
            verdict=TonedWords("learned", Tone.GOOD),
            summary="",
        )
        for name in names
    ]
    updates = list(range(1, points + 1))
    curves = [
        RunCurve(
            name=name,
            updates=updates,
            seeds_values=[
                [5 / update**0.2 + (seed * update) % 7 / 50 for update in updates]
                for seed in range(seeds)
            ],
        )
        for name in names
    ]
    return dataclasses.replace(comparison, configurations=configurations, valid_curves=curves)


def test_a_comparison_says_what_the_terminal_does(comparison: ComparisonPage) -> None:
    page = static(comparison_html(comparison, "grid/report.html"))
    assert comparison.conclusion[0] in page.text
    assert comparison.conclusion[1] in page.text
    for one in comparison.configurations:
        assert str(one.name) in page.text
        assert one.verdict.text in page.text
    assert [tag for tag, _ in page.tags].count("svg") == 1 + bool(comparison.rate_curves)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("many", [5, 31, 120])
def test_a_comparison_of_many_stays_small_and_keeps_its_words(
    comparison: ComparisonPage, many: int
) -> None:
    found = grown(comparison, many)
    page = static(comparison_html(found, "grid/report.html"))
    assert found.conclusion[0] in page.text
    assert "Placement 4, warm-up 150" in page.text
    assert ("svg" in {tag for tag, _ in page.tags}) == (many < 40)


def test_hostile_names_are_inert_in_a_comparison(comparison: ComparisonPage) -> None:
    named = grown(comparison, 3, points=5)
    rows = [
        dataclasses.replace(one, name=Name(HOSTILE, one.name.variant), optimizer=HOSTILE)
        for one in named.configurations
    ]
    curves = [
        dataclasses.replace(one, name=Name(HOSTILE, one.name.variant)) for one in named.valid_curves
    ]
    page = static(
        comparison_html(
            dataclasses.replace(named, title=HOSTILE, configurations=rows, valid_curves=curves),
            HOSTILE,
        )
    )
    assert "</script><img src=x onerror=alert(1)>" in page.text


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("made", [healthy, broken, streams])
def test_a_diagnosis_says_what_the_terminal_does(made: Callable[[], object]) -> None:
    found = dataclasses.replace(made(), advice=advice())
    page = static(diagnosis_html(found))
    for finding in found.findings:
        assert finding.id in page.text
        assert finding.message in page.text
    for stack in found.stacks:
        assert stack.sublayers[0].formula in page.text
    assert "learning rate with" in page.text


def test_hostile_names_are_inert_in_a_diagnosis() -> None:
    found = broken()
    findings = [dataclasses.replace(one, where=HOSTILE, message=HOSTILE) for one in found.findings]
    found = dataclasses.replace(found, target=HOSTILE, findings=tuple(findings))
    stack = with_sublayer(found.stacks[0], 0, name=HOSTILE, formula=HOSTILE)
    found = with_stack(found, 0, name=HOSTILE, sublayers=stack.sublayers)
    assert "</script><img src=x onerror=alert(1)>" in static(diagnosis_html(found)).text


def test_predictions_placements_and_choices_are_static() -> None:
    assert (
        "ResiDual" in static(predict("pre-ln", "residual", blocks=6, width=16)._repr_html_()).text
    )
    assert (
        "skip_scale" in static(placements("deepnorm", "siamese-norm", blocks=4)._repr_html_()).text
    )
    every = placements(model="decoder-only", blocks=2)._repr_html_()
    static(every)
    assert "<td>admin</td>" in every
    assert "<td>zaya</td>" in every
    everything = static(
        choose(model="decoder-only", blocks=8, width=64, optimizer="adam", tokens=2e5)._repr_html_()
    )
    assert "only small-scale" not in everything.text
    assert "peri-ln" in everything.text


def test_a_table_that_is_too_long_says_how_much_is_left() -> None:
    html = notebook.table(("name",), [(f"row {i} " + "x" * 500,) for i in range(300)])
    shown = html.count("<tr>") - 2
    assert 0 < shown < 200
    assert f"… and {300 - shown} more rows" in html
    assert "more rows" not in notebook.table(("name",), [("one",), ("two",)])


def test_pieces_that_do_not_fit_are_left_out_and_the_rest_is_kept() -> None:
    html = notebook.fragment(["<p>first</p>", f"<p>{'x' * 99_900}</p>", "<p>last</p>"])
    assert "first" in html
    assert "last" in html
    assert "too large for a notebook" in Page(html).text
    assert len(html) < 1000


def test_two_pictures_of_one_notebook_share_no_id() -> None:
    pictures = [
        notebook.picture(
            panels_svg(
                [
                    Panel(
                        title=title,
                        xlabel="x",
                        ylabel="y",
                        series=[Series(label="a", kind="measured", hue=0, x=[0, 1], y=[0, 1])],
                    )
                ],
                title=title,
            )
        )
        for title in ("one", "two")
    ]
    ids = [set(re.findall(r'\sid="([^"]+)"', picture)) for picture in pictures]
    assert all(ids)
    assert not ids[0] & ids[1]
    used = [set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', picture)) for picture in pictures]
    assert all({a or b for a, b in some} <= own for some, own in zip(used, ids, strict=True))


def test_what_python_gives_of_a_comparison_is_that_fragment(
    comparison: ComparisonPage, tmp_path
) -> None:
    result = Result(
        folder=tmp_path, report=tmp_path / "report.html", page=comparison, runs={}, problems=[]
    )
    assert result._repr_html_() == comparison_html(comparison, str(tmp_path / "report.html"))
    assert result.verdicts == {str(one.name): one.verdict.text for one in comparison.configurations}
    assert json.dumps(result.verdicts)
    assert [*result.curves] == [str(curve.name) for curve in comparison.valid_curves]
