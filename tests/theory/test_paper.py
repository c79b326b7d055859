"""The paper's statements: as printed, and true where they are true. What is false in them is in
`test_corrected`.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from normscope_studies.theory import paper


def layer_norm(x):
    y = x - x.mean(-1, keepdims=True)
    return y / np.sqrt(np.square(y).mean(-1, keepdims=True))


def mean_and_error(draws):
    return np.mean(draws), np.std(draws, ddof=1) / math.sqrt(len(draws))


@st.composite
def distributions(draw):
    """(values ≥ 0, probabilities) of at most six points, with a mean above 0."""
    values = draw(
        st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(lambda z: max(z) > 1e-6)
    )
    weights = draw(st.lists(st.integers(1, 1000), min_size=len(values), max_size=len(values)))
    return values, [w / sum(weights) for w in weights]


def test_relu_halves_the_squared_norm():
    normals = np.random.default_rng(0).standard_normal((4000, 64))
    found, error = mean_and_error(np.square(np.maximum(normals, 0)).sum(-1))
    assert error < 0.005 * found
    assert abs(found - paper.relu_squared_norm(width=64)) < 4 * error


class TestLemma2:
    def test_post_ln_as_measured(self):
        """Steps 0 and 3 exactly, 1 and 2 within their bounds, 4 and 5 within four standard errors
        of their value.
        """
        width, tokens, rng = 48, 6, np.random.default_rng(1)
        squared = {step: [] for step in range(6)}
        for _ in range(400):
            value, first, second = rng.standard_normal((3, width, width)) / math.sqrt(width)
            x0 = layer_norm(rng.standard_normal((tokens, width)))
            x1 = np.broadcast_to(x0.mean(0) @ value, x0.shape)
            x3 = layer_norm(x0 + x1)
            x4 = np.maximum(x3 @ first, 0) @ second
            for step, x in enumerate((x0, x1, x0 + x1, x3, x4, x3 + x4)):
                squared[step].append(np.square(x).sum(-1).mean())
        for step, draws in squared.items():
            least, greatest = paper.post_ln_squared_norm(step, width=width)
            found, error = mean_and_error(draws)
            assert least * (1 - 1e-12) - 4 * error <= found <= greatest * (1 + 1e-12) + 4 * error
            assert error < 0.02 * width

    def test_post_ln_values(self):
        found = [paper.post_ln_squared_norm(step, width=10) for step in range(6)]
        assert found == [(10, 10), (0, 10), (10, 20), (10, 10), (5, 5), (15, 15)]

    def test_pre_ln_values(self):
        assert paper.pre_ln_squared_norm(1, width=512) == (768, 1280)
        assert paper.pre_ln_squared_norm(24, width=1) == (13, 37)

    @given(layer=st.integers(1, 1000), width=st.integers(1, 4096))
    def test_pre_ln_steps_by_half_and_three_halves(self, layer, width):
        least, greatest = paper.pre_ln_squared_norm(layer, width=width)
        assert width < least < greatest
        next_least, next_greatest = paper.pre_ln_squared_norm(layer + 1, width=width)
        assert (next_least - least, next_greatest - greatest) == (width / 2, 3 * width / 2)


class TestDefinition1:
    def test_looks_upwards_only(self):
        assert paper.is_bounded([0.0, 1.0], [0.01, 0.99], epsilon=0.02, delta=1e-9)
        assert not paper.is_bounded([0.0, 1.0], [0.01, 0.99], epsilon=0.01, delta=0.98)
        assert paper.is_bounded([0.0, 1.0], [0.01, 0.99], epsilon=0.01, delta=0.99)

    @given(distribution=distributions(), delta=st.floats(1e-9, 0.99))
    def test_everything_is_bounded_by_markov(self, distribution, delta):
        """Pr[Z > EZ / δ] < δ for any Z ≥ 0, so that ε = 1/δ - 1 always does; the margin is for
        rounding.
        """
        assert paper.is_bounded(
            *distribution, epsilon=(1 / delta - 1) * (1 + 1e-9) + 1e-9, delta=delta * (1 + 1e-9)
        )

    @given(width=st.integers(1, 4000), epsilon=st.floats(0.01, 0.98))
    def test_chi_square_delta(self, width, epsilon):
        found = paper.chi_square_delta(width=width, epsilon=epsilon)
        assert 0 <= found < 1
        assert found == pytest.approx(
            paper.chi_square_delta(width=1, epsilon=epsilon) ** width, rel=1e-9, abs=1e-300
        )


class TestTheorem1:
    def test_probability_with_the_measured_concentration(self):
        """Section 3.4 reports (0.1, 0.125)."""
        assert paper.theorem_1_probability(epsilon=0.1, delta=0.125) == pytest.approx(
            0.765, rel=1e-12
        )

    @given(epsilon=st.floats(1e-6, 10), delta=st.floats(0, 1))
    def test_probability_as_printed(self, epsilon, delta):
        found = paper.theorem_1_probability(epsilon=epsilon, delta=delta)
        assert found == pytest.approx(
            0.99 - delta - epsilon / (0.9 + epsilon), rel=1e-12, abs=1e-12
        )

    @given(width=st.integers(2, 10_000), layers=st.integers(1, 200))
    def test_pre_ln_is_smaller_by_the_root_of_the_depth(self, width, layers):
        post = paper.post_ln_gradient_order(width=width)
        assert post**2 == pytest.approx(width**2 * math.log(width), rel=1e-12)
        assert paper.pre_ln_gradient_order(
            width=width, layers=layers
        ) * layers**0.5 == pytest.approx(post, rel=1e-12)

    def test_the_proofs_constants(self):
        found = paper.last_layer_gradient_bound(width=512, power=1.5)
        assert found == pytest.approx(512 * math.sqrt(20 / 1.5 * math.log(51_200)), rel=1e-12)

    def test_the_bound_holds(self):
        """It is loose: three hundred gradients of Post-LN's last block by autograd stay below a
        tenth of it.
        """
        width, generator = 48, torch.Generator().manual_seed(3)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        x = torch.nn.functional.layer_norm(normal(300, width), (width,), eps=0.0)
        hidden = torch.relu(x @ normal(width, width) / width**0.5)
        weights = (normal(width, width) / width**0.5).expand(300, -1, -1).clone().requires_grad_()
        out = torch.nn.functional.layer_norm(
            x + torch.einsum("bi,bij->bj", hidden, weights), (width,), eps=0.0
        )
        loss_gradient = torch.nn.functional.normalize(normal(300, width), dim=-1)
        (out * loss_gradient).sum().backward()
        norms = torch.linalg.matrix_norm(weights.grad)
        assert 0 < norms.max() < 0.1 * paper.last_layer_gradient_bound(width=width, power=1.5)


def test_gradient_profiles_as_claimed():
    post = paper.post_ln_gradient_profile(5)
    assert post[-1] == 1
    assert [a / b for a, b in itertools.pairwise(post)] == pytest.approx(
        [math.sqrt(2 / 3)] * 4, rel=1e-12
    )
    assert post[0] == pytest.approx(4 / 9, rel=1e-12)
    assert paper.pre_ln_gradient_profile(3) == [1, 1, 1]
