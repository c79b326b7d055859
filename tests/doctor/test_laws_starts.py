"""What decides at the start whether a branch is shut, open, or not a block's own."""

import pytest
import torch
from torch import Tensor, nn

from doctor.test_laws_movement import BLOCKS, IDS, WIDTH, Adapted, Decoder, adapted
from normscope import diagnose
from normscope.doctor.result import Finding


def told(rule: str, model: nn.Module, inputs: object = (IDS,)) -> list[Finding]:
    found = diagnose(model, inputs, advise=False)
    return [one for one in found.findings if one.id == rule]


def with_second(size: float) -> Decoder:
    model = adapted(0.1)
    for module in model.modules():
        if isinstance(module, Adapted):
            nn.init.normal_(module.b, std=size) if size else nn.init.zeros_(module.b)
    return model


def test_adapters_whose_factors_are_both_drawn_start_open():
    (warning,) = told("adapters-open", with_second(0.1))
    assert warning.severity == "warning"
    assert f"in {BLOCKS} of {BLOCKS} adapters both factors are drawn" in warning.message
    assert told("adapters-open", with_second(0.0)) == []
    # As a training moves it.
    assert told("adapters-open", with_second(0.01)) == []


def test_one_matrix_in_all_blocks_beside_others_of_their_own():
    model = Decoder()
    for block in model.blocks[1:]:
        block.attention.o = model.blocks[0].attention.o
    (warning,) = told("shared-blocks", model)
    assert (warning.severity, warning.where) == ("warning", "blocks.0.attention.o.weight")
    assert "one matrix of blocks 1, 2, 3, 4 (of 4)" in warning.message
    assert told("shared-blocks", Decoder()) == []


def test_a_single_norm_at_0_on_the_way_of_the_whole_stream():
    model = Decoder()
    nn.init.zeros_(model.norm.weight)
    (warning,) = told("gain-start", model)
    assert (warning.severity, warning.where) == ("warning", "norm.weight")
    assert told("gain-start", Decoder()) == []


class Gated(nn.Module):
    """A gate of what each token is, on the output of attention."""

    def __init__(self, inner: nn.Module, bias: float) -> None:
        super().__init__()
        self.inner, self.gate = inner, nn.Linear(WIDTH, WIDTH)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * torch.sigmoid(self.gate(x))


def gated(bias: float) -> Decoder:
    model = Decoder()
    for block in model.blocks:
        block.attention = Gated(block.attention, bias)
    return model


@pytest.mark.parametrize("bias", [0.0, -3.0])
def test_a_gate_of_data_that_can_open_is_silent(bias):
    assert told("flat-gate", gated(bias)) == []


def test_a_gate_of_data_that_is_shut_for_every_token():
    (warning,) = told("flat-gate", gated(-12.0))
    assert warning.severity == "warning"
    assert "shut for every token" in warning.message
    assert ".gate." in warning.where


class Modulated(nn.Module):
    def __init__(self, *, zero: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.modulation = nn.Linear(WIDTH, 3 * WIDTH)
        if zero:
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(condition)[:, None].chunk(3, -1)
        return x + gate * self.down(self.up(self.norm(x) * (1 + scale) + shift).relu())


class Diffuser(nn.Module):
    def __init__(self, *, zero: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Modulated(zero=zero) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, condition)
        return self.out(x)


def test_gates_from_a_condition_that_start_open():
    inputs = torch.randn(2, 5, WIDTH), torch.randn(2, WIDTH)
    (warning,) = told("condition-gate-open", Diffuser(zero=False), inputs)
    assert warning.severity == "warning"
    assert "blocks.0.modulation.weight" in warning.where
    assert told("condition-gate-open", Diffuser(zero=True), inputs) == []


class Emptied(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return x


def test_norms_that_run_and_compute_nothing_are_told_by_name():
    model = Decoder()
    for block in model.blocks[2:]:
        block.n2 = Emptied(WIDTH)
    (warning,) = told("unused-parameters", model)
    assert warning.severity == "warning"
    assert warning.where == "blocks.2.n2, blocks.3.n2"
