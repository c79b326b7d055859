"""The corrected statements over depth: the mean field of the stream, and the profiles of the
gradient.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from draws import layer_norm, mean_and_error, normals
from normscope_studies.theory import corrected, paper

COSINES = st.floats(-1, 1)


class TestMeanField:
    def test_kernel_ends(self):
        assert corrected.relu_kernel(1.0) == 1
        assert corrected.relu_kernel(0.0) == pytest.approx(1 / math.pi, rel=1e-15)
        assert corrected.relu_kernel(-1.0) == pytest.approx(0, abs=1e-15)

    @given(rho=COSINES)
    def test_kernel_draws_together_and_reflects(self, rho):
        """κ(ρ) - κ(-ρ) = ρ since ReLU(u) - ReLU(-u) = u, and max(ρ, 0) ≤ κ(ρ) ≤ 1."""
        found = corrected.relu_kernel(rho)
        assert max(rho, 0.0) - 1e-15 <= found <= 1
        assert found - corrected.relu_kernel(-rho) == pytest.approx(rho, abs=1e-14)

    @pytest.mark.parametrize("rho", [-0.6, 0.3, 0.9])
    def test_kernel_as_sampled(self, rho):
        u, w = np.random.default_rng(9).standard_normal((2, 100_000))
        v = rho * u + math.sqrt(1 - rho**2) * w
        found, error = mean_and_error(2 * np.maximum(u, 0) * np.maximum(v, 0))
        assert error < 0.01
        assert abs(found - corrected.relu_kernel(rho)) < 4 * error

    @given(rho=st.floats(0, 1), tokens=st.integers(1, 1000))
    def test_attention_share_lies_between_one_token_and_all(self, rho, tokens):
        found = corrected.uniform_attention_share(rho, tokens=tokens)
        assert max(rho, 1 / tokens) - 1e-12 <= found <= 1 + 1e-12

    def test_attention_share_is_the_power_of_a_mean(self):
        """Tokens of power 1 and cosine -1/2 at 120° cancel; the same token twice stays."""
        assert corrected.uniform_attention_share(-0.5, tokens=3) == 0
        assert corrected.uniform_attention_share(1.0, tokens=2) == 1

    def test_twenty_four_blocks_of_pre_ln(self):
        """Computed elsewhere: 29.49 predicted, 28.97 measured, within the paper's 13 to 37."""
        q, _ = corrected.pre_ln_stream(24, tokens=16)[-1]
        assert q == pytest.approx(29.49, abs=5e-3)
        assert q == pytest.approx(28.97, rel=0.02)

    def test_one_token_fills_the_upper_bound(self):
        for blocks, (q, _) in enumerate(corrected.pre_ln_stream(20, tokens=1)):
            assert q == corrected.pre_ln_squared_norm(blocks, width=1)[1]

    @given(tokens=st.integers(1, 200))
    def test_tokens_become_alike(self, tokens):
        for cosines in (
            corrected.post_ln_cosines(30, tokens=tokens),
            [p / q for q, p in corrected.pre_ln_stream(30, tokens=tokens)],
        ):
            assert all(a - 1e-12 <= b <= 1 + 1e-12 for a, b in itertools.pairwise(cosines))

    def test_both_streams_as_simulated(self):
        """Six blocks, eight tokens, d = 192: within four standard errors of sixteen draws, and 2/d
        for finite width.
        """
        width, tokens, blocks = 192, 8, 6
        simulated = {"pre": [], "post": []}
        for seed in range(16):
            normal = normals(100 + seed)
            pre = post = normal(tokens, width)
            powers, cosines = [], []
            for _ in range(blocks):
                value, first, second = normal(3, width, width) / width**0.5
                pre = pre + layer_norm(pre).mean(0) @ value
                pre = pre + torch.relu(layer_norm(pre) @ first) @ second
                post = layer_norm(post + post.mean(0) @ value)
                post = layer_norm(post + torch.relu(post @ first) @ second)
                powers.append(pre.square().mean().item())
                products = (
                    post @ post.T / width
                ).sum().item() - tokens  # the diagonal is exactly 1
                cosines.append(products / (tokens * (tokens - 1)))
            simulated["pre"].append(powers)
            simulated["post"].append(cosines)
        predicted = {
            "pre": [q for q, _ in corrected.pre_ln_stream(blocks, tokens=tokens)][1:],
            "post": corrected.post_ln_cosines(blocks, tokens=tokens)[1:],
        }
        for name, draws in simulated.items():
            found, error = mean_and_error(draws)
            assert (error < 0.03 * found + 0.01).all()
            np.testing.assert_array_less(
                np.abs(found - predicted[name]), 4 * error + 2 / width * found, err_msg=name
            )


