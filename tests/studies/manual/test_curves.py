"""Small pictures of curves over depth: where their points lie, what is left out, and what is said
of them.
"""

import re
from xml.etree import ElementTree

import pytest

from normscope_studies.manual.curves import DepthCurve, DepthPanel, curves_svg, ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*values: list[float]) -> ElementTree.Element:
    curves = [
        DepthCurve(label=f"A & {i}", look=i, first=0, values=row) for i, row in enumerate(values)
    ]
    return ElementTree.fromstring(
        curves_svg([DepthPanel("block", "size", curves)], title="Sizes <of> all")
    )


def points(picture: ElementTree.Element, look: str) -> list[tuple[float, float]]:
    """In the panel; the legend stands outside of one."""
    (path,) = picture.findall(f"{SVG}g/{SVG}path[@class='{look}']")
    pairs = [pair.split() for pair in path.get("d", "").removeprefix("M").split("L")]
    return [(float(x), float(y)) for x, y in pairs]


def test_equal_factors_are_equally_high_and_equal_depths_equally_far():
    (x0, y0), (x1, y1), (x2, y2) = points(drawn([1, 10, 100]), "curve")
    assert x1 - x0 == x2 - x1 > 0
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)
    assert y0 > y1


def test_a_level_curve_lies_in_the_middle():
    assert {y for _, y in points(drawn([3, 3, 3]), "curve")} == {100}


def test_what_a_logarithm_cannot_show_is_left_out():
    assert len(points(drawn([1, 0, float("inf"), 2], [5, 6]), "curve")) == 2
    nothing = drawn([0, 0], [5, 6])
    assert nothing.findall(f"{SVG}g/{SVG}path[@class='curve']") == []


def test_it_is_described_in_words_and_names_are_text():
    picture = drawn([1.5, 12.0], [2.0, 2.0])
    assert picture.findtext(f"{SVG}title") == "Sizes <of> all"
    assert picture.findtext(f"{SVG}desc") == "size: A & 0 1.50 to 12.0, A & 1 2.00 to 2.00"
    assert {"A & 0", "A & 1", "block", "size"} <= {text.text for text in picture.iter(f"{SVG}text")}
    assert re.search("prefers-color-scheme: dark", picture.findtext(f"{SVG}style") or "")


def test_a_long_legend_has_more_rows_and_stays_inside():
    curves = [
        DepthCurve(label=f"a rather long name, number {i}", look=1, first=0, values=[1, 2])
        for i in range(6)
    ]
    picture = ElementTree.fromstring(
        curves_svg([DepthPanel("block", "size", curves)], title="Many")
    )
    rows = {text.get("y") for text in picture.findall(f"{SVG}text")}
    assert len(rows) > 1
    assert all(
        float(text.get("x", "")) < float(picture.get("width", ""))
        for text in picture.findall(f"{SVG}text")
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9, 33, [1, 2, 5, 10, 20]),
        (0.0008, 0.0022, [0.001, 0.002]),
        (0.5, 3e7, [10, 1_000, 100_000, 10_000_000]),
    ],
)
def test_ticks_are_round_and_few(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)
