"""Attention and feed-forward on moments beside explicit averaging matrices, autograd and simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from normscope.placement import Placement, register
from normscope.studies.simulation import simulate
from normscope.theory.predict import ModelSetting, predict
from normscope.theory.sublayers import AttentionMap, FeedForwardMap, Pair, sharpened, uniform, uniform_causal

PAIRS = st.tuples(st.floats(0.01, 10), st.floats(-0.05, 1)).map(lambda x: Pair(x[0], x[0] * x[1]))


def gram(pair: Pair, tokens: int) -> np.ndarray:
    """Inner products of vectors of which all have the same square and all two the same product."""
    return pair.two + (pair.one - pair.two) * np.eye(tokens)


def pair_of(products) -> Pair:
    products, tokens = np.asarray(products), len(products)
    one = float(products.trace())
    return Pair(one / tokens, (float(products.sum()) - one) / (tokens * (tokens - 1)) if tokens > 1 else 0.0)


def vectors(pair: Pair, tokens: int, width: int, seed: int) -> Tensor:
    """In random directions, with exactly those inner products divided by their width."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(width, tokens + 1, generator=generator, dtype=torch.float64))[0].T
    return math.sqrt(width) * (math.sqrt(pair.two) * basis[0] + math.sqrt(pair.one - pair.two) * basis[1:])


def ones(products: Tensor) -> Tensor:
    """Mean squares, draw by draw."""
    return products.diagonal(dim1=1, dim2=2).mean(1)


def twos(products: Tensor) -> Tensor:
    """Mean products of two tokens."""
    tokens = products.shape[1]
    return (products.sum((1, 2)) - tokens * ones(products)) / (tokens * (tokens - 1))


def close(found: Pair, expected: Pair, **tolerance: float) -> None:
    assert (found.one, found.two) == pytest.approx((expected.one, expected.two), **tolerance)


