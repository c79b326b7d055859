"""The page as it is seen: on telephones and desks, in every theme, on paper, without scripts, and
by its rules.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from normscope.report.comparison.contents import ComparisonPage, Name
from report.axe import violations
from report.conftest import render
from report.devtools import Tab
from report.explore.conftest import comparison_of

pytestmark = pytest.mark.thorough

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\u0007'\"=1+1 {{ 7 }}"
SHOWN = "[...document.querySelectorAll('{}')].filter(e => e.checkVisibility()).length"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, sample_page: str) -> str:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(sample_page, encoding="utf-8")
    return file.as_uri()


HUE = "normscope.views[0].plot.series.at(-1).stroke()"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "features",
    [{}, {"prefers_color_scheme": "dark"}, {"forced_colors": "active"}],
    ids=["light", "dark", "forced"],
)
def test_charts_fit_and_have_the_colours_of_the_theme(
    tab: Tab, address: str, width: int, features: dict[str, str]
) -> None:
    tab.open(address, width=width, height=8_000, **features)
    tab.soon(SHOWN.format(".plot canvas"), 5)
    assert tab.log == []
    assert tab.js("document.documentElement.scrollWidth") == width
    assert tab.js(SHOWN.format("figure > svg")) == 1
    assert (
        tab.js(HUE)
        == {"": "#d55e00", "dark": "#ff8a3d", "active": "LinkText"}["".join(features.values())]
    )


def test_a_theme_that_changes_draws_the_charts_anew(tab: Tab, address: str) -> None:
    tab.open(address, prefers_color_scheme="light", height=4_000)
    tab.soon(HUE, "#d55e00")
    tab.media(prefers_color_scheme="dark")
    tab.soon(HUE, "#ff8a3d")
    assert tab.log == []


@pytest.mark.parametrize("script", [True, False])
def test_paper_and_readers_without_scripts_have_the_pictures_and_no_controls(
    tab: Tab, address: str, script: bool
) -> None:
    tab.open(address, media="print" if script else "", script=script)
    assert tab.js(SHOWN.format("figure > svg")) == 6
    assert tab.js(SHOWN.format("canvas, .chart, #explore")) == 0
    assert "Pre-LN without warm-up ends at 2.60 nats in two seeds." in tab.js(
        "document.body.innerText"
    )
    assert tab.log == []


def test_charts_of_a_hundred_arms_are_drawn_one_after_the_other(
    tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "normscope.report.comparison.page.pictures", lambda comparison, explored: PICTURES
    )
    page = tmp_path / "many.html"
    page.write_text(render(comparison_of(100)), encoding="utf-8")
    assert page.stat().st_size < 800_000
    tab.open(page.as_uri(), height=900)
    tab.soon("normscope.views[0].drawn?.lines.length", 100)
    assert tab.js("document.querySelector('#explore').getBoundingClientRect().top") < 900
    assert tab.js("document.querySelector('.listed summary').textContent").endswith(": 100 learned")
    tab.media("print")
    listed = "document.querySelector('.listed li').checkVisibility({contentVisibilityAuto: true})"
    tab.soon(listed, wanted=True)
    tab.media()
    tab.js("document.querySelector('#f-train-loss').scrollIntoView()")
    tab.soon("normscope.views[1].drawn?.lines.length", 100)
    tab.js("document.querySelector('[data-facet=Warm-up]').click()")
    assert tab.js("normscope.views[1].drawn.lines.length") == 50
    assert tab.log == []


PICTURES = dict.fromkeys(
    (
        "valid_loss",
        "train_loss",
        "final_loss",
        "gradient_over_updates",
        "gradient_norms",
        "learning_rate",
    ),
    '<svg role="img" aria-labelledby="title desc"><title id="title">t</title><desc '
    'id="desc">d</desc></svg>',
)


def hostile(comparison: ComparisonPage) -> ComparisonPage:
    """Names that would leave their place, and one of ten thousand letters."""
    names = {c.name: Name(HOSTILE, str(i)) for i, c in enumerate(comparison.configurations)}
    names[comparison.configurations[0].name] = Name("long " * 2_000, "0")

    def renamed(curves: object) -> list[object]:
        return [replace(curve, name=names[curve.name]) for curve in curves]  # type: ignore[attr-defined]

    return replace(
        comparison,
        title=HOSTILE,
        subtitle=HOSTILE,
        what=[(HOSTILE, "x" * 10_000)],
        configurations=[
            replace(c, name=names[c.name], summary=HOSTILE) for c in comparison.configurations
        ],
        gradient_profiles=[replace(p, names=[names[p.name]]) for p in comparison.gradient_profiles],
        **{part: renamed(getattr(comparison, part)) for part in CURVES},  # type: ignore[arg-type]
    )


CURVES = ("valid_curves", "train_curves", "gradient_curves", "schedules")


def test_hostile_names_are_text(tab: Tab, tmp_path: Path, comparison: ComparisonPage) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(render(hostile(comparison)), encoding="utf-8")
    tab.open(page.as_uri(), width=390, height=30_000)
    tab.soon("normscope.views.every(v => v.plot)", wanted=True)
    assert tab.log == []
    assert tab.js("document.querySelectorAll('img').length") == 0
    assert tab.js("document.documentElement.scrollWidth") == 390
    assert tab.js("[...document.querySelectorAll('.legend bdi')].at(-1).textContent").startswith(
        "</script><img"
    )
    assert tab.js("normscope.csvOf(normscope.views[0]).includes('\"\"=1+1')")
    shown = tab.js("document.body.innerText + document.title")
    assert not {"\u202e", "\x1b", "\u0007"} & set(shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(tab: Tab, address: str, scheme: str) -> None:
    tab.open(address, prefers_color_scheme=scheme, height=8_000)
    tab.soon("normscope.views.every(v => v.plot)", wanted=True)
    assert violations(tab) == []


def test_a_page_that_nobody_scrolls_draws_every_chart(tab: Tab, address: str) -> None:
    tab.open(address, height=300)
    tab.soon(
        "normscope.views.filter(view => view.plot && !view.stale).length === "
        "normscope.views.length",
        True,
    )
    assert tab.log == []
