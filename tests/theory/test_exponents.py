"""Exponents of depth beside closed forms, the corrected recursion, and what is drawn."""

import math

import numpy as np
import pytest

from draws import simulate
from normscope.theory.predict import QUANTITIES, ModelSetting, exponents, fitted, predict
from normscope_studies.theory.corrected import pre_ln_stream

MODEL = ModelSetting(width=64, ffn_width=64, vocabulary=500)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("name", "q", "first", "last"),
    [
        # A sum that nothing norms, and gradients that a final norm divides by its root.
        ("pre-ln", 1.0, 0.0, -0.5),
        ("peri-ln", 1.0, 0.0, -0.5),
        ("reordered", 1.0, 0.0, -0.5),
        ("post-ln", 0.0, 0.0, 0.0),
        # Wang et al. 2022, section 4.2: branches of 1/depth in all, so that the model's update keeps its size.
        ("deepnorm", 0.0, -0.5, -0.5),
        # A skip that is as many times larger as there are sub-layers.
        ("keel", 0.0, -1.0, -1.0),
        ("admin-constant", 0.0, -0.5, -0.5),
    ],
)
def test_of_known_forms(name, q, first, last):
    found = exponents(name, MODEL)["encoder"]
    assert found.keys() == QUANTITIES.keys()
    for what, expected in zip(QUANTITIES, (q, first, last), strict=True):
        # Attention still gains from tokens that become alike: 3 % in the power of the first tenth of the depths.
        assert found[what].exponent == pytest.approx(expected, abs=0.04), what
        assert found[what].residual < 0.02, what


def test_of_the_recursion():
    depths = (100, 200, 400, 800)
    stream = pre_ln_stream(depths[-1], tokens=MODEL.tokens)
    expected = fitted(depths, [stream[depth][0] for depth in depths])
    found = exponents("pre-ln", MODEL, depths)["encoder"]["q"]
    assert found.exponent == pytest.approx(expected.exponent, abs=1e-4)


def test_of_models_as_they_are_drawn():
    """Over 16 to 64 blocks, where no asymptote has set in: what is fitted is what is there."""
    depths, model = (16, 32, 64), MODEL
    measured = [simulate("pre-ln", ModelSetting(**_sizes(model), blocks=depth), draws=6)["encoder"] for depth in depths]
    found = exponents("pre-ln", model, depths)["encoder"]
    q = fitted(depths, [float(one.q[-1]) for one in measured])
    last = fitted(depths, [float(one.gradient_norm["ffn_out"][-1]) for one in measured])
    assert found["q"].exponent == pytest.approx(q.exponent, abs=0.05)
    assert found["last_ffn_out"].exponent == pytest.approx(last.exponent, abs=0.06)
    assert found["last_ffn_out"].exponent < -0.5


def _sizes(model: ModelSetting) -> dict[str, int]:
    return {name: getattr(model, name) for name in ("width", "ffn_width", "vocabulary")}


def test_two_stacks():
    model = ModelSetting(stack="encoder-decoder", setting="paper", width=64, ffn_width=128, heads=4)
    found = exponents("pre-ln", model, (16, 32))
    assert found.keys() == {"encoder", "decoder"}
    assert found["decoder"]["q"].exponent > 0.8


def test_the_fit():
    found = fitted((10, 100, 1000), [3.0 * depth**-0.7 for depth in (10, 100, 1000)])
    assert (found.exponent, found.residual) == (pytest.approx(-0.7), pytest.approx(0.0, abs=1e-12))
    assert fitted((1, 10, 100), [1.0, 10.0, 1.0]).residual > 1
    assert math.isnan(fitted((1, 2), [0.0, 0.0]).exponent)
    assert math.isnan(fitted((1, 2), [1.0, np.inf]).exponent)


def test_a_finite_width_is_no_power_law():
    """Norms of gradients below scatter with depth over width; the exponents leave that out."""
    deep = ModelSetting(width=64, ffn_width=64, blocks=1024)
    scattered, limit = (predict("post-ln", deep, scatter=scatter)["encoder"] for scatter in (True, False))
    assert scattered.gradient_norm["value"][0] > 2 * limit.gradient_norm["value"][0]
    np.testing.assert_array_equal(scattered.q, limit.q)


def test_one_depth_has_no_exponent():
    with pytest.raises(ValueError, match="two depths or more, got 64"):
        exponents("pre-ln", MODEL, (64,))
