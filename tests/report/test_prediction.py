"""The picture of predicted curves."""

import re
import xml.etree.ElementTree as ET

import pytest

from normscope.report.depth_svg import PredictedLine, prediction_svg


def line(label: str, stack: str = "encoder", gradient=(3.0, 2.0), **streams) -> PredictedLine:
    return PredictedLine(label=label, stack=stack, streams=streams or {"x": (1.0, 2.0, 4.0)}, gradient=gradient)


def words(svg: str) -> str:
    return ET.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc") or ""


def test_words_are_the_ends_of_every_line():
    svg = prediction_svg([line("A $x_"), line("B", gradient=(0.5, 0.25))], gradient_of="W2", title="t")
    assert words(svg) == (
        "A $x_, encoder: stream 1.000 to 4.000, gradient 3.000 to 2.000. "
        "B, encoder: stream 1.000 to 4.000, gradient 0.5000 to 0.2500"
    )
    assert svg == prediction_svg([line("A $x_"), line("B", gradient=(0.5, 0.25))], gradient_of="W2", title="t")


@pytest.mark.thorough
def test_every_stream_is_drawn_and_named_as_the_formula_names_it():
    svg = prediction_svg([line("ResiDual", x=(1.0, 1.0), r=(1.0, 9.0)), line("A")], gradient_of="W2", title="t")
    assert words(svg).startswith("ResiDual, encoder: stream x 1.000 to 1.000, stream r 1.000 to 9.000, gradient ")
    alone = prediction_svg([line("ResiDual", x=(1.0, 1.0)), line("A")], gradient_of="W2", title="t")
    assert svg.count("<path") > alone.count("<path")


def test_a_row_a_stack():
    def height(lines: list[PredictedLine]) -> float:
        return float(re.search(r'height="([\d.]+)pt"', prediction_svg(lines, gradient_of="W2", title="t"))[1])

    assert height([line("A"), line("A", "decoder")]) > 1.5 * height([line("A")])


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("gradient", [(0.0, 0.0), (float("inf"), 1.0), (float("nan"), 2.0)])
def test_what_a_log_axis_cannot_show_is_left_out(gradient):
    assert "<svg" in prediction_svg([line("ReZero", gradient=gradient), line("A")], gradient_of="W2", title="t")


@pytest.mark.thorough
def test_more_lines_than_hues():
    labels = [f"P{i}" for i in range(34)]
    svg = prediction_svg([line(label) for label in labels], gradient_of="W2", title="t")
    assert all(f"{label}, encoder" in words(svg) for label in labels)


@pytest.mark.thorough
def test_the_change_by_an_update_is_a_third_panel():
    lines = [PredictedLine(label="A", stack="encoder", streams={"x": (1.0, 2.0)}, gradient=(3.0,), change=(0.0, 0.5))]
    svg = prediction_svg(lines, gradient_of="W2", title="t", change_by="adam, rate 1e-3")
    assert words(svg) == "A, encoder: stream 1.000 to 2.000, gradient 3.000 to 3.000, change 0.5000 to 0.5000"

    def width(found: str) -> float:
        return float(re.search(r'width="([\d.]+)pt"', found)[1])

    assert width(svg) == pytest.approx(1.5 * width(prediction_svg(lines, gradient_of="W2", title="t")), rel=0.01)