class TestProfiles:
    def simulated(self, *, pre, blocks=16, width=128, seeds=12):
        """‖∂L/∂W^{2,l}‖, l = 1 … L, of a stack of feed-forwards, one position, by autograd: root
        mean square.
        """
        squared = []
        for seed in range(seeds):
            normal = normals(seed)
            weights = [(normal(width, width) / width**0.5).requires_grad_() for _ in range(blocks)]
            x = layer_norm(normal(width))
            for second in weights:
                first = normal(width, width) / width**0.5
                x = x + torch.relu(layer_norm(x) @ first) @ second
                x = x if pre else layer_norm(x)
            (layer_norm(x) @ normal(width) / width**0.5).backward()
            squared.append([w.grad.square().sum().item() for w in weights])
        return np.sqrt(np.mean(squared, 0))

    def test_pre_ln(self):
        """Not flat: the bottom's is √(q_L / q_1) of the top's, here 2.4."""
        feed_forwards = [corrected.pre_ln_squared_norm(done, width=1) for done in range(17)]
        predicted = np.array(corrected.pre_ln_gradient_profile(feed_forwards))
        found = self.simulated(pre=True)
        assert predicted[0] == pytest.approx(math.sqrt(9 / 1.5), rel=1e-12)
        # A draw's squared gradient scatters by about 0.5: 0.07 for the root of twelve, and twice
        # that for the worst.
        np.testing.assert_allclose(
            found / np.sqrt(np.mean((found / predicted) ** 2)), predicted, rtol=0.15
        )
        assert found[0] / found[-1] > 1.8 * paper.pre_ln_gradient_profile(16)[0]
        size = [
            corrected.feed_forward_gradient(width=128, power=1 + done / 2) for done in range(1, 17)
        ]
        np.testing.assert_allclose(found, size, rtol=0.25)

    def test_post_ln(self):
        """No decay: the claimed factor would leave the bottom 5 % of the top."""
        found = self.simulated(pre=False)
        np.testing.assert_allclose(found / found[-1], 1.0, rtol=0.3)
        assert paper.post_ln_gradient_profile(16)[0] < 0.05
        np.testing.assert_allclose(
            found, corrected.feed_forward_gradient(width=128, power=1.5), rtol=0.3
        )

    def test_with_attention_the_measured_ends_are_within_an_eighth(self):
        """Measured elsewhere (d = 512): bottom and top of Pre-LN, by blocks."""
        for blocks, bottom, top in (
            (6, 2.55, 1.16),
            (12, 2.57, 0.79),
            (24, 2.54, 0.53),
            (48, 2.23, 0.36),
        ):
            predicted = corrected.pre_ln_gradient_profile(
                corrected.pre_ln_stream(blocks, tokens=16)
            )
            assert bottom / top == pytest.approx(predicted[0], rel=1 / 8)

    @given(blocks=st.integers(1, 100), tokens=st.integers(1, 100))
    def test_pre_ln_falls_to_one(self, blocks, tokens):
        found = corrected.pre_ln_gradient_profile(corrected.pre_ln_stream(blocks, tokens=tokens))
        assert len(found) == blocks
        assert found[-1] == 1
        assert all(a > b for a, b in itertools.pairwise(found))
