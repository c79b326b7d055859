"""Steps of one matrix beside steps that were taken: matrices as drawn, signs and orthogonal factors
of gradients.
"""

import math

import numpy as np
import pytest

from draws import mean_and_error
from normscope.theory.change.inner import activated, own
from normscope.theory.change.rules import (
    Hidden,
    UpdatedMatrix,
    first_step,
    learnt_steps,
    square_of,
)
from normscope.theory.change.tokens import Alike, over_tokens
from normscope.theory.kernels import activated as curve, slope
from normscope.theory.mixing import Products
from normscope.theory.moments import Atoms, Use, single
from normscope.theory.sublayers import feed_forward

TOKENS, WIDTH, DRAWS = 8, 160, 24
RULES = ("gradient", "sign", "orthogonal", "random")


def shared(generator, correlation: float) -> np.ndarray:
    """(WIDTH, TOKENS) of variance 1."""
    return math.sqrt(correlation) * generator.standard_normal((WIDTH, 1)) + math.sqrt(
        1 - correlation
    ) * generator.standard_normal((WIDTH, TOKENS))


def step(rule: str, g: np.ndarray, u: np.ndarray, generator) -> np.ndarray:
    if rule == "random":
        return generator.standard_normal((len(g), len(u)))
    gradient = g @ u.T
    if rule == "gradient":
        return gradient
    if rule == "sign":
        return np.sign(gradient)
    left, sizes, right = np.linalg.svd(gradient, full_matrices=False)
    there = sizes > 1e-9 * sizes[0]
    return 0.2 * math.sqrt(WIDTH) * left[:, there] @ right[there]


@pytest.fixture(scope="module")
def drawn():
    """For activation and both correlations: E δ² and E⟨g, δ⟩ of W1's and W2's steps at F's output,
    by rule.
    """
    found = {}
    for activation, inputs, gradients in (
        ("relu", 0.0, 0.0),
        ("relu", 0.8, 0.3),
        ("gelu", 0.5, 0.3),
    ):
        generator = np.random.default_rng(3)
        sums = {rule: np.zeros((DRAWS, 4)) for rule in RULES}
        for draw in range(DRAWS):
            x, g = shared(generator, inputs), shared(generator, gradients)
            into, out = (
                generator.standard_normal((WIDTH, WIDTH)) / math.sqrt(WIDTH) for _ in range(2)
            )
            z = into @ x
            hidden, slopes = curve(activation, z), slope(activation, z)
            for rule in RULES:
                last = step(rule, g, hidden, generator) @ hidden
                first = out @ (slopes * (step(rule, slopes * (out.T @ g), x, generator) @ x))
                sums[rule][draw] = [np.square(c).mean() for c in (first, last)] + [
                    float((g * c).sum()) / TOKENS for c in (first, last)
                ]
        found[activation, inputs, gradients] = {
            rule: mean_and_error(table) for rule, table in sums.items()
        }
    return found


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("rule", RULES)
def test_both_matrices_of_a_feed_forward(drawn, rule):
    for (activation, inputs, gradients), measured in drawn.items():
        x, g = Products(1.0, inputs), Alike(float(WIDTH), WIDTH * gradients)
        sizes = {"width": WIDTH, "ffn_width": WIDTH, "tokens": TOKENS}
        stds = {"ffn_in_std": WIDTH**-0.5, "ffn_out_std": WIDTH**-0.5}
        made = feed_forward(x, **sizes, **stds, activation=activation)
        into = made.projections[0]
        below = over_tokens(into.back(Products(*g)))
        moved = own(rule, into, below, WIDTH, WIDTH, activated=True)
        first = activated(into, moved, made, (g, below), WIDTH, activation)
        read = over_tokens(made.last_inputs)
        units = Hidden(activation, made.variance, inputs, made.last_mean / read.one**0.5)
        last = first_step(rule, UpdatedMatrix(read, g, WIDTH, WIDTH, units), TOKENS)
        squares = [square_of(s, g, WIDTH, TOKENS).one for s in (first, last)]
        downhill = [
            s.coefficients.one * g.one + (TOKENS - 1) * s.coefficients.two * g.two
            for s in (first, last)
        ]
        expected, error = measured[rule]
        # Of order tokens / width is left out: 3 % of the squares.
        off = np.abs([*squares, *downhill] - expected)
        assert np.all(off <= 3.5 * error + 0.03 * np.abs(expected)), (
            activation,
            inputs,
            off / expected,
        )
        assert rule != "random" or downhill == [0.0, 0.0]


def test_the_sign_of_one_tokens_gradient():
    """One token: sign(g uᵀ) u = sign(g) Σ|u_j|, of which √(2/π) is u's size and √(2/π) again what
    lies along g.
    """
    u, g = Alike(2.0, 0.0), Alike(300.0, 0.0)
    found = first_step("sign", UpdatedMatrix(u, g, 100, 300), 1)
    among = 2 / math.pi * 100**2 * 2 + 100 * (2 - 2 / math.pi * 2)
    assert square_of(found, g, 300, 1).one == pytest.approx(among, rel=1e-9)
    assert found.coefficients.one == pytest.approx(100 * 2 / math.pi * math.sqrt(2), rel=0.02)


def test_orthogonal_factors_keep_the_size_of_inputs():
    """δW is an isometry of the inputs' span: 0.2² · max(rows, columns) · ‖u‖² over the outputs."""
    u, g = Alike(1.5, 0.6), Alike(40.0, 3.0)
    found = square_of(
        first_step("orthogonal", UpdatedMatrix(u, g, 200, 100), TOKENS), g, 100, TOKENS
    )
    expected = u.scaled(0.04 * 200 * 200 / 100)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("entries", [1, WIDTH], ids=["one-number", "a-number-a-feature"])
@pytest.mark.parametrize("rule", ["gradient", "sign"])
def test_a_trained_number_moves_what_it_multiplies(rule, entries):
    """Values and gradients as drawn, the number's step taken, and the product's move measured."""
    generator = np.random.default_rng(11)
    # A feature's own sum over tokens that have much in common is no Gaussian: there the sign has an
    # eighth less of it than is predicted.
    over_tokens_alone = rule == "sign" and entries > 1
    values, gradients = (0.0, 0.0) if over_tokens_alone else (0.4, 0.3)
    left_out = 0.04 if over_tokens_alone else 0.01
    draws = 1500
    table = np.zeros((draws, 3))
    for draw in range(draws):
        x, g = shared(generator, values), shared(generator, gradients)
        by_feature = (g * x).sum(1, keepdims=True)
        gradient = by_feature if entries > 1 else by_feature.sum()
        moved = (np.sign(gradient) if rule == "sign" else gradient) * x
        pairs = moved.T @ moved / WIDTH
        two = (pairs.sum() - np.trace(pairs)) / (TOKENS * (TOKENS - 1))
        table[draw] = [np.trace(pairs) / TOKENS, two, (g * moved).sum() / TOKENS]
    measured, error = mean_and_error(table)
    atoms = Atoms(WIDTH)
    x = single(atoms, atoms.add(1.0, values))
    g = Products(float(WIDTH), WIDTH * gradients)
    (step,) = learnt_steps(rule, [Use(x, 0, "gate", entries)], [g], WIDTH, TOKENS)
    square = square_of(step, over_tokens(g), WIDTH, TOKENS)
    downhill = step.coefficients.one * g.one + (TOKENS - 1) * step.coefficients.two * g.two
    off = np.abs([square.one, square.two, downhill] - measured)
    assert np.all(off <= 3.5 * error + left_out * np.abs(measured)), off / measured
