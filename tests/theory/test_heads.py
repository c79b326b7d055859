"""Heads of keys that several queries read, rotary positions and norms on queries and keys, beside
stacks that are drawn in plain torch.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, layer_norm

from normscope.model.embedding import sinusoids
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict

MODEL = ModelSetting(
    blocks=3,
    width=128,
    ffn_width=128,
    heads=4,
    tokens=16,
    vocabulary=500,
    setting="normal-by-width",
    tied=False,
)


def normed(x):
    return layer_norm(x, x.shape[-1:])


def turned(x, base=10_000.0):
    """Su et al. 2021, eq. 34: halves of a head's features as the parts of complex numbers."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[0])[:, None, None] * base ** -(torch.arange(half) / half)
    numbers = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.cat([numbers.real, numbers.imag], -1)


def drawn(model: ModelSetting, seed: int):
    """q by depth and squared norms of the gradients of a Pre-LN stack, N(0, 1 / width)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(rows, columns, std=model.width**-0.5):
        return torch.randn(rows, columns, generator=generator) * std

    wide, tokens, heads = model.width, model.tokens, model.heads
    groups = model.key_value_heads or heads
    narrow = groups * wide // heads
    sizes = {
        "query": (wide, wide),
        "key": (wide, narrow),
        "value": (wide, narrow),
        "output": (wide, wide),
        "ffn_in": (wide, wide),
        "ffn_out": (wide, wide),
    }
    blocks = []
    for _ in range(model.blocks):
        blocks.append({name: normal(*size).requires_grad_() for name, size in sizes.items()})

    def attention(of, y):
        query, key = y @ of["query"], y @ of["key"]
        if model.query_key_norm == "whole":
            query, key = normed(query), normed(key)
        query, key = query.view(tokens, heads, -1), key.view(tokens, groups, -1)
        if model.query_key_norm == "per-head":
            query, key = normed(query), normed(key)
        if model.position_encoding == "rotary":
            query, key = turned(query), turned(key)
        value = (y @ of["value"]).view(tokens, groups, -1)
        key, value = (one.repeat_interleave(heads // groups, 1) for one in (key, value))
        logits = torch.einsum("ihc,jhc->hij", query, key) / math.sqrt(wide // heads)
        if model.stack == "decoder":
            unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            logits = logits.masked_fill(unseen, -math.inf)
        mixed = torch.einsum("hij,jhc->ihc", logits.softmax(-1), value)
        return mixed.reshape(tokens, wide) @ of["output"]

    rows = normal(model.vocabulary, wide)
    order = torch.randperm(model.vocabulary, generator=generator)
    x = rows[order[:tokens]] * math.sqrt(wide)
    if model.position_encoding == "sinusoidal":
        x = x + sinusoids(tokens, wide)
    squares = [float(x.square().mean())]
    for of in blocks:
        x = x + attention(of, normed(x))
        x = x + torch.relu(normed(x) @ of["ffn_in"]) @ of["ffn_out"]
        squares.append(float(x.detach().square().mean()))
    asked = rows if model.tied else normal(model.vocabulary, wide)
    cross_entropy(normed(x) @ asked.T, order[tokens : 2 * tokens]).backward()
    gradients = {name: [float(of[name].grad.square().sum()) for of in blocks] for name in sizes}
    return squares, gradients


def assert_as_drawn(model: ModelSetting, draws: int):
    """Within three standard errors of the draws and 2 % of q, 4 % of gradients, 8 % of those of
    queries and keys.
    """
    found = predict("pre-ln", model)[model.stack]
    every = [drawn(model, seed) for seed in range(draws)]
    q = np.array([squares for squares, _ in every])
    error = q.std(0, ddof=1) / q.mean(0) / math.sqrt(draws)
    assert np.all(np.abs(found.q / q.mean(0) - 1) < 3 * error + 0.02)
    for name, norms in found.gradient_norm.items():
        squares = np.array([gradients[name] for _, gradients in every])
        error = squares.std(0, ddof=1) / squares.mean(0) / 2 / math.sqrt(draws)
        beside = 0.08 if name in ("query", "key") else 0.04
        off = norms / np.sqrt(squares.mean(0)) - 1
        assert np.all(np.abs(off) < 3 * error + beside), f"{name}: {off} +- {error}"


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "option",
    [
        pytest.param({"key_value_heads": 1}, id="grouped"),
        pytest.param({"position_encoding": "none"}, id="no-positions"),
        pytest.param({"query_key_norm": "per-head"}, id="norms-by-head"),
        pytest.param(
            {"key_value_heads": 2, "query_key_norm": "whole", "position_encoding": "rotary"},
            id="all",
        ),
    ],
)
def test_attention_as_it_is_drawn(option, stack):
    assert_as_drawn(replace(MODEL, stack=stack, **option), 48)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_rotary_positions_tell_apart_what_keys_have_in_common(stack):
    """Eight blocks, whose tokens have more and more in common: of keys that are not turned it would
    move no weight, and queries' gradients would be 20 % smaller in the last block of an encoder.
    """
    model = replace(MODEL, blocks=8, stack=stack, position_encoding="rotary")
    assert_as_drawn(model, 30)
    plain = predict("pre-ln", replace(model, position_encoding="none"))[stack]
    turned_too = predict("pre-ln", model)[stack]
    assert plain.gradient_norm["query"][-1] < 0.88 * turned_too.gradient_norm["query"][-1]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_heads_that_read_the_same_values_bring_back_the_same(stack):
    """Under a tied projection: with the heads' parts as independent, V's gradient is 23 % too
    small.
    """
    model = replace(
        MODEL,
        blocks=1,
        width=256,
        ffn_width=256,
        heads=8,
        key_value_heads=1,
        vocabulary=1000,
        tied=True,
        stack=stack,
    )
    assert_as_drawn(model, 60)


def test_norms_on_queries_and_keys_are_those_of_the_placement_with_them():
    for norm, suffix in (("per-head", "qk-norm"), ("whole", "qk-norm-whole")):
        model = replace(MODEL, setting="normal-0.02")
        asked = predict("pre-ln", replace(model, query_key_norm=norm))["encoder"]
        named = predict(f"pre-ln+{suffix}", model)["encoder"]
        assert list(asked.gradient_norm["query"]) == list(named.gradient_norm["query"])
        plain = predict("pre-ln", model)["encoder"]
        assert asked.gradient_norm["query"][0] > 2 * plain.gradient_norm["query"][0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_value_heads": 3}, "heads=4 must be a multiple of key_value_heads=3"),
        ({"key_value_heads": 0}, "at least 1"),
        ({"position_encoding": "rotary", "width": 100, "heads": 4}, "must be even, got 25"),
        ({"position_encoding": "alibi"}, "position_encoding must be one of"),
        ({"query_key_norm": "head"}, "query_key_norm must be one of none, per-head, whole"),
    ],
)
def test_what_attention_cannot_be_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        replace(MODEL, **given)


@pytest.mark.parametrize("given", [{"key_value_heads": 1}, {"position_encoding": "rotary"}])
def test_an_update_through_such_heads_is_not_followed(given):
    with pytest.raises(Unpredictable, match="heads of keys and values of their own"):
        predict("pre-ln", replace(MODEL, **given), update=Update())
