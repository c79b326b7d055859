"""A page that is written while runs train loads itself again, and keeps what its reader has chosen."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from normscope.report.comparison.page import render
from report.devtools import Tab
from report.explore.conftest import comparison_of

pytestmark = pytest.mark.thorough

LIVE = 'data-reload-seconds="7"'


@cache
def rendered(*, live: bool) -> str:
    comparison = replace(comparison_of(2, updates=range(1, 101)), created="WHEN")
    return render(comparison, reload_seconds=7) if live else render(comparison)


def written(file: Path, at: str, *, live: bool) -> None:
    """The page as of a time, loading itself again after half a second instead of every seven."""
    text = rendered(live=live).replace("WHEN", at).replace(LIVE, 'data-reload-seconds="0.5"')
    whole = file.with_suffix(".new")
    whole.write_text(text, encoding="utf-8")
    whole.replace(file)


SHOWN = "document.querySelector('header time').textContent"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_a_page_of_running_runs_follows_them_and_keeps_the_readers_view(tab: Tab, file: Path) -> None:
    written(file, "first", live=True)
    tab.open(f"{file.as_uri()}#logy=log&smooth=0.5", height=4000)
    slider = "document.querySelector('#explore-smooth')"
    tab.soon(f"{slider}.focus() ?? document.activeElement === {slider}", wanted=True)
    written(file, "second", live=True)
    tab.soon(SHOWN, "second")
    tab.soon("[normscope.state.logY, normscope.state.smooth]", ["log", 0.5])
    tab.soon(f"document.activeElement === {slider}", wanted=True)
    written(file, "third", live=False)
    tab.soon(SHOWN, "third")
    tab.js("window.stays = true")
    written(file, "fourth", live=False)
    tab.js("new Promise(done => setTimeout(done, 1000))")
    assert tab.js("window.stays")
    assert tab.js("document.querySelector('#explore-still')") is None
    assert tab.log == []


def test_a_reader_may_keep_the_page_as_it_is(tab: Tab, file: Path) -> None:
    written(file, "first", live=True)
    tab.open(file.as_uri(), height=4000)
    button = "document.querySelector('#explore-still')"
    tab.soon(f"normscope.state.still || {button}.click() || normscope.state.still", wanted=True)
    written(file, "second", live=True)
    tab.js("new Promise(done => setTimeout(done, 1000))")
    assert tab.js(SHOWN) == "first"
    assert tab.js("location.hash") == "#still=1"
    assert tab.js(f"{button}.textContent") == "Load again as runs go on"
    tab.js(f"{button}.click()")
    tab.soon(SHOWN, "second")
    assert tab.log == []


def test_the_page_says_that_it_loads_itself_again_where_it_does() -> None:
    for live in (True, False):
        text = rendered(live=live)
        assert (LIVE in text) == live == ("loads itself again every 7 seconds" in text)
