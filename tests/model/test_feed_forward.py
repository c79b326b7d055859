"""The feed-forward sub-layer under each activation, by closed forms."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from normscope.model import Context, Layout
from normscope.model.feed_forward import FeedForward

FORMS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),  # Hendrycks & Gimpel 2016, eq. 1
    "gelu-tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def made(activation: str) -> FeedForward:
    torch.manual_seed(0)
    sub_layer = FeedForward(6, 10, 0.0, activation).double()
    with torch.no_grad():
        for parameter in sub_layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    return sub_layer


@pytest.mark.parametrize("activation", FORMS)
def test_two_matrices_with_the_activation_between(activation: str) -> None:
    sub_layer, x = made(activation), torch.randn(4, 6, dtype=torch.float64)
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[Tensor], Tensor]:
        def look(value: Tensor) -> Tensor:
            seen[name] = value.clone()  # the activation may overwrite it
            return value

        return look

    out = sub_layer(x, Context(layout=Layout(torch.tensor([4]))), {"hidden": keep("hidden"), "output": keep("output")})
    hidden = x @ sub_layer.ffn_in.weight.T + sub_layer.ffn_in.bias
    active = torch.tensor([[FORMS[activation](value) for value in row] for row in hidden.tolist()], dtype=torch.float64)
    torch.testing.assert_close(seen["hidden"], hidden, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen["output"], active, rtol=1e-12, atol=1e-12)
    wanted = active @ sub_layer.ffn_out.weight.T + sub_layer.ffn_out.bias
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_the_two_gelus_are_two_functions() -> None:
    x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None].expand(-1, 6)
    context = Context(layout=Layout(torch.tensor([40])))
    assert 1e-5 < float((made("gelu")(x, context, {}) - made("gelu-tanh")(x, context, {})).abs().max().detach()) < 0.1
