"""The feed-forward sub-layer under each activation, by closed forms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from normscope.model import Context, Layout
from normscope.model.stack import Stack, StackConfig
from normscope.model.sublayers import FeedForward, _GatedFeedForward
from normscope.placement import StackShape, named

FORMS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),  # Hendrycks & Gimpel 2016, eq. 1
    "gelu-tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
}


def filled(sub_layer: Any) -> Any:
    """In float64, with weights and biases of size 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in sub_layer.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    return sub_layer


def made(activation: str) -> FeedForward:
    return filled(FeedForward(6, 10, 0.0, activation))


@pytest.mark.parametrize("activation", FORMS)
def test_two_matrices_with_the_activation_between(activation: str) -> None:
    sub_layer, x = made(activation), torch.randn(4, 6, dtype=torch.float64)
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[Tensor], Tensor]:
        def look(value: Tensor) -> Tensor:
            seen[name] = value.clone()  # the activation may overwrite it
            return value

        return look

    out = sub_layer(
        x,
        Context(layout=Layout(torch.tensor([4]))),
        {"hidden": keep("hidden"), "output": keep("output")},
    )
    hidden = x @ sub_layer.ffn_in.weight.T + sub_layer.ffn_in.bias
    active = torch.tensor(
        [[FORMS[activation](value) for value in row] for row in hidden.tolist()],
        dtype=torch.float64,
    )
    torch.testing.assert_close(seen["hidden"], hidden, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen["output"], active, rtol=1e-12, atol=1e-12)
    wanted = active @ sub_layer.ffn_out.weight.T + sub_layer.ffn_out.bias
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_the_two_gelus_are_two_functions() -> None:
    x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None].expand(-1, 6)
    context = Context(layout=Layout(torch.tensor([40])))
    assert (
        1e-5
        < float(
            (made("gelu")(x, context, {}) - made("gelu-tanh")(x, context, {})).abs().max().detach()
        )
        < 0.1
    )


def gated(activation: str) -> _GatedFeedForward:
    return filled(_GatedFeedForward(6, 10, 0.0, activation))


@pytest.mark.parametrize(("activation", "theirs"), [("swiglu", "silu"), ("geglu", "gelu")])
def test_a_gated_feed_forward_is_that_of_llama(activation: str, theirs: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = transformers.LlamaConfig(
        hidden_size=6, intermediate_size=10, num_attention_heads=2, hidden_act=theirs, mlp_bias=True
    )
    reference, ours = LlamaMLP(config).double(), gated(activation)
    pairs = (
        (reference.gate_proj, ours.ffn_gate),
        (reference.up_proj, ours.ffn_in),
        (reference.down_proj, ours.ffn_out),
    )
    for one, other in pairs:
        one.load_state_dict(other.state_dict())
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    context = Context(layout=Layout(torch.tensor([4])))
    made, wanted = ours(x, context, {}), reference(x)
    torch.testing.assert_close(made, wanted, rtol=1e-12, atol=1e-12)
    grown = [
        torch.autograd.grad(y.square().sum(), [x, *(pair[side].weight for pair in pairs)])
        for side, y in ((1, made), (0, wanted))
    ]
    torch.testing.assert_close(grown[0], grown[1], rtol=1e-12, atol=1e-12)


def test_where_a_formula_reaches_into_a_gated_feed_forward() -> None:
    sub_layer, x = gated("swiglu"), torch.randn(4, 6, dtype=torch.float64)
    context = Context(layout=Layout(torch.tensor([4])))
    plain = sub_layer(x, context, {}) - sub_layer.ffn_out.bias
    for place in ("hidden", "output"):
        # It is linear in what its gate multiplies, and in the product.
        twice = sub_layer(x, context, {place: lambda y: 2 * y}) - sub_layer.ffn_out.bias
        torch.testing.assert_close(twice, 2 * plain, rtol=1e-12, atol=1e-12)


def test_the_gate_is_drawn_as_the_matrix_beside_it() -> None:
    shape = StackShape(kind="encoder", width=256, ffn_width=512, heads=4, encoder_blocks=2)
    torch.manual_seed(0)
    stack = Stack(
        named("deepnorm")(shape), StackConfig(activation="geglu"), initialisation="xavier-normal"
    )
    for block in stack.blocks:
        gate, beside = block.feed_forward.f.ffn_gate, block.feed_forward.f.ffn_in
        assert gate.weight.std().item() == pytest.approx(beside.weight.std().item(), rel=0.02)
        assert not torch.equal(gate.weight, beside.weight)
        assert not gate.bias.any()
