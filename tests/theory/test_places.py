"""Causal stacks place by place: beside explicit matrices, autograd over random weights, and tokens
all alike.
"""

import math
from types import MappingProxyType

import numpy as np
import pytest
import torch

from normscope.theory import places as of_places, stream
from normscope.theory.kernels import kernel
from normscope.theory.mixing import Products
from normscope.theory.places import Places, causal, whole_of
from normscope.theory.predict import ModelSetting, Update, predict
from normscope.theory.sublayers import attention, gradient_square

TOKENS, WIDTH = 7, 192
STDS = MappingProxyType({"value_std": 1.2 * WIDTH**-0.5, "output_std": 0.8 * WIDTH**-0.5})


def vectors(seed: int, scale: float = 1.0) -> np.ndarray:
    """(TOKENS, WIDTH) of unequal sizes, which have more in common the further back they stand."""
    generator = np.random.default_rng(seed)
    own, common = generator.standard_normal((TOKENS, WIDTH)), generator.standard_normal(WIDTH)
    place = np.linspace(0, 1, TOKENS)[:, None]
    return scale * (1 + place) * (own + 2 * place * common)


def products(gram: np.ndarray) -> Products:
    return Products(np.diag(gram), gram, np.zeros_like(gram))


def map_at(x: np.ndarray, logit: float):
    """With logits of about that deviation at tokens of size 1."""
    std = math.sqrt(logit) * WIDTH**-0.5
    return attention(
        products(x @ x.T / WIDTH),
        products(x @ x.T / WIDTH),
        width=WIDTH,
        tokens=causal(TOKENS),
        source_tokens=causal(TOKENS),
        query_std=std,
        key_std=std,
        **STDS,
    )


def test_uniform_attention_is_an_averaging_matrix():
    x, g = vectors(0), vectors(1)
    weights = np.tril(np.ones((TOKENS, TOKENS))) / np.arange(1, TOKENS + 1)[:, None]
    made = map_at(x, 0.0)
    size = 1.2**2 * 0.8**2
    np.testing.assert_allclose(
        whole_of(made.output), size * weights @ x @ x.T @ weights.T / WIDTH, rtol=1e-10
    )
    back = made.projections[0].back
    np.testing.assert_allclose(
        whole_of(back(products(g @ g.T))) * 1.2**2, size * weights.T @ g @ g.T @ weights, rtol=1e-10
    )
    np.testing.assert_allclose(
        back.forward(x @ g.T), 0.8**2 * weights @ x @ g.T @ weights.T, rtol=1e-10, atol=1e-12
    )
    assert made.silent == ("query", "key")


@pytest.fixture(scope="module")
def drawn():
    """Over random matrices: squares of outputs by place, and squared gradients of all four
    matrices.
    """
    draws, heads = 300, 6
    generator = torch.Generator().manual_seed(0)
    later = torch.ones(TOKENS, TOKENS).triu(1).bool()
    sums: dict[str, list[np.ndarray]] = {}
    for draw in range(draws):
        sizes = {"query": 0.2**0.5, "key": 0.2**0.5, "value": 1.2, "output": 0.8}
        w = {
            name: (
                size * WIDTH**-0.5 * torch.randn(WIDTH, WIDTH, generator=generator).double()
            ).requires_grad_()
            for name, size in sizes.items()
        }
        tokens = torch.from_numpy(vectors(2 * draw, 0.5))
        query, key, value = (
            (tokens @ w[name]).view(TOKENS, heads, -1).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        logits = query @ key.mT / (WIDTH / heads) ** 0.5
        mixed = logits.masked_fill(later, -torch.inf).softmax(-1) @ value
        output = mixed.transpose(0, 1).reshape(TOKENS, WIDTH) @ w["output"]
        output.backward(torch.from_numpy(vectors(2 * draw + 1, 0.1)))
        sums.setdefault("out", []).append((output.square().sum(1) / WIDTH).detach().numpy())
        for name, matrix in w.items():
            sums.setdefault(name, []).append(matrix.grad.square().sum().numpy())
    return {
        name: (np.mean(found, 0), np.std(found, 0) / math.sqrt(draws))
        for name, found in sums.items()
    }


def expected_gram(scale: float) -> np.ndarray:
    place = np.linspace(0, 1, TOKENS)
    growth = scale**2 * np.outer(1 + place, 1 + place)
    return growth * (np.eye(TOKENS) + 4 * np.outer(place, place))


def test_attention_by_autograd(drawn):
    """Logits' variances rise from 0 to about a tenth along the sequence."""
    x, g = products(expected_gram(0.5)), products(expected_gram(0.1))
    std = 0.2**0.5 * WIDTH**-0.5
    made = attention(
        x,
        x,
        width=WIDTH,
        tokens=causal(TOKENS),
        source_tokens=causal(TOKENS),
        query_std=std,
        key_std=std,
        **STDS,
    )
    mean, error = drawn["out"]
    np.testing.assert_allclose(made.output.one, mean, rtol=0.04, atol=4 * error.max())
    at_output = Products(g.one * WIDTH, g.two * WIDTH, g.apart)
    squares = {"output": gradient_square(at_output, made.last_inputs, WIDTH, causal(TOKENS), 1)}
    for projection in made.projections:
        h = projection.back(at_output)
        squares[projection.name] = gradient_square(
            h, projection.inputs, WIDTH, projection.tokens, 1
        )
    for name, found in squares.items():
        mean, error = drawn[name]
        assert error < 0.045 * mean, name
        # Squares: half of that in the norm. Of queries and keys, what strong logits pass on is an
        # approximation.
        near = 0.15 if name in ("query", "key") else 0.05
        assert found == pytest.approx(mean, abs=2.5 * error + near * mean), name


def test_queries_and_keys_have_gradients_of_one_size():
    """The loss depends on the product W_Q W_Kᵀ alone, and both are drawn alike."""
    x = products(expected_gram(0.5))
    made = attention(
        x,
        x,
        width=WIDTH,
        tokens=causal(TOKENS),
        source_tokens=causal(TOKENS),
        query_std=0.05,
        key_std=0.05,
        **STDS,
    )
    g = products(expected_gram(1.0))
    query, key = (
        gradient_square(one.back(g), one.inputs, WIDTH, one.tokens, 1)
        for one in made.projections[1:]
    )
    assert query == pytest.approx(key, rel=1e-9)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_kernels_of_many_places(activation):
    """Of two places of one size as of tokens that are alike; of two sizes by a mean over many
    pairs.
    """
    variance, rho = (
        np.array([0.7, 0.7, 1.9]),
        np.array([[1, 0.4, 0.8], [0.4, 1, -0.2], [0.8, -0.2, 1]]),
    )
    found, same = kernel(activation, variance, rho), kernel(activation, 0.7, 0.4)
    for name in same._fields:
        value = getattr(found, name)
        at = value[0, 1] if np.ndim(value) == 2 else np.ravel(value)[0]
        assert at == pytest.approx(getattr(same, name), rel=1e-6, abs=1e-12), name
    pairs = np.random.default_rng(0).multivariate_normal(
        [0, 0], [[0.7, 0.8 * 1.33**0.5], [0.8 * 1.33**0.5, 1.9]], 200_000
    )
    gates = np.random.default_rng(1).multivariate_normal(
        [0, 0], [[0.7, 0.8 * 1.33**0.5], [0.8 * 1.33**0.5, 1.9]], 200_000
    )
    z, gate = torch.from_numpy(pairs), torch.from_numpy(gates)
    curve = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}.get(
        activation, torch.nn.functional.silu
    )
    values = curve(z) * gate if activation == "swiglu" else curve(z)
    assert found.two[0, 2] == pytest.approx(float((values[:, 0] * values[:, 1]).mean()), rel=0.02)


