"""Gradients where a tied projection finds a token's own row in the output, beside models that are
drawn.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, silu

from draws import simulate
from normscope.model.embedding import sinusoids
from normscope.theory.predict import ModelSetting, predict

WIDTH, FFN_WIDTH, HEADS, TOKENS, DRAWS = 256, 512, 8, 16, 60
NAMES = ("query", "key", "value", "output", "ffn_in", "ffn_out")


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("placement", ["hybrid-norm", "gpt2"])
def test_gradients_that_lie_along_the_output(placement, stack):
    """Within the error of 12 draws and 7 %; with F's gradients taken as independent of those past
    F, V's was 18 % too small in the first block of HybridNorm."""
    model = ModelSetting(
        stack=stack,
        blocks=8,
        width=128,
        ffn_width=256,
        heads=4,
        tokens=16,
        vocabulary=1000,
        setting="paper",
    )
    drawn, predicted = simulate(placement, model, 12)[stack], predict(placement, model)[stack]
    for name in ("value", "output", "ffn_in", "ffn_out"):
        error = predicted.gradient_norm[name] / np.sqrt(drawn.squares[name]) - 1
        assert np.abs(error).max() < 0.09, name


def normed(x):
    return layer_norm(x, x.shape[-1:])


JOINS = {
    "pre-ln": lambda x, f: x + f(normed(x)),
    "post-ln": lambda x, f: normed(x + f(x)),
    "peri-ln": lambda x, f: x + normed(f(normed(x))),
}
UNITS = {"relu": torch.relu, "gelu": gelu}


