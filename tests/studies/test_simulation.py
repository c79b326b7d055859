"""Stacks as drawn: their moments and gradients against plain autograd, and draws that come
again.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from normscope.model import Context, Layout
from normscope.theory.predict import ModelSetting
from normscope_studies.theory.simulation import SEQUENCES, Simulation, drawn, square_encoder

ENCODER = ModelSetting(blocks=2, width=16, ffn_width=24, tokens=5, vocabulary=30)
PAIR = ModelSetting(
    stack="encoder-decoder",
    blocks=2,
    width=16,
    ffn_width=24,
    heads=2,
    tokens=5,
    vocabulary=30,
    setting="paper",
)


@pytest.mark.parametrize(
    ("placement", "model"), [("post-ln", ENCODER), ("pre-ln", PAIR), ("admin", ENCODER)]
)
def test_squares_are_those_of_the_weights_own_gradients(placement, model, monkeypatch):
    """One backward pass a sequence, with weights that take gradients, against the products that
    draw() sums.
    """
    simulation = Simulation(placement, model)
    expected: dict[str, dict[str, list[float]]] = {kind: {} for kind in simulation.stacks}
    cross_entropy = torch.nn.functional.cross_entropy

    def by_sequence(logits, targets, reduction):
        linears = {
            (kind, ("cross_" if s.site.kind == "cross_attention" else "") + name, at): linear
            for kind, stack in simulation.stacks.items()
            for at, s in enumerate(stack.sublayers())
            for name, linear in s.f.matrices()
        }
        losses = (
            cross_entropy(logits, targets, reduction="none").view(SEQUENCES, -1).sum(1)
            / model.tokens
        )
        weights = [linear.weight for linear in linears.values()]
        squares = np.zeros(len(weights))
        for loss in losses:
            gradients = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            squares += [
                0.0 if g is None else float(g.double().square().sum()) / SEQUENCES
                for g in gradients
            ]
        for (kind, name, _), square in zip(linears, squares, strict=True):
            expected[kind].setdefault(name, []).append(square)
        for _, recorded in simulation.found.values():
            recorded.clear()  # what these passes left there
        return cross_entropy(logits, targets, reduction=reduction)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", by_sequence)
    simulation.modules.requires_grad_(True)
    drawn = simulation.draw(3)
    assert drawn.keys() == expected.keys()
    for kind, stack in drawn.items():
        for name, squares in expected[kind].items():
            if name in ("query", "key") and not any(squares):
                continue  # W_Q = W_K = 0: the softmax is flat, and so is its gradient
            np.testing.assert_allclose(
                stack.squares[name], squares, rtol=2e-3, atol=1e-9, err_msg=f"{kind} {name}"
            )


def test_moments_by_hand():
    simulation = Simulation("rezero", ENCODER)
    seen = []
    simulation.stacks["encoder"].blocks[0].register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].detach())
    )
    drawn = simulation.draw(1)["encoder"]
    x_BTD = seen[-1].double().view(SEQUENCES, ENCODER.tokens, ENCODER.width)
    q = float(x_BTD.square().sum(-1).mean()) / ENCODER.width
    pairs = [
        float(a @ b)
        for x_TD in x_BTD
        for i, a in enumerate(x_TD)
        for j, b in enumerate(x_TD)
        if i != j
    ]
    assert drawn.q == pytest.approx([q] * 3, rel=1e-5)
    assert drawn.p == pytest.approx([np.mean(pairs) / ENCODER.width] * 3, abs=1e-6)
    assert all(not square.any() for square in drawn.squares.values())


def test_a_draw_comes_again_and_draws_differ():
    simulation = Simulation("pre-ln", ENCODER)
    first, second, again = (simulation.draw(seed)["encoder"] for seed in (1, 2, 1))
    np.testing.assert_array_equal(first.q, again.q)
    for name, square in first.squares.items():
        np.testing.assert_array_equal(square, again.squares[name])
    assert not np.array_equal(first.q, second.q)


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="unknown placement"):
        Simulation("prelm", ENCODER)
    with pytest.raises(ValueError, match="not defined for encoder-only"):
        Simulation("t-fixup", ENCODER)


def test_the_activation_of_the_setting_is_the_one_that_is_drawn():
    relu, gelu, swiglu = (
        Simulation("pre-ln", replace(ENCODER, activation=name)).draw(1)["encoder"]
        for name in ("relu", "gelu", "swiglu")
    )
    assert "ffn_gate" in swiglu.squares
    # Of what ReLU lets through as half of the square, GELU lets through less.
    assert gelu.q[-1] < 0.99 * relu.q[-1]


@pytest.mark.parametrize(
    "asked",
    [
        {"position_encoding": "rotary"},
        {"query_key_norm": "per-head"},
        {"dropout": 0.1},
        {"label_smoothing": 0.1},
    ],
)
def test_a_setting_that_would_be_drawn_as_another_is_refused(asked):
    (name,) = asked
    with pytest.raises(ValueError, match=name):
        Simulation("pre-ln", replace(ENCODER, heads=2, **asked))


@pytest.mark.parametrize("placement", ["post-ln", "pre-ln"])
def test_attention_of_the_theory_s_setting_is_a_plain_mean(placement):
    """Section 3.3 of the paper: with W_Q = W_K = 0 and one head it is (1/n) Σ_j x_j W_V at every
    position.
    """
    stack = drawn(placement, square_encoder(2, 32), "theory", 1)
    seen = []
    for block in stack.blocks:
        next(block.sublayers()).f.register_forward_hook(
            lambda f, given, output: seen.append((f, given[0], output))
        )
    for tokens in (1, 7):
        with torch.no_grad():
            stack(torch.randn(tokens, 32), Context(layout=Layout(torch.tensor([tokens]))))
    assert [len(x_TD) for _, x_TD, _ in seen] == [1, 1, 7, 7]
    for attention, x_TD, output_TD in seen:
        expected_TD = (x_TD.mean(0) @ attention.value.weight.detach().T).expand(len(x_TD), -1)
        assert float(expected_TD.norm()) > 1
        torch.testing.assert_close(output_TD, expected_TD)
