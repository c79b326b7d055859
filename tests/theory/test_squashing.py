"""What squashing norms do to second moments, beside draws of torch's own functions and beside
stacks as they are.
"""

import math

import numpy as np
import pytest
import torch

from normscope.model.placed import NORMS
from normscope.placement.base import SQUASHING_SLOPE
from normscope.theory.moments import Atoms, single
from normscope.theory.predict import ModelSetting, predict
from normscope.theory.squashing import Erf, SquashingNorms, Tanh

FUNCTIONS = {"dyt": Tanh(), "derf": Erf()}
EACH = pytest.mark.parametrize("norm", FUNCTIONS)


@EACH
@pytest.mark.parametrize(("variance", "rho"), [(0.02, 0.4), (1.0, -0.9), (3.0, 0.4), (60.0, 0.95)])
def test_by_simulation(norm, variance, rho):
    """torch's own module as it starts, and its derivative, within five standard errors."""
    first, second = torch.randn(
        2, 200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    second = rho * first + math.sqrt(1 - rho**2) * second
    module = NORMS[norm](1, 1e-5).double()
    inputs = [(math.sqrt(variance) * z).unsqueeze(-1).requires_grad_() for z in (first, second)]
    outputs = [module(x) for x in inputs]
    slopes = [
        torch.autograd.grad(y.sum(), x)[0].squeeze(-1) for x, y in zip(inputs, outputs, strict=True)
    ]
    values = [y.detach().squeeze(-1) for y in outputs]
    one, two = FUNCTIONS[norm].single(variance), FUNCTIONS[norm].pair(variance, rho * variance)
    for expected, draws in {
        one.one: values[0] ** 2,
        one.slope: slopes[0],
        one.slope_one: slopes[0] ** 2,
        two.two: values[0] * values[1],
        two.slope_two: slopes[0] * slopes[1],
    }.items():
        assert float(draws.mean()) == pytest.approx(
            expected, abs=5 * float(draws.std()) / math.sqrt(draws.numel())
        )


@EACH
@pytest.mark.parametrize("variance", [0.3, 2.0, 300.0])
def test_growth_is_the_derivative_of_q(norm, variance):
    step = 1e-3 * variance
    below, above = (FUNCTIONS[norm].single(variance + by).one for by in (-step, step))
    assert FUNCTIONS[norm].single(variance).growth == pytest.approx(
        (above - below) / (2 * step), rel=1e-5
    )


@EACH
def test_of_one_feature_with_itself(norm):
    for variance in (0.1, 1.0, 400.0):
        one, two = FUNCTIONS[norm].single(variance), FUNCTIONS[norm].pair(variance, variance)
        assert (two.two, two.slope_two) == pytest.approx((one.one, one.slope_one), rel=1e-10)


@EACH
def test_many_places_are_squashed_as_each_of_them(norm):
    squash, variance = FUNCTIONS[norm], np.array([0.5, 3.0, 3.0])
    covariance = np.array([[0.5, 0.1, 0.1], [0.1, 3.0, -1.2], [0.1, -1.2, 3.0]])
    one, two = squash.single(variance), squash.pair(variance, covariance)
    for place, alone in enumerate(map(squash.single, variance.tolist())):
        assert (one.one[place], one.slope[place], one.growth[place]) == pytest.approx(
            (alone.one, alone.slope, alone.growth), rel=1e-10
        )
    np.testing.assert_allclose(np.diag(two.two), one.one, rtol=1e-6)
    np.testing.assert_allclose(np.diag(two.slope_two), one.slope_one, rtol=1e-6)
    pair = squash.pair(3.0, -1.2)
    assert (two.two[1, 2], two.slope_two[1, 2]) == pytest.approx(
        (pair.two, pair.slope_two), rel=1e-6
    )


@EACH
@pytest.mark.parametrize(("q", "p", "apart"), [(1.0, 0.0, 0.0), (2.0, 0.7, -0.4), (9.0, -3.0, 5.0)])
def test_a_stream_becomes_what_its_features_do(norm, q, p, apart):
    """A multiple of it and a remainder: together they are the function's own moments."""
    atoms = Atoms(16)
    x = single(atoms, atoms.add(q, p, apart))
    made, squash = SquashingNorms(FUNCTIONS[norm])(x), FUNCTIONS[norm]
    expected = squash.single(q).one, squash.pair(q, p).two, squash.pair(q, apart).two
    assert (made.one, made.two, made.apart) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert made.coefficients[0] == pytest.approx(squash.single(q).slope)


@EACH
def test_next_to_nothing_is_multiplied_by_the_slope_at_0(norm):
    at_0 = SQUASHING_SLOPE * (2 / math.sqrt(math.pi) if norm == "derf" else 1)
    for variance in (0.0, 1e-8):
        one = FUNCTIONS[norm].single(variance)
        assert (one.slope, one.slope_one, one.growth) == pytest.approx(
            (at_0, at_0**2, at_0**2), rel=1e-6
        )
        assert one.one == pytest.approx(at_0**2 * variance, rel=1e-6)


def test_tanh_by_a_much_finer_rule():
    z = np.linspace(-9, 9, 20_001)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    for variance in (0.5, 40.0, 2000.0):
        value = np.tanh(SQUASHING_SLOPE * math.sqrt(variance) * z)
        slope = SQUASHING_SLOPE * (1 - value**2)
        found = Tanh().single(variance)
        assert (found.one, found.slope, found.slope_one) == pytest.approx(
            (weights @ value**2, weights @ slope, weights @ slope**2), rel=1e-7
        )


@EACH
def test_a_squashed_stream_grows_less(norm):
    """What Pre-LN's first attention reads is E φ² of the embedding instead of 1, and it adds so
    much.
    """
    model = ModelSetting(blocks=1, tokens=1)
    found = predict("pre-ln", ModelSetting(blocks=1, tokens=1, norm=norm))["encoder"]
    read = FUNCTIONS[norm].single(1.0).one
    after = 1 + read
    assert found.q[1] == pytest.approx(after + FUNCTIONS[norm].single(after).one / 2, rel=1e-12)
    assert found.q[1] < predict("pre-ln", model)["encoder"].q[1]


@EACH
@pytest.mark.parametrize("name", ["sub-ln", "hybrid-norm"])
def test_inside_a_sublayer_theory_says_that_it_does_not_follow(norm, name):
    with pytest.raises(ValueError, match="theory follows dyt and derf on the stream alone"):
        predict(name, ModelSetting(norm=norm))


@EACH
@pytest.mark.parametrize("name", ["keel", "deepnorm", "b2t"])
def test_theory_says_where_a_norm_reads_what_another_has_bent(norm, name):
    with pytest.raises(ValueError, match="a norm reads what another norm has squashed"):
        predict(name, ModelSetting(norm=norm))