def drawn_block(placement, activation, *, causal, loops, entries, seed, heads):
    """Squared norms of the gradients of one block's matrices, Glorot normal, by their names; under
    a tied projection, with no token twice.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(rows, columns, std):
        return torch.randn(rows, columns, generator=generator) * std

    into = math.sqrt(2 / (WIDTH + FFN_WIDTH))
    matrices = {name: normal(WIDTH, WIDTH, WIDTH**-0.5) for name in NAMES[:4]}
    matrices["ffn_in"] = normal(WIDTH, FFN_WIDTH, into)
    if activation == "swiglu":
        matrices["ffn_gate"] = normal(WIDTH, FFN_WIDTH, into)
    matrices["ffn_out"] = normal(FFN_WIDTH, WIDTH, into)
    for matrix in matrices.values():
        matrix.requires_grad_()

    def attention(x):
        by_head = (TOKENS, heads, WIDTH // heads)
        query, key, value = ((x @ matrices[name]).view(by_head) for name in NAMES[:3])
        logits = torch.einsum("ihc,jhc->hij", query, key) / math.sqrt(WIDTH // heads)
        if causal:
            unseen = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            logits = logits.masked_fill(unseen, -math.inf)
        mixed = torch.einsum("hij,jhc->ihc", logits.softmax(-1), value)
        return mixed.reshape(TOKENS, WIDTH) @ matrices["output"]

    def feed_forward(x):
        if activation == "swiglu":
            return (silu(x @ matrices["ffn_gate"]) * (x @ matrices["ffn_in"])) @ matrices["ffn_out"]
        return UNITS[activation](x @ matrices["ffn_in"]) @ matrices["ffn_out"]

    rows = normal(entries, WIDTH, WIDTH**-0.5)
    order = torch.randperm(entries, generator=generator)
    x = rows[order[:TOKENS]] * math.sqrt(WIDTH) + sinusoids(TOKENS, WIDTH)
    if placement == "peri-ln":
        x = normed(x)
    for _ in range(loops):
        for f in (attention, feed_forward):
            x = JOINS[placement](x, f)
    y = x if placement == "post-ln" else normed(x)
    cross_entropy(y @ rows.T, order[TOKENS : 2 * TOKENS]).backward()
    return {name: float(matrix.grad.square().sum()) for name, matrix in matrices.items()}


def errors(placement, activation, *, causal, loops, entries, heads=HEADS):
    """What theory says of one block, and by matrix how far its gradient is off, predicted over
    measured less 1, with the standard error of the draws.
    """
    model = ModelSetting(
        stack="decoder" if causal else "encoder",
        blocks=1,
        loops=loops,
        width=WIDTH,
        ffn_width=FFN_WIDTH,
        heads=heads,
        tokens=TOKENS,
        vocabulary=entries,
        setting="xavier-normal",
        activation=activation,
    )
    draws = [
        drawn_block(
            placement,
            activation,
            causal=causal,
            loops=loops,
            entries=entries,
            seed=seed,
            heads=heads,
        )
        for seed in range(DRAWS)
    ]
    predicted = predict(placement, model)[model.stack]
    found = {}
    for name in draws[0]:
        squares = np.array([draw[name] for draw in draws])
        off = predicted.gradient_norm[name][0] / math.sqrt(squares.mean()) - 1
        found[name] = (off, squares.std(ddof=1) / squares.mean() / 2 / math.sqrt(DRAWS))
    return predicted, found


@pytest.mark.parametrize(
    ("placement", "activation", "causal", "entries"),
    [
        pytest.param("pre-ln", "gelu", True, 1000, id="pre-ln"),
        pytest.param("pre-ln", "swiglu", False, 1000, id="pre-ln-gated"),
        pytest.param("post-ln", "gelu", True, 1000, id="post-ln"),
        pytest.param("post-ln", "relu", False, 1000, id="post-ln-encoder"),
        pytest.param("peri-ln", "gelu", False, 200, id="a-norm-after-the-branch"),
    ],
)
def test_the_transpose_of_a_last_matrix_knows_what_the_matrix_made(
    placement, activation, causal, entries
):
    """One block that gives most of its probability to the token that it has read, within two
    standard errors of the draws, below 1 %, and 3 % beside, of Q and K 5 %.

    Of a gradient that knows nothing of the matrix, V's was 9 to 15 % too small, Q's and K's 5 to
    12 %, W1's 6 to 8 %; behind a norm after the branch V's and O's were 13 % too large.
    """
    predicted, found = errors(placement, activation, causal=causal, loops=1, entries=entries)
    assert not predicted.doubts
    for name, (off, error) in found.items():
        beside = 0.05 if name in ("query", "key") else 0.03
        assert abs(off) < beside + 2 * error, f"{name}: {off:+.1%} +- {error:.1%}"


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_loops_that_hold_their_own_row_are_doubted_by_as_much_as_they_are_off(causal):
    predicted, found = errors("pre-ln", "gelu", causal=causal, loops=2, entries=1000)
    (doubt,) = predicted.doubts
    assert set(doubt.of) == set(found)
    assert "of the probability to the token that was read" in doubt.reason
    least, most = doubt.error
    for name, (off, error) in found.items():
        assert least - 2 * error < off < most + 2 * error, f"{name}: {off:+.1%} +- {error:.1%}"


@pytest.mark.parametrize("placement", ["pre-ln", "post-ln"])
def test_queries_of_few_heads_are_doubted_by_as_much_as_they_are_off(placement):
    predicted, found = errors(placement, "gelu", causal=True, loops=1, entries=1000, heads=1)
    (doubt,) = predicted.doubts
    assert doubt.of == ("query", "key")
    least, _ = doubt.error
    for name in doubt.of:
        off, error = found[name]
        assert least - 2 * error < off < -0.1, f"{name}: {off:+.1%} +- {error:.1%}"


def test_queries_of_a_deeper_stack_or_of_more_heads_are_not_doubted():
    model = ModelSetting(
        blocks=2, width=256, ffn_width=512, heads=2, vocabulary=200, setting="xavier-normal"
    )
    assert predict("pre-ln", model)["encoder"].doubts
    for less in (replace(model, blocks=3), replace(model, heads=4), replace(model, tied=False)):
        assert not predict("pre-ln", less)["encoder"].doubts


def test_what_is_not_tied_is_not_doubted():
    model = ModelSetting(
        blocks=1, loops=2, width=256, ffn_width=512, heads=4, setting="xavier-normal", tied=False
    )
    assert not predict("pre-ln", model)["encoder"].doubts
