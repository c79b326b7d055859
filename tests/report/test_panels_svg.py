"""Panels of curves: what they say in words, what stands in the legend, and the same bytes every
time.
"""

import re
from dataclasses import replace

import pytest

from normscope.report.chart import Panel, Series
from normscope.report.chart_svg import panels_svg

MEASURED = Series(
    label="Pre-LN, measured",
    kind="measured",
    hue=0,
    x=[0, 1, 2],
    y=[1.0, None, 2.5],
    low=[0.9, None, 2],
    high=[1.1, None, 3],
)
PREDICTED = Series(
    label="Pre-LN, predicted", kind="predicted", hue=0, x=[0, 1, 2], y=[1.0, 1.5, 2.0]
)
CLAIMED = Series(label="claimed $x$ & <y>", kind="claimed", hue=-1, x=[0, 2], y=[1.0, 3.0])
PANEL = Panel(title="One", xlabel="depth", ylabel="q", series=[MEASURED, PREDICTED, CLAIMED])


def told(svg: str) -> str:
    return re.search(r'<desc id="desc">(.*?)</desc>', svg, re.DOTALL)[1]


def size(svg: str) -> tuple[float, float]:
    width, height = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups()
    return float(width), float(height)


def groups(svg: str, name: str) -> int:
    return len(re.findall(rf'<g id="{name}_\d+"', svg))


def test_every_curve_in_words():
    words = told(
        panels_svg([PANEL, replace(PANEL, title="Two", series=[PREDICTED])], title="T & t")
    )
    assert words == (
        "One: Pre-LN, measured 1.000 to 2.500; Pre-LN, predicted 1.000 to 2.000; claimed $x$ &amp; "
        "&lt;y&gt; 1.000 to 3.000. Two: Pre-LN, predicted 1.000 to 2.000"
    )


def test_a_curve_without_a_value_is_said_to_have_none():
    assert told(
        panels_svg([replace(PANEL, series=[replace(PREDICTED, y=[None] * 3)])], title="T")
    ) == ("One: Pre-LN, predicted none")


def test_the_same_bytes():
    assert panels_svg([PANEL], title="T") == panels_svg([PANEL], title="T")


def test_labels_that_panels_share_stand_in_the_legend_once():
    def legend(panels: list[Panel]) -> str:
        svg = panels_svg(panels, title="T", columns=1)
        return svg[svg.index('<g id="legend_1">') :]

    once, twice = legend([PANEL]), legend([PANEL, replace(PANEL, title="Two")])
    assert groups(once, "text") == groups(twice, "text") == 3


@pytest.mark.thorough
def test_rows_and_columns():
    one, two, three = (size(panels_svg([PANEL] * n, title="T")) for n in (1, 2, 3))
    assert two[0] == 2 * one[0]
    assert three[0] == two[0]
    assert three[1] > 1.7 * two[1]


@pytest.mark.parametrize("letters", [10, 24, 38])
def test_a_legend_stays_on_the_figure(letters):
    """Every label begins and ends between the edges, whatever its length: places in points, right
    of the handle.
    """
    series = [replace(PREDICTED, label=f"{i} " + ("measured " * 5)[:letters]) for i in range(4)]
    svg = panels_svg([replace(PANEL, series=series)], title="T", columns=1)
    width, _ = size(svg)
    legend = svg[svg.index('<g id="legend_1">') :]
    starts = [
        float(x)
        for x in re.findall(r'<text style="[^"]*" (?:x="|transform="translate\()([\d.-]+)', legend)
    ]
    assert starts
    assert min(starts) > 0
    assert max(starts) < width


def test_many_points_have_few_markers():
    def uses(**changes: object) -> int:
        long = replace(PREDICTED, x=list(range(100)), y=[float(i) for i in range(100)], **changes)
        return panels_svg([replace(PANEL, series=[long])], title="T").count("<use")

    assert 10 <= uses(kind="measured") - uses(kind="claimed") <= 20


def test_axes():
    logarithmic = panels_svg(
        [replace(PANEL, log_y=True, series=[replace(PREDICTED, y=[1.0, 10.0, 1000.0])])], title="T"
    )
    linear = panels_svg(
        [replace(PANEL, series=[replace(PREDICTED, y=[1.0, 10.0, 1000.0])])], title="T"
    )
    assert logarithmic != linear
    doubling = replace(PREDICTED, x=[64, 128, 1024])
    assert panels_svg([replace(PANEL, log_x=True, series=[doubling])], title="T") != panels_svg(
        [replace(PANEL, series=[doubling])], title="T"
    )
    named = panels_svg([replace(PANEL, ticks=("a", "b", "c"))], title="T")
    assert named != panels_svg([PANEL], title="T")
