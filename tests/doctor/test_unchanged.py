"""Nothing of the model or of the random generators shows that it was looked at."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.doctor import find_stacks
from normscope.doctor.observe.examine import examined

WIDTH = 8
LOOKS = [find_stacks, examined]


class Untidy(nn.Module):
    """Dropout, a buffer and a parameter written in place, an attribute and a buffer replaced,
    random numbers drawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True) for _ in range(2)
        )
        self.batch = nn.BatchNorm1d(WIDTH)
        self.register_buffer("calls", torch.zeros(3))
        self.register_buffer("table", torch.zeros(2))
        self.scale = nn.Parameter(torch.ones(2))
        self.cache: object = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.calls[0] = 7
        self.scale.data.mul_(2)
        self.table = torch.ones(4)
        self.cache = x
        x.add_(0.5)
        np.random.rand()
        random.random()
        x = x + 0.01 * torch.randn_like(x)
        for layer in self.layers:
            x = layer(x)
        return functional.dropout(x, 0.1)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict(keep_vars=True).items()}


def generators() -> tuple[Tensor, str, object]:
    return torch.get_rng_state().clone(), str(np.random.get_state()), random.getstate()


@pytest.mark.parametrize("look", LOOKS)
def test_weights_buffers_gradients_modes_inputs_and_generators_are_bit_equal(look):
    torch.manual_seed(0)
    model = Untidy()
    model.layers[1].eval()
    model.layers[0].linear1.weight.requires_grad_(False)
    x = torch.randn(2, 5, WIDTH)
    model.layers[1](x).square().sum().backward()
    gradients = {
        name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
    }
    held = {name: p.grad for name, p in model.named_parameters()}
    trained = [p.requires_grad for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    tensors, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    before, given, generated = state(model), x.clone(), generators()

    look(model, x)

    assert torch.equal(x, given)
    assert state(model).keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in state(model).items())
    assert all(model.get_parameter(name) is tensor for name, tensor in tensors.items())
    assert all(model.get_buffer(name) is buffer for name, buffer in buffers.items())
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (gradients[name] is None)
        assert parameter.grad is held[name]
        assert parameter.grad is None or torch.equal(parameter.grad, gradients[name])
    assert [p.requires_grad for p in model.parameters()] == trained
    assert [module.training for module in model.modules()] == modes
    assert model.cache is None
    after = generators()
    assert torch.equal(after[0], generated[0])
    assert after[1:] == generated[1:]
    assert torch.backends.mha.get_fastpath_enabled()


def test_after_an_error_too():
    class Failing(Untidy):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise RuntimeError("stop")

    model = Failing()
    x = torch.randn(2, 5, WIDTH)
    before, given, generated = state(model), x.clone(), generators()
    with pytest.raises(ValueError, match="RuntimeError: stop"):
        find_stacks(model, x)
    assert torch.equal(x, given)
    assert all(torch.equal(value, before[name]) for name, value in state(model).items())
    assert model.training
    assert torch.equal(generators()[0], generated[0])


def test_after_an_error_in_the_loss_or_the_backward_pass_too():
    class Undifferentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            raise RuntimeError("no way back")

    model = Untidy()
    x = torch.randn(2, 5, WIDTH)
    before, given, generated = state(model), x.clone(), generators()
    for loss, message in (
        (lambda out: out["logits"], "the loss raised"),
        (Undifferentiable.apply, "no way back"),
    ):
        with pytest.raises(ValueError, match=message):
            examined(model, x, loss)
        assert torch.equal(x, given)
        assert all(torch.equal(value, before[name]) for name, value in state(model).items())
        assert all(p.grad is None for p in model.parameters())
        assert model.training
        assert model.cache is None
        assert torch.equal(generators()[0], generated[0])


def test_what_hangs_on_gradients_is_not_set_off():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    before = state(model)
    examined(model, torch.randn(2, 5, WIDTH))
    assert all(torch.equal(value, before[name]) for name, value in state(model).items())


def test_gradients_are_taken_where_the_caller_has_switched_them_off():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2)
    x = torch.randn(2, 5, WIDTH)
    expected = examined(model, x)
    with torch.no_grad():
        assert examined(model, x) == expected
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("look", LOOKS)
def test_the_model_computes_the_same_afterwards(look):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2
    ).eval()
    x = torch.randn(2, 5, WIDTH)
    before = model(x)
    look(model, x)
    assert torch.equal(model(x), before)
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


COMPILING = """
import sys

import torch
from torch import nn

import normscope


class Compiling(nn.TransformerEncoder):
    step = None

    def forward(self, x):
        if self.step is None and self.lazy:
            self.step = torch.compile(super().forward, backend="aot_eager")
        return (self.step or super().forward)(x)


for lazy in (False, True):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = Compiling(layer, 2, enable_nested_tensor=False)
    model.lazy = lazy
    taken = torch.compile
    print(repr(normscope.diagnose(model, torch.randn(2, 5, 8))), "torch._dynamo" in sys.modules)
    assert torch.compile is taken
"""


def test_the_compiler_is_imported_for_a_model_that_compiles_alone_which_is_looked_at_step_by_step():
    """Its import takes as long as torch's own."""
    said = subprocess.run(
        [sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True
    )
    assert said.stderr == ""
    plain, compiling = said.stdout.splitlines()
    assert plain.endswith(" False")
    assert compiling == plain.replace(" False", " True")
