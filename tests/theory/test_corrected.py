"""The corrected statements against autograd, closed forms and simulation; and what they correct,
shown to be wrong.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from draws import layer_norm, mean_and_error, normals
from normscope_studies.theory import corrected, paper


class TestSquaredNorms:
    @given(blocks=st.integers(0, 200), width=st.integers(1, 4096))
    def test_the_papers_bounds_with_completed_blocks(self, blocks, width):
        found = corrected.pre_ln_squared_norm(blocks, width=width)
        assert found == ((1 + blocks / 2) * width, (1 + 3 * blocks / 2) * width)
        if blocks:
            assert found == paper.pre_ln_squared_norm(blocks, width=width)

    def test_the_embedding_is_depth_zero(self):
        assert corrected.pre_ln_squared_norm(0, width=64) == (64, 64)

    @given(blocks=st.integers(0, 60), tokens=st.integers(1, 300))
    def test_the_stream_stays_within(self, blocks, tokens):
        stream = corrected.pre_ln_stream(blocks, tokens=tokens)
        assert len(stream) == blocks + 1
        for depth, (power, cross) in enumerate(stream):
            least, greatest = corrected.pre_ln_squared_norm(depth, width=1)
            assert least * (1 - 1e-12) <= power <= greatest * (1 + 1e-12)
            assert 0 <= cross <= power

    def test_the_papers_indexing_by_input_breaks(self):
        """With l the layer that reads x_l, the first four lower bounds fail for 256 tokens; the
        first always does.
        """
        read = [q for q, _ in corrected.pre_ln_stream(4, tokens=256)]
        assert read[:4] == pytest.approx(
            [1.01, 1.51, 2.12, 2.84], abs=0.012
        )  # as simulated elsewhere
        below = [
            q < paper.pre_ln_squared_norm(layer, width=1)[0]
            for layer, q in enumerate(read, start=1)
        ]
        assert below == [True, True, True, True, False]
        assert (
            corrected.pre_ln_stream(1, tokens=1)[0][0] < paper.pre_ln_squared_norm(1, width=1)[0]
        )  # L = 1
        assert all(
            q >= paper.pre_ln_squared_norm(done, width=1)[0]
            for done, q in enumerate(read[1:], start=1)
        )

    @given(layer=st.integers(1, 1000))
    def test_the_digests_lower_bound_exceeds_the_upper_one(self, layer):
        assert 1 + 2 * layer > paper.pre_ln_squared_norm(layer, width=1)[1]

    def test_the_hidden_state_of_post_ln_has_squared_norm_d(self):
        """A digest has 3d/2 for it."""
        assert (
            corrected.post_ln_squared_norm(width=64)
            == paper.post_ln_squared_norm(5, width=64)[0]
            == 96
        )
        assert paper.post_ln_squared_norm(0, width=64) == (64, 64)


class TestConcentration:
    def test_the_proofs_step_fails_for_a_rare_large_value(self):
        """Bounded by Definition 1, and nearly always below a tenth of its mean: eq. (43) says a
        tenth of the time.
        """
        values, probabilities = [1.0, 1e6], [0.999, 0.001]
        mean = 0.999 + 1e3
        assert paper.is_bounded(values, probabilities, epsilon=0.1, delta=0.001)
        assert paper.shrink_probability(epsilon=0.1) == pytest.approx(0.1, rel=1e-12)
        below = math.fsum(
            p for z, p in zip(values, probabilities, strict=True) if z <= paper.ALPHA_0 * mean
        )
        assert below == 0.999
        assert not corrected.is_bounded(values, probabilities, epsilon=0.1, delta=0.99)

    @given(
        epsilon=st.floats(0.01, 0.99),
        shares=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), max_size=6),
    )
    def test_lemma_5_bounds_what_is_never_larger_and_is_met_by_two_values(self, epsilon, shares):
        """Pr[Y ≤ a] ≤ (B - EY) / (B - a): of any Y up to B, and for EY = 1, B = 1 + ε, a = α₀ it is
        eq. (43).
        """
        ceiling, edge = 1 + epsilon, paper.ALPHA_0
        # The rest of the probability lies where the mean becomes 1.
        rare = paper.shrink_probability(epsilon=epsilon)
        assert edge * rare + ceiling * (1 - rare) == pytest.approx(1, rel=1e-12)
        values = [ceiling, *(ceiling * share for share, _ in shares)]
        weights = [1, *(weight for _, weight in shares)]
        mean = sum(z * w for z, w in zip(values, weights, strict=True)) / sum(weights)
        below = sum(w for z, w in zip(values, weights, strict=True) if z <= edge * mean) / sum(
            weights
        )
        scaled = paper.shrink_probability(epsilon=ceiling / mean - 1)
        assert below <= scaled * (1 + 1e-12) + 1e-15

    @given(
        weighed=st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 100)), min_size=1, max_size=6),
        epsilon=st.floats(0.01, 0.99),
        delta=st.floats(0, 0.99),
    )
    def test_two_sided_bounds_from_below_and_implies_the_papers(self, weighed, epsilon, delta):
        values = [z for z, _ in weighed]
        probabilities = [w / sum(w for _, w in weighed) for _, w in weighed]
        if corrected.is_bounded(values, probabilities, epsilon=epsilon, delta=delta):
            assert paper.is_bounded(values, probabilities, epsilon=epsilon, delta=delta)
            mean = math.fsum(z * p for z, p in zip(values, probabilities, strict=True))
            below = [
                p
                for z, p in zip(values, probabilities, strict=True)
                if z < (1 - epsilon) * mean * (1 - 1e-12)
            ]
            assert math.fsum(below) <= delta

    @pytest.mark.parametrize("width", [1, 2, 3, 7, 64, 127, 512])
    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 0.9])
    def test_chi_square_tails_against_torch(self, width, epsilon):
        half = torch.tensor(width / 2, dtype=torch.float64)
        expected = (
            torch.special.gammainc(half, half * (1 - epsilon)).item(),
            torch.special.gammaincc(half, half * (1 + epsilon)).item(),
        )
        # torch's expansion for a large, near x is good to 1e-9 only.
        assert corrected.chi_square_tails(width=width, epsilon=epsilon) == pytest.approx(
            expected, rel=2e-9, abs=1e-300
        )

    @given(epsilon=st.floats(1e-6, 0.999))
    def test_chi_square_of_two_is_exponential(self, epsilon):
        lower, upper = corrected.chi_square_tails(width=2, epsilon=epsilon)
        assert lower == pytest.approx(-math.expm1(epsilon - 1), rel=1e-12)
        assert upper == pytest.approx(math.exp(-1 - epsilon), rel=1e-12)

    @given(width=st.integers(1, 2000), epsilon=st.floats(0.001, 0.98))
    def test_eq_66_bounds_both_tails(self, width, epsilon):
        """The paper states it of the upper tail alone; for the two together, twice the bound is
        needed.
        """
        lower, upper = corrected.chi_square_tails(width=width, epsilon=epsilon)
        bound = paper.chi_square_delta(width=width, epsilon=epsilon)
        assert 0 <= upper <= bound
        assert 0 <= lower <= bound
        assert lower + upper <= 1

    def test_chi_square_as_sampled(self):
        lower, upper = corrected.chi_square_tails(width=512, epsilon=0.1)
        assert lower + upper == pytest.approx(0.109, abs=5e-4)
        assert 2 * paper.chi_square_delta(width=512, epsilon=0.1) == pytest.approx(1.05, abs=5e-3)
        sampled = np.random.default_rng(5).chisquare(512, 40_000)
        for found, expected in (
            (np.mean(sampled < 460.8), lower),
            (np.mean(sampled > 563.2), upper),
        ):
            assert abs(found - expected) < 4 * math.sqrt(expected * (1 - expected) / 40_000)

    def test_probability(self):
        assert corrected.theorem_1_probability(delta=0.125) == pytest.approx(0.865, rel=1e-12)
        assert corrected.theorem_1_probability(delta=0.125, positions=7) == pytest.approx(
            0.115, rel=1e-12
        )
        assert corrected.theorem_1_probability(delta=0.125, positions=8) == 0

    @given(epsilon=st.floats(1e-6, 0.999), delta=st.floats(0, 1))
    def test_probability_exceeds_the_papers_for_one_position(self, epsilon, delta):
        assert corrected.theorem_1_probability(delta=delta) > paper.theorem_1_probability(
            epsilon=epsilon, delta=delta
        )


class TestLastLayerGradient:
    def gradients(self, *, width, draws, seed):
        """‖∂L/∂W₂‖ of Post-LN's last block by autograd, ‖∂L/∂x‖ = 1, with ‖h‖ · ‖gJ‖, ‖h‖² and
        ‖y‖²; each (draws,).
        """
        normal = normals(seed)
        x = layer_norm(normal(draws, width))
        h = torch.relu(torch.einsum("bi,bij->bj", x, normal(draws, width, width)) / width**0.5)
        weights = (normal(draws, width, width) / width**0.5).requires_grad_()
        before_norm = x + torch.einsum("bi,bij->bj", h, weights)
        before_norm.retain_grad()
        loss_gradient = torch.nn.functional.normalize(normal(draws, width), dim=-1)
        (layer_norm(before_norm) * loss_gradient).sum().backward()
        y = before_norm.detach() - before_norm.detach().mean(-1, keepdim=True)
        product = torch.linalg.norm(h, dim=-1) * torch.linalg.norm(before_norm.grad, dim=-1)
        return (
            torch.linalg.matrix_norm(weights.grad),
            product,
            h.square().sum(-1),
            y.square().sum(-1),
        )

    def test_is_of_rank_one_and_of_the_predicted_size(self):
        width = 64
        found, product, h, y = self.gradients(width=width, draws=800, seed=6)
        torch.testing.assert_close(found, product, rtol=1e-12, atol=0)
        for draws, expected in ((h, width / 2), (y, (3 * width - 1) / 2)):
            mean, error = mean_and_error(draws)
            assert abs(mean - expected) < 4 * error
        assert h.var().item() == pytest.approx(
            5 * width / 4, rel=4 * math.sqrt(2 / 800) * 1.2
        )  # its tails are heavier
        mean, error = mean_and_error(found.square())
        assert error < 0.02 * mean
        # The Jacobian removes two directions of d, and E 1/‖y‖² exceeds 1/E‖y‖²: 1/d each, with a
        # factor of some units.
        assert mean == pytest.approx(
            corrected.feed_forward_gradient(width=width, power=1.5) ** 2, rel=0.08, abs=4 * error
        )

    def test_is_below_the_bound_and_the_bound_below_the_papers(self):
        width, epsilon = 64, 0.1
        found, _, h, y = self.gradients(width=width, draws=800, seed=7)
        mean_y = (3 * width - 1) / 2
        bound = corrected.last_layer_gradient_bound(
            width=width, power=mean_y / width, epsilon=epsilon
        )
        # The largest ‖h‖ and the smallest ‖y‖ of the event that the proof stays within.
        hidden, least = width / 2 + math.sqrt(125 * width), (1 - epsilon) * mean_y
        assert bound == pytest.approx(math.sqrt(hidden * width / least), rel=1e-12)
        within = (h <= hidden) & (y >= least)
        assert within.double().mean() > 0.5
        assert (found[within] <= bound).all()
        assert (h > hidden).double().mean() <= 0.01
        delta = ((y - mean_y).abs() > epsilon * mean_y).double().mean().item()
        assert (found <= bound).double().mean().item() >= corrected.theorem_1_probability(
            delta=delta
        )
        assert bound < paper.last_layer_gradient_bound(width=width, power=1.5)

    def test_orders(self):
        """√d and √(d/L), against the paper's d √(ln d) and d √(ln d / L): √(3 d ln d) larger, 98 at
        d = 512.
        """
        post = corrected.feed_forward_gradient(width=512, power=1.5)
        assert post == pytest.approx(math.sqrt(512 / 2) * math.sqrt(2 / 3), rel=1e-12)
        assert paper.post_ln_gradient_order(width=512) / post == pytest.approx(
            math.sqrt(3 * 512 * math.log(512)), rel=1e-12
        )
        assert paper.post_ln_gradient_order(width=512) / post == pytest.approx(98, abs=0.5)
        assert corrected.feed_forward_gradient(width=2048, power=1.5) == pytest.approx(
            2 * post, rel=1e-12
        )
        depths = [
            corrected.feed_forward_gradient(width=512, power=1 + blocks / 2)
            for blocks in (1000, 4000)
        ]
        assert depths[0] / depths[1] == pytest.approx(2, rel=1e-3)

    @given(width=st.integers(1, 4096), power=st.floats(0.5, 100), gradient=st.floats(0.01, 10))
    def test_expected_size_is_below_its_bound(self, width, power, gradient):
        size = corrected.feed_forward_gradient(
            width=width, power=power, loss_gradient_norm=gradient
        )
        assert size < gradient * corrected.last_layer_gradient_bound(
            width=width, power=power, epsilon=0.05
        )


class TestJacobians:
    """Of a sub-layer with its residual, against matrices as they are drawn."""

    WIDTH = 600

    def drawn(self, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.randn(self.WIDTH, self.WIDTH) / self.WIDTH**0.5

    @pytest.mark.parametrize("power", [1.0, 6.0, 28.0, 250.0])
    def test_of_attention(self, power):
        matrix = torch.eye(self.WIDTH) + self.drawn(1) / power**0.5
        found = corrected.residual_jacobian_norm("attention", power=power)
        assert found - 1 == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)) - 1, rel=0.03)

    @pytest.mark.parametrize("power", [1.0, 6.0, 28.0, 250.0])
    def test_of_the_feed_forward(self, power):
        passed = (torch.arange(self.WIDTH) % 2).float()
        matrix = torch.eye(self.WIDTH) + (self.drawn(1) * passed) @ self.drawn(2) / power**0.5
        found = corrected.residual_jacobian_norm("feed_forward", power=power)
        assert found - 1 == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)) - 1, rel=0.04)

    @given(power=st.floats(0.5, 1e4))
    def test_attention_s_is_the_edge_of_a_signal_plus_noise_matrix(self, power):
        """z = 1/g² − s / (g (g − 1)) where its slope is 0, s = 1/q: a quadratic in g (Dozier and
        Silverstein 2007, with every eigenvalue of the signal 1).
        """
        noise = 1 / power
        root = math.sqrt(noise * (8 + noise))
        if abs(noise - 1) < 1e-6:
            return
        g = (4 - noise - root) / (4 * (1 - noise))
        square = 1 / g**2 - noise / (g * (g - 1))
        found = corrected.residual_jacobian_norm("attention", power=power)
        assert found == pytest.approx(math.sqrt(square), rel=1e-6)

    def test_both_are_1_and_a_multiple_of_one_over_the_root_of_a_large_power(self):
        """√2 and (3/2)√3 / 2, the edges of what is added to the identity's symmetric part."""
        for sublayer, multiple in (("attention", 2**0.5), ("feed_forward", 0.75 * 3**0.5)):
            found = corrected.residual_jacobian_norm(sublayer, power=1e8)
            assert (found - 1) * 1e4 == pytest.approx(multiple, rel=1e-3)