class TestMixing:
    """Averages over a sequence's tokens and pairs of tokens, where the moments of all values are alike."""

    AVERAGING = pytest.mark.parametrize(
        ("make", "matrix"),
        [
            (uniform, lambda n: np.full((n, n), 1 / n)),
            (uniform_causal, lambda n: np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]),
        ],
        ids=["uniform", "causal"],
    )
    TOKENS = pytest.mark.parametrize("tokens", [2, 3, 17])

    @staticmethod
    def attention(mixing, source: Pair, tokens: int, keys: int) -> AttentionMap:
        """With matrices that keep all second moments."""
        std = 16**-0.5
        return AttentionMap(
            width=16, tokens=tokens, value_std=std, output_std=std, mixing=mixing, source=source, source_tokens=keys,
            value_scale=1.0, output_scale=1.0,
        )  # fmt: skip

    @AVERAGING
    @TOKENS
    @given(value=PAIRS, gradient=PAIRS)
    def test_of_values_and_of_gradients(self, make, matrix, tokens, value, gradient):
        weights = matrix(tokens)
        attention = self.attention(make(tokens), value, tokens, tokens)
        mixed = pair_of(weights @ gram(value, tokens) @ weights.T)
        close(make(tokens).forward(value), mixed, rel=1e-10, abs=1e-12)
        close(attention.output(), mixed, rel=1e-10, abs=1e-12)
        back = pair_of(weights.T @ gram(gradient, tokens) @ weights)
        close(attention.gradient_at_source(gradient), back, rel=1e-10, abs=1e-12)

    @pytest.mark.parametrize("make", [uniform, uniform_causal])
    def test_one_token(self, make):
        assert make(1).forward(Pair(1.7, 0.0)).one == 1.7
        back = self.attention(make(1), Pair(1.7, 0.0), 1, 1).gradient_at_source(Pair(0.3, 0.0))
        assert back.one == pytest.approx(0.3, rel=1e-12)

    @given(value=PAIRS, gradient=PAIRS, tokens=st.integers(1, 6), keys=st.integers(1, 9))
    def test_across_sequences_of_two_lengths(self, value, gradient, tokens, keys):
        weights = np.full((tokens, keys), 1 / keys)
        attention = self.attention(uniform(keys), value, tokens, keys)
        back = pair_of(weights.T @ gram(gradient, tokens) @ weights)
        close(attention.gradient_at_source(gradient), back, rel=1e-10, abs=1e-12)
        if tokens > 1:
            close(attention.output(), pair_of(weights @ gram(value, keys) @ weights.T), rel=1e-10, abs=1e-12)

    @given(
        value=PAIRS,
        gradient=PAIRS,
        tokens=st.integers(1, 8),
        variance=st.floats(0, 3),
        make=st.sampled_from([uniform, uniform_causal]),
    )
    def test_the_way_back_is_the_transpose(self, value, gradient, tokens, variance, make):
        """⟨W v, g⟩ = ⟨v, Wᵀ g⟩, squared and averaged: the two matrices beside the mixing have gradients of one norm."""
        found = self.attention(sharpened(make(tokens), variance), value, tokens, tokens).weight_gradients(gradient)
        # Squares that almost cancel have a root that does not.
        assert found["value"] ** 2 == pytest.approx(found["output"] ** 2, rel=1e-9, abs=1e-9)

    def test_nothing_sharpens_without_variance(self):
        assert sharpened(uniform(7), 0.0) == uniform(7)
        assert sharpened(uniform(7), 1e9).self_one == 1
        assert sharpened(uniform_causal(7), 0.3).self_one > uniform_causal(7).self_one

    @pytest.mark.parametrize(("shared", "variance"), [(0.0, 0.25), (0.5, 0.125), (0.8, 0.05), (0.0, 0.5)])
    def test_sharpened_by_random_queries_and_keys(self, shared, variance):
        """The share of single values in what attention mixes, over W_Q and W_K of one head, from tokens with q = 1.

        The approximation exceeds it by about variance² / 2, for log-normal weights over few keys: 2 % at 0.25, where
        Glorot's packed matrices and a norm put it, 9 % at 0.5.
        """
        tokens, width, draws = 16, 64, 200
        generator = torch.Generator().manual_seed(5)
        gap = 1 - shared
        # Queries of variance s² and keys of variance s² have logits of variance s⁴ gap about their mean over keys.
        scale = (variance / gap) ** 0.25
        shares = []
        for seed in range(draws):
            x = vectors(Pair(1.0, shared), tokens, width, seed)
            query, key = scale * torch.randn(2, width, width, generator=generator, dtype=torch.float64) / width**0.5
            weights = ((x @ query) @ (x @ key).T / width**0.5).softmax(-1)
            shares.append(float(weights.square().sum(-1).mean()))
        found = sharpened(uniform(tokens), variance).self_one
        assert found == pytest.approx(np.mean(shares), rel=0.01 + variance**2 / 2)
        # Far from what it would be without queries and keys.
        assert np.mean(shares) > (1 + variance / 2) / tokens


