"""Predictions as results: the numbers of the theory, whichever way they are looked at."""

import math

import numpy as np
import pytest

import normscope
from normscope.theory.predict import ModelSetting, predict as computed


def test_curves_are_the_theorys() -> None:
    found = normscope.predict("pre-ln", "deepnorm", blocks=3, width=32, heads=2)
    assert repr(found) == "Prediction(pre-ln, deepnorm; 3 blocks of width 32)"
    row = next(line for line in str(found).splitlines() if line.startswith("pre-ln ")).split()
    assert [float(cell) for cell in row[1:]] == pytest.approx(
        found["pre-ln"].q[[0, 1, 2, 3]].tolist(), rel=1e-3
    )
    expected = computed("deepnorm", ModelSetting(blocks=3, width=32, ffn_width=32, heads=2))[
        "encoder"
    ]
    assert np.array_equal(found["deepnorm"].q, expected.q)
    assert found["deepnorm"].gradient_norm.keys() == expected.gradient_norm.keys()
    assert found.to_dict()["deepnorm"]["q"] == expected.q.tolist()


def test_two_stacks_are_asked_for_by_name() -> None:
    found = normscope.predict("pre-ln", stack="encoder-decoder", blocks=2, width=16)
    assert set(found.to_dict()["pre-ln"]) == {"encoder", "decoder"}
    assert "cross_query" in found["pre-ln", "decoder"].gradient_norm
    with pytest.raises(KeyError, match="two stacks"):
        found["pre-ln"]
    with pytest.raises(KeyError, match="no stack"):
        found["pre-ln", "middle"]
    with pytest.raises(KeyError, match="was not predicted"):
        found["post-ln"]


def test_what_is_drawn_is_what_was_predicted() -> None:
    found = normscope.predict("post-ln", "residual", blocks=4, width=16)
    stream, gradient = found.plot().axes
    drawn = [line.get_ydata() for line in stream.lines]
    streams = [curve.q for name in found.stacks for curve in found[name].streams.values()]
    assert len(streams) == 3
    assert all(any(np.array_equal(line, curve) for line in drawn) for curve in streams)
    assert np.array_equal(gradient.lines[0].get_ydata(), found["post-ln"].gradient_norm["ffn_out"])
    html = found._repr_html_()
    assert "<svg" in html
    assert "<table>" in html
    assert "ResiDual" in html


def test_the_picture_has_a_row_for_each_stack_and_a_panel_more_with_an_update() -> None:
    both = normscope.predict("pre-ln", stack="encoder-decoder", blocks=2, width=16)
    assert [axes.get_title(loc="left") for axes in both.plot().axes] == [
        f"{what}, {stack}" for stack in ("encoder", "decoder") for what in ("stream", "gradient")
    ]
    moved = normscope.predict("pre-ln", blocks=2, width=16, update="sgd")
    assert [axes.get_title(loc="left") for axes in moved.plot().axes][
        2
    ] == "change by one update: sgd, rate 1e-3"


def test_what_a_log_axis_cannot_show_is_left_out_of_the_picture() -> None:
    found = normscope.predict("rezero", "pre-ln", blocks=2, width=16)
    assert not found["rezero"].gradient_norm["ffn_out"].any()
    _, gradient = found.plot().axes
    assert np.isnan(gradient.lines[0].get_ydata()).all()
    assert "gradient: ReZero none; Pre-LN" in found.svg()


def test_more_placements_than_hues_are_told_apart_by_their_dashes() -> None:
    names = ["post-ln", "pre-ln", "deepnorm", "peri-ln", "sandwich", "lns", "sub-ln", "reordered"]
    stream, _ = normscope.predict(*names, blocks=2, width=16).plot().axes
    assert len({(line.get_color(), str(line._dash_pattern)) for line in stream.lines}) == len(names)


def test_what_is_not_finite_is_none_in_plain_values() -> None:
    found = normscope.predict("post-ln", blocks=2, width=16)
    found["post-ln"].q[1] = math.inf
    assert found.to_dict()["post-ln"]["q"][1] is None


@pytest.mark.parametrize(
    ("names", "settings", "says"),
    [
        ((), {}, "give the name"),
        (("pre-lnn",), {}, "pre-ln"),
        (("pre-ln",), {"blocks": 0}, "blocks"),
        (("pre-ln",), {"setting": "papr"}, "paper"),
        (("t-fixup",), {}, "not defined"),
    ],
)
def test_what_cannot_be_predicted_is_refused(names, settings, says) -> None:
    with pytest.raises(ValueError, match=says):
        normscope.predict(*names, **settings)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="block"):
        normscope.predict("pre-ln", block=3)
