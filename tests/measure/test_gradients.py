"""Gradient norms against the plain sum of squares."""

import math

import pytest
import torch

from normscope.measure import gradient_norms
from normscope.model import Layout
from stacks import small_model


def test_every_norm_is_the_root_of_the_sum_of_squares():
    model = small_model("post-ln", embeddings="separate")
    tokens, layout = torch.tensor([4, 5, 6, 7, 8]), Layout(torch.tensor([3, 2]))
    model.logits(model(tokens, layout, tokens, layout)).square().sum().backward()
    found = gradient_norms(model)
    assert list(found) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        plain = math.sqrt(math.fsum(g * g for g in parameter.grad.flatten().tolist()))
        assert found[name] == pytest.approx(plain, rel=2**-23), name  # passed on in float32


def test_parameters_without_a_gradient_are_left_out():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    assert gradient_norms(model) == {}
    model[0](torch.ones(1, 2)).sum().backward()
    assert gradient_norms(model) == {
        "0.weight": pytest.approx(6**0.5),
        "0.bias": pytest.approx(3**0.5),
    }
    model[0].bias.grad = None
    assert list(gradient_norms(model)) == ["0.weight"]


def test_shared_parameters_are_counted_once():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False)})
    model["b"] = torch.nn.Linear(2, 2, bias=False)
    model["b"].weight = model["a"].weight
    (model["a"](torch.ones(1, 2)) + model["b"](torch.ones(1, 2))).sum().backward()
    assert gradient_norms(model) == {"a.weight": pytest.approx(4.0)}


def test_a_zero_gradient_is_reported_and_a_broken_one_too():
    model = torch.nn.Linear(2, 2)
    model.weight.grad, model.bias.grad = torch.zeros(2, 2), torch.tensor([1.0, math.nan])
    found = gradient_norms(model)
    assert found["weight"] == 0.0
    assert math.isnan(found["bias"])


def test_bfloat16_gradients():
    """A million squares of 100 added up in bfloat16 would stop growing; the norm alone is rounded
    to it.
    """
    model = torch.nn.Linear(1000, 1000, bias=False).to(torch.bfloat16)
    model.weight.grad = torch.full((1000, 1000), 100.0, dtype=torch.bfloat16)
    assert gradient_norms(model)["weight"] == pytest.approx(1e5, rel=2**-8)
