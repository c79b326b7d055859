"""Every control of a page in a browser without network: what is drawn, and that the address keeps
it.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from report.conftest import render
from report.devtools import Tab
from report.explore.conftest import comparison_of

RATES = (1e-3, 3e-3, 1e-2)
TRAIN, VALID, RATE, DEPTH = (
    "Training loss",
    "Validation loss",
    "Validation loss at the end",
    "while training",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve arms: two placements, two warm-ups, three rates."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(comparison_of(12, rates=RATES)), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def page(tab: Tab, address: str) -> Iterator[Tab]:
    if tab.js("location.href").partition("#")[0] == address:
        tab.js("document.querySelector('#explore-reset').click()")
    else:
        tab.open(address, height=12_000)
    drawn(tab)
    yield tab
    assert tab.log == []


def drawn(tab: Tab) -> None:
    """Waits until every chart near the window is drawn."""
    tab.js("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")


def view(title: str) -> str:
    return f"normscope.views.find(v => v.chart.title.endsWith({json.dumps(title)}))"


def lines(tab: Tab, title: str) -> list[str]:
    """The labels of the arms whose lines are drawn."""
    found: list[str] = tab.js(f"{view(title)}.drawn.lines.map(l => normscope.arms[l.arm].label)")
    return found


def scale(tab: Tab, title: str, axis: str) -> list[float]:
    found: list[float] = tab.js(
        f"[{view(title)}.plot.scales.{axis}.min, {view(title)}.plot.scales.{axis}.max]"
    )
    return found


def ink(tab: Tab, title: str) -> int:
    """How many pixels of the chart are drawn upon."""
    canvas = f"{view(title)}.plot.ctx"
    found: int = tab.js(
        f"{canvas}.getImageData(0, 0, {canvas}.canvas.width, {canvas}.canvas.height)"
        ".data.filter((v, i) => i % 4 === 3 && v).length"
    )
    return found


def place(tab: Tab, title: str, share: float = 0.5) -> tuple[float, float]:
    """Within the axes of a chart."""
    left, top, width, height = tab.js(
        f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
        f" return [r.left, r.top, r.width, r.height] }})({view(title)}.plot.over)"
    )
    return left + share * width, top + height / 2


def choose(tab: Tab, selector: str, value: str, event: str = "change") -> None:
    tab.js(
        f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('{event}', {{bubbles: "
        f"true}})) }})(document.querySelector({json.dumps(selector)}))"
    )
    drawn(tab)


def address_says(tab: Tab) -> str:
    found: str = tab.js("decodeURIComponent(location.hash)")
    return found


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("facet", "value", "left"),
    [
        ("Placement", "Placement 1", lambda label: label.startswith("Placement 2")),
        ("Warm-up", "none", lambda label: "no warm-up" not in label),
        ("Peak learning rate", "3e-3", lambda label: "rate 0.003" not in label),
    ],
)
def test_arms_are_switched_by_what_tells_them_apart(
    page: Tab, facet: str, value: str, left: Any
) -> None:
    before, inked = lines(page, TRAIN), ink(page, TRAIN)
    page.js(f'document.querySelector(\'[data-facet="{facet}"][data-value="{value}"]\').click()')
    drawn(page)
    assert lines(page, TRAIN) == list(filter(left, before))
    assert len(lines(page, TRAIN)) < len(before)
    assert ink(page, TRAIN) < inked
    assert "arms=" in address_says(page)
    assert page.js("document.querySelectorAll('.legend [aria-pressed=false]').length") > 0


def test_a_legend_switches_one_arm_and_back(page: Tab) -> None:
    before = lines(page, VALID)
    button = f"{view(VALID)}.rows.get(0).button"
    page.js(f"{button}.click()")
    assert lines(page, VALID) == before[1:]
    page.js(f"{button}.click()")
    assert lines(page, VALID) == before
    assert address_says(page) in ("", "#")


def test_axes_turn_logarithmic_and_linear(page: Tab) -> None:
    assert page.js(f"{view(TRAIN)}.plot.scales.y.distr") == 1
    choose(page, "#explore-logy", "log")
    choose(page, "#explore-logx", "log")
    assert page.js(f"['x', 'y'].map(a => {view(TRAIN)}.plot.scales[a].distr)") == [3, 3]
    assert scale(page, TRAIN, "x")[0] > 0
    choose(page, "#explore-logx", "linear")
    assert page.js(f"{view(RATE)}.plot.scales.x.distr") == 1
    choose(page, "#explore-logx", "")
    assert page.js(f"{view(RATE)}.plot.scales.x.distr") == 3
    assert address_says(page) == "#logy=log"


def test_smoothing_is_off_at_first_and_keeps_the_raw_line_faint(page: Tab) -> None:
    total = "l.forEach((v, i) => s += i ? Math.abs(v - l[i - 1]) : 0)"
    rough = f"(l => {{ let s = 0; {total}; return s }})({view(TRAIN)}.drawn.lines[0].shown)"
    series = f"{view(TRAIN)}.plot.series.slice(1).map(s => s.alpha)"
    before, raw = page.js(rough), page.js(series)
    assert page.js("document.querySelector('#explore-smooth').value") == "0"
    choose(page, "#explore-smooth", "0.9", "input")
    assert page.js(rough) < before / 2
    assert len(page.js(series)) == len(raw) + 12
    assert page.js(series).count(0.28) == 12
    assert address_says(page) == "#smooth=0.9"


def test_smoothing_is_an_average_that_does_not_start_at_zero(page: Tab) -> None:
    choose(page, "#explore-smooth", "0.6", "input")
    xs, raw, shown = page.js(
        f"(l => [{'normscope.xs(l)'}, l.mean, l.shown])({view(TRAIN)}.drawn.lines[0])"
    )
    step, total, mass = (xs[-1] - xs[0]) / (len(xs) - 1), 0.0, 0.0
    for i, (x, value) in enumerate(zip(xs, raw, strict=True)):
        kept = 0.6 ** ((x - xs[i - 1]) / step) if i else 0.0
        total, mass = kept * total + 0.4 * value, kept * mass + 0.4
        assert shown[i] == pytest.approx(total / mass, rel=1e-12)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("name", "last"),
    [("target tokens", 767_947), ("epoch", 1000 / 133.7), ("cumulative learning rate", 10)],
)
def test_curves_stand_over_what_is_asked_for(page: Tab, name: str, last: float) -> None:
    assert scale(page, TRAIN, "x")[1] == pytest.approx(1_020, rel=0.01)
    choose(page, "#explore-x", name)
    low, high = scale(page, TRAIN, "x")
    assert low < 0.02 * last
    assert high == pytest.approx(1.02 * last, rel=0.01)
    assert page.js(f"{view(VALID)}.plot.axes[0].label") == name
    assert scale(page, RATE, "x")[1] < 0.02


def test_one_crosshair_stands_over_all_charts_with_a_value_and_a_band_for_each_arm(
    page: Tab,
) -> None:
    page.mouse("mouseMoved", *place(page, TRAIN, 0.5))
    drawn(page)
    x = page.js(f"{view(TRAIN)}.plot.posToVal({view(TRAIN)}.plot.cursor.left, 'x')")
    assert x == pytest.approx(500, abs=15)
    for title in (VALID, "Learning rate"):
        assert page.js(
            f"{view(title)}.plot.posToVal({view(title)}.plot.cursor.left, 'x')"
        ) == pytest.approx(x, abs=5)
        assert page.js(f"{view(title)}.readout.textContent").startswith("at update ")
    said = page.js(f"[...{view(TRAIN)}.rows.values()].map(r => r.value.textContent)")
    assert len(said) == 12
    mean, low, high = page.js(
        f"(l => {{ const xs = normscope.xs(l), far = xs.map(v => Math.abs(v - {x})), i = "
        "far.indexOf(Math.min(...far)); return [l.mean[i], l.lows[i], l.highs[i]] "
        f"}})({view(TRAIN)}.drawn.lines[0])"
    )
    assert said[0] == f"{mean:.3f} ({low:.3f} to {high:.3f})"
    assert page.js(f"{view(RATE)}.readout.textContent") == ""


def test_a_drag_zooms_all_charts_over_updates_and_a_button_zooms_out(page: Tab) -> None:
    whole = scale(page, VALID, "x")
    page.drag(place(page, TRAIN, 0.25), place(page, TRAIN, 0.5))
    drawn(page)
    for title in (TRAIN, VALID):
        assert scale(page, title, "x") == pytest.approx([245, 500], abs=15)
    assert scale(page, RATE, "x")[1] < 0.02
    assert address_says(page).startswith("#zoom=update_")
    page.js(f"{view(VALID)}.out.click()")
    drawn(page)
    assert scale(page, VALID, "x") == whole
    assert page.js(f"{view(VALID)}.out.hidden")


def test_a_click_on_a_final_loss_lights_the_run_in_every_chart(page: Tab) -> None:
    line = f"{view(RATE)}.drawn.lines[1]"
    point = page.js(
        f"[{view(RATE)}.plot.valToPos(3e-3, 'x'), {view(RATE)}.plot.valToPos({line}.rows[2][1], "
        "'y')]"
    )
    left, _ = place(page, RATE, 0.0)
    top = page.js(f"{view(RATE)}.plot.over.getBoundingClientRect().top")
    page.click(left + point[0], top + point[1])
    drawn(page)
    lit = page.js("normscope.state.lit")
    assert page.js(f"normscope.arms[{lit['arm']}].label") == "Placement 1, warm-up 200, rate 0.003"
    widths = page.js(
        f"{view(TRAIN)}.plot.series.slice(1).filter(s => s.stroke && s.width).map(s => [s.width, "
        "s.alpha])"
    )
    assert widths.count([3, 1]) == 1
    assert widths.count([1.8, 0.13]) == 11
    assert "seed" in page.js("document.querySelector('#explore-lit').textContent")
    page.js("document.querySelector('#explore-lit').click()")
    assert page.js("normscope.state.lit") is None


def test_a_slider_goes_through_the_updates_at_which_gradients_were_recorded(page: Tab) -> None:
    mean = f"{view(DEPTH)}.drawn.lines[0].mean[0]"
    before = page.js(mean)
    choose(page, ".frame input", "2", "input")
    assert page.js("document.querySelector('.frame output').textContent") == "update 1,000"
    assert page.js(mean) > 1.5 * before
    assert "frame=" in address_says(page)


def test_tables_are_sorted_by_any_column_and_back(page: Tab) -> None:
    rows = "[...document.querySelectorAll('[aria-labelledby=t-configurations] tbody tr')]"
    column = f"{rows}.map(r => parseFloat(r.cells[2].textContent))"
    head = "document.querySelectorAll('table[aria-labelledby=t-configurations] .sort')[2]"
    written = page.js(column)
    assert written != sorted(written)
    page.js(f"{head}.click()")
    assert page.js(column) == sorted(written)
    assert page.js(f"{head}.parentElement.getAttribute('aria-sort')") == "ascending"
    page.js(f"{head}.click()")
    assert page.js(column) == sorted(written, reverse=True)
    assert "sort=" in address_says(page)
    page.js(f"{head}.click()")
    assert page.js(column) == written


def test_csv_has_the_drawn_values_and_png_the_drawn_picture(page: Tab) -> None:
    csv = page.js(f"normscope.csvOf({view(VALID)})")
    rows = [row.split(",") for row in csv.strip().replace('"', "").split("\r\n")]
    assert len(rows) == 1 + 12 * 20
    assert csv.startswith('"arm","update","mean","lowest","highest","seed 1","seed 2","seed 3"\r\n')
    mean = page.js(f"{view(VALID)}.drawn.lines[0].mean[19]")
    assert float(rows[20][-6]) == mean
    size, colours = page.js(
        "(c => [c.height, new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, "
        f"c.height).data.buffer)).size])(normscope.pngOf({view(VALID)}))"
    )
    assert size > 280 + 12 * 20
    assert colours > 50


def test_reset_brings_back_the_first_view(page: Tab) -> None:
    page.js("document.querySelector('[data-facet=Placement]').click()")
    choose(page, "#explore-smooth", "0.5", "input")
    page.js("document.querySelector('#explore-reset').click()")
    drawn(page)
    assert len(lines(page, TRAIN)) == 12
    assert address_says(page) in ("", "#")


def test_the_address_restores_the_view(tab: Tab, address: str) -> None:
    tab.open(
        f"{address}#x=epoch&logy=log&smooth=0.7&arms=0.1&zoom=update_1_4&lit=3_1&frame=5_1&sort=1_2_down",
        height=12_000,
    )
    drawn(tab)
    assert scale(tab, TRAIN, "x") == [1, 4]
    assert tab.js(f"{view(TRAIN)}.plot.scales.y.distr") == 3
    assert len(lines(tab, TRAIN)) == 10
    assert tab.js("normscope.state.lit") == {"arm": 3, "seed": 1}
    assert tab.js("document.querySelector('#explore-smooth').value") == "0.7"
    assert tab.js("document.querySelector('#explore-x').value") == "epoch"
    assert tab.js("document.querySelectorAll('[aria-sort=descending]').length") == 1
    before = tab.js("[...new URLSearchParams(location.hash.slice(1))]")
    choose(tab, "#explore-smooth", "0.7", "input")
    assert tab.js("[...new URLSearchParams(location.hash.slice(1))]") == before
    tab.js("location.hash = 'smooth=0.2'")
    drawn(tab)
    assert len(lines(tab, TRAIN)) == 12
    assert tab.log == []


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "hostile",
    [
        "x=<b>&zoom=a_b_c&lit=99999_x&frame=1_2_3&arms=9999.-1.x&sort=9_9_9&smooth=7",
        "%%%",
        "zoom=update_1e999_NaN",
    ],
)
def test_an_address_that_makes_no_sense_shows_the_page(
    tab: Tab, address: str, hostile: str
) -> None:
    tab.open(f"{address}#{hostile}", height=3_000)
    drawn(tab)
    assert len(lines(tab, TRAIN)) == 12
    assert tab.log == []


def test_the_keyboard_reaches_everything(page: Tab) -> None:
    page.js(f"{view(TRAIN)}.host.focus()")
    page.press("ArrowRight")
    assert page.js(f"{view(TRAIN)}.readout.textContent").startswith("at update 5")
    assert "Placement 1" in page.js("document.querySelector('#explore-said').textContent")
    page.press("+")
    drawn(page)
    low, high = scale(page, TRAIN, "x")
    assert high - low == pytest.approx(520, rel=0.02)
    page.press("0")
    assert page.js("normscope.state.zoom.size") == 0
    page.press("Enter")
    assert page.js("normscope.state.lit.arm") == 0
    page.press("Enter")
    assert page.js("normscope.state.lit.arm") == 1
    page.press("Escape")
    assert page.js("normscope.state.lit") is None
    reached = page.js(
        "[...document.querySelectorAll('#explore input, #explore select, .chart button, .plot, "
        ".sort')].filter(e => e.checkVisibility() && e.tabIndex < 0).length"
    )
    assert reached == 0