def seen_by_all(tokens: int) -> Places:
    return Places(np.ones(tokens), np.full((tokens, tokens), 1 / tokens))


@pytest.mark.parametrize(
    ("placement", "setting", "optimizer"),
    [
        ("pre-ln", "theory", "adam"),
        ("post-ln", "normal-0.02", "sgd"),
        ("layer-scale", "normal-0.02", "muon"),
        ("hybrid-norm", "normal-0.02", "sgd"),
    ],
)
def test_places_that_are_alike_are_an_encoder(monkeypatch, placement, setting, optimizer):
    """Another algebra, whole matrices over tokens, for what two numbers say there."""
    model = {
        "blocks": 2,
        "width": 64,
        "ffn_width": 96,
        "tokens": 6,
        "vocabulary": 300,
        "setting": setting,
    }
    update = Update(optimizer=optimizer)
    expected = predict(placement, ModelSetting(stack="encoder", **model), update=update)["encoder"]
    monkeypatch.setattr(stream, "causal", seen_by_all)
    monkeypatch.setattr(
        of_places.Places, "keys", property(lambda self: np.full(self.count, float(self.count)))
    )
    found = predict(placement, ModelSetting(stack="decoder", **model), update=update)["decoder"]
    np.testing.assert_allclose(found.q, expected.q, rtol=1e-3)
    np.testing.assert_allclose(found.p, expected.p, rtol=5e-3, atol=1e-12)
    for name, norms in expected.gradient_norm.items():
        np.testing.assert_allclose(found.gradient_norm[name], norms, rtol=0.02, err_msg=name)
    np.testing.assert_allclose(found.change.stream, expected.change.stream, rtol=0.02)
    assert found.change.output_two == pytest.approx(expected.change.output_two, rel=0.03)
    assert found.change.loss == pytest.approx(expected.change.loss, rel=0.02)


def test_long_sequences_by_groups_of_places(monkeypatch):
    model = ModelSetting(
        stack="decoder",
        blocks=2,
        width=128,
        ffn_width=128,
        heads=4,
        tokens=100,
        setting="xavier-normal",
    )
    grouped = predict("pre-ln", model)["decoder"]
    assert causal(100).count == 64
    assert causal(100).total == 100
    monkeypatch.setattr(
        stream,
        "causal",
        lambda n: Places(np.ones(n), np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]),
    )
    single = predict("pre-ln", model)["decoder"]
    np.testing.assert_allclose(grouped.q, single.q, rtol=2e-3)
    np.testing.assert_allclose(grouped.p, single.p, rtol=0.01, atol=1e-3)
    for name, norms in single.gradient_norm.items():
        np.testing.assert_allclose(grouped.gradient_norm[name], norms, rtol=0.01, err_msg=name)