class TestFeedForward:
    WIDTH, FFN_WIDTH, TOKENS = 48, 96, 4
    X, G = Pair(1.3, 0.7), Pair(0.9, 0.3)

    def map(self, activation: str) -> FeedForwardMap:
        return FeedForwardMap(
            width=self.WIDTH, ffn_width=self.FFN_WIDTH, tokens=self.TOKENS, ffn_in_std=1.2 * self.WIDTH**-0.5,
            ffn_out_std=0.8 * self.FFN_WIDTH**-0.5, activation=activation, input=self.X, hidden_scale=1.0,
        )  # fmt: skip

    @pytest.mark.parametrize("scale", ["no norm", "hidden", "output"])
    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    def test_by_autograd(self, activation, scale):
        """Over random matrices; `scale` multiplies before or after the activation, as a norm does."""
        factors = {"no norm": (1.0, 1.0), "hidden": (0.6, 1.0), "output": (1.0, 1.7)}[scale]
        expected = replace(
            self.map(activation), hidden_scale=factors[0], output_scale=factors[1], output_mean_scale=factors[1]
        )
        generator, draws = torch.Generator().manual_seed(2), 600

        def matrices(std: float, *shape: int) -> Tensor:
            return (std * torch.randn(draws, *shape, generator=generator, dtype=torch.float64)).requires_grad_()

        first = matrices(expected.ffn_in_std, self.WIDTH, self.FFN_WIDTH)
        last = matrices(expected.ffn_out_std, self.FFN_WIDTH, self.WIDTH)
        # One input and one gradient for all draws: the matrices turn them around.
        x = vectors(self.X, self.TOKENS, self.WIDTH, 0).expand(draws, -1, -1).clone().requires_grad_()
        g = vectors(self.G.scaled(1 / self.WIDTH), self.TOKENS, self.WIDTH, 1).expand(draws, -1, -1)
        hidden = factors[0] * (x @ first)
        hidden = hidden.relu() if activation == "relu" else nn.functional.gelu(hidden)
        output = factors[1] * hidden @ last
        output.backward(g)
        values, back = expected.output(), expected.gradient_at_source(self.G)
        weights = expected.weight_gradients(self.G)
        products = output.detach() @ output.detach().mT / self.WIDTH
        for name, found, predicted in (
            ("q", ones(products), values.one),
            ("p", twos(products), values.two),
            ("G", ones(x.grad @ x.grad.mT), back.one),
            ("H", twos(x.grad @ x.grad.mT), back.two),
            ("ffn_in", first.grad.square().sum((1, 2)), weights["ffn_in"] ** 2),
            ("ffn_out", last.grad.square().sum((1, 2)), weights["ffn_out"] ** 2),
        ):
            error = float(found.std()) / math.sqrt(draws)
            assert error < 0.025 * predicted, name
            assert float(found.mean()) == pytest.approx(predicted, abs=4 * error), name

    def test_what_leaves_the_activation_adds_up(self):
        for activation in ("relu", "gelu"):
            centred, mean = self.map(activation).activated()
            assert mean.one == mean.two > 0
            assert centred.one > centred.two >= 0
            whole = self.map(activation).output().scaled(1 / (self.FFN_WIDTH * self.map(activation).ffn_out_std ** 2))
            close(Pair(centred.one + mean.one, centred.two + mean.two), whole, rel=1e-12)

    def test_input_of_zero(self):
        nothing = replace(self.map("relu"), input=Pair(0.0, 0.0))
        assert nothing.output() == Pair(0.0, 0.0)
        assert nothing.weight_gradients(self.G)["ffn_in"] == 0


class Probe(Placement):
    """x ← x + F(LN(x)), with norms at some places inside one kind of F."""

    name, title, citation, year = "probe", "Probe", "nobody", 2026
    places: tuple[str, ...] = ()
    kind = "feed_forward"

    def join(self, x, sublayer, norm):
        if sublayer.site.kind != self.kind:
            return x + sublayer(norm(x))
        return x + sublayer(norm(x), **{place: getattr(norm, place) for place in self.places})


class TestNormsWithinASublayer:
    """Against stacks of two blocks as they are drawn. ⟨x, F(x)⟩ makes q vary by 5 % from draw to draw at d = 256, so by
    1.2 % over 16; queries and keys that are normed have logits of variance 0.6, where sharpening is 10 % too strong."""

    @pytest.mark.parametrize("norm", ["layer-norm", "rms-norm"])
    @pytest.mark.parametrize(
        ("kind", "places"),
        [
            ("attention", ("query", "key")),
            ("attention", ("value",)),
            ("attention", ("output",)),
            ("feed_forward", ("hidden",)),
            ("feed_forward", ("output",)),
            ("feed_forward", ("hidden", "output")),
        ],
    )
    def test_as_simulated(self, registry, kind, places, norm):
        register(type("ProbeHere", (Probe,), {"kind": kind, "places": places}))
        model = ModelSetting(
            blocks=2, width=256, ffn_width=256, tokens=10, vocabulary=500, setting="paper", norm=norm, tied=False
        )
        found, expected = predict("probe", model)["encoder"], simulate("probe", model, draws=16)["encoder"]
        np.testing.assert_allclose(found.q, expected.q, rtol=0.04)
        np.testing.assert_allclose(found.p, expected.p, atol=0.04 * max(found.q))
        for name in ("value", "output", "ffn_in", "ffn_out"):
            np.testing.assert_allclose(found.gradient_norm[name], expected.gradient_norm[name], rtol=0.1, err_msg=name)
