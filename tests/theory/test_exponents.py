"""Powers of depth by which predictions grow, beside closed forms, the corrected recursion, and what
is drawn.
"""

from dataclasses import replace

import numpy as np
import pytest

from draws import simulate
from normscope.theory.predict import ModelSetting, predict
from normscope_studies.theory.corrected import pre_ln_stream

MODEL = ModelSetting(width=64, ffn_width=64, vocabulary=500)


def power(depths, values):
    """The exponent of the depth by least squares on logarithms, and the largest relative distance
    from the law.
    """
    x, y = np.log(depths), np.log(values)
    slope, at_0 = np.polyfit(x, y, 1)
    return slope, np.expm1(np.abs(y - at_0 - slope * x).max())


def powers(placement, model=MODEL, depths=(64, 128, 256, 512, 1024), stack="encoder"):
    """Of the last stream's mean square and of the gradient norm of W2 in the first and the last
    block.

    Widths are infinite: at a finite one a deep stack's gradients scatter by e^(blocks / width),
    which is no power law.
    """
    stacks = [
        predict(placement, replace(model, blocks=depth), scatter=False)[stack] for depth in depths
    ]
    norms = [one.gradient_norm["ffn_out"] for one in stacks]
    ends = ([one.q[-1] for one in stacks], [one[0] for one in norms], [one[-1] for one in norms])
    return [power(depths, values) for values in ends]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("name", "q", "first", "last"),
    [
        # A sum that nothing norms, and gradients that a final norm divides by its root.
        ("pre-ln", 1.0, 0.0, -0.5),
        ("peri-ln", 1.0, 0.0, -0.5),
        ("reordered", 1.0, 0.0, -0.5),
        ("post-ln", 0.0, 0.0, 0.0),
        # Wang et al. 2022, section 4.2: branches of 1/depth in all, so that the model's update
        # keeps its size.
        ("deepnorm", 0.0, -0.5, -0.5),
        # A skip that is as many times larger as there are sub-layers.
        ("keel", 0.0, -1.0, -1.0),
        ("admin-constant", 0.0, -0.5, -0.5),
    ],
)
def test_of_known_forms(name, q, first, last):
    for (exponent, residual), expected in zip(powers(name), (q, first, last), strict=True):
        # Attention still gains from tokens that become alike: 3 % in the power of the first tenth
        # of the depths.
        assert exponent == pytest.approx(expected, abs=0.04)
        assert residual < 0.02


def test_of_the_recursion():
    depths = (100, 200, 400, 800)
    stream = pre_ln_stream(depths[-1], tokens=MODEL.tokens)
    expected, _ = power(depths, [stream[depth][0] for depth in depths])
    (found, _), *_ = powers("pre-ln", MODEL, depths)
    assert found == pytest.approx(expected, abs=1e-4)


def test_of_models_as_they_are_drawn():
    """Over 16 to 64 blocks, where no asymptote has set in: what is fitted is what is there."""
    depths, model = (16, 32, 64), MODEL
    measured = [
        simulate("pre-ln", ModelSetting(**_sizes(model), blocks=depth), draws=6)["encoder"]
        for depth in depths
    ]
    (found_q, _), _, (found_last, _) = powers("pre-ln", model, depths)
    q, _ = power(depths, [float(one.q[-1]) for one in measured])
    last, _ = power(depths, [float(one.gradient_norm["ffn_out"][-1]) for one in measured])
    assert found_q == pytest.approx(q, abs=0.05)
    assert found_last == pytest.approx(last, abs=0.06)
    assert found_last < -0.5


def _sizes(model: ModelSetting) -> dict[str, int]:
    return {name: getattr(model, name) for name in ("width", "ffn_width", "vocabulary")}


def test_two_stacks():
    model = ModelSetting(stack="encoder-decoder", setting="paper", width=64, ffn_width=128, heads=4)
    (found, _), *_ = powers("pre-ln", model, (16, 32), stack="decoder")
    assert found > 0.8


def test_a_finite_width_is_no_power_law():
    """Norms of gradients below scatter with depth over width; the limit leaves that out."""
    deep = ModelSetting(width=64, ffn_width=64, blocks=1024)
    scattered, limit = (
        predict("post-ln", deep, scatter=scatter)["encoder"] for scatter in (True, False)
    )
    assert scattered.gradient_norm["value"][0] > 2 * limit.gradient_norm["value"][0]
    np.testing.assert_array_equal(scattered.q, limit.q)
