"""Weights that are infinite or NaN are found by name, and the structure is told all the same."""

from math import inf, nan

import pytest
import torch
from torch import Tensor, nn

from doctor.looked import unmeasured
from normscope.doctor.diagnose import Diagnosis, diagnose
from normscope.doctor.lint.patient import Loading
from normscope.doctor.trace.forward import nonfinite_weights, read_as_zero

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def bits(model: nn.Module) -> list[Tensor]:
    return [value.clone().view(torch.int32) for value in model.state_dict().values()]


def diagnosed(model: nn.Module, **more: object) -> Diagnosis:
    before, versions = bits(model), [p._version for p in model.parameters()]
    diagnosis = diagnose(model, X, **more)
    assert all(torch.equal(*pair) for pair in zip(before, bits(model), strict=True))
    assert [p._version for p in model.parameters()] == versions
    return diagnosis


@pytest.mark.parametrize("value", [nan, inf])
def test_one_entry_is_found_by_name_and_the_structure_is_told(value):
    model = encoder()
    (stack,) = diagnose(model, X, advise=False).stacks
    model.layers[1].linear2.weight.data[3, 4] = value
    model.layers[0].norm1.bias.data[:2] = -inf
    model.layers[0].norm1.bias.data[3] = nan
    diagnosis = diagnosed(model)
    (found,) = diagnosis.findings
    assert (found.id, found.severity) == ("nonfinite-weights", "error")
    assert found.where == "layers.0.norm1.bias, layers.1.linear2.weight"
    assert found.message.startswith("4 of 136 entries of these parameters are infinite or NaN")
    assert unmeasured(*diagnosis.stacks) == unmeasured(stack)
    assert diagnosis.advice is None
    assert diagnosis.measured.gradient_norms == {}
    assert diagnosis.stacks[0].predicted is None
    # Wiring is read with 0 in their place.
    assert {rule.id for rule in diagnosis.rules if rule.asked} == {
        "nonfinite-weights",
        "unknown-wiring",
    }
    assert {rule.reason for rule in diagnosis.rules if not rule.asked} == {
        "some weights are infinite or NaN"
    }


def test_minus_infinity_alone_may_be_a_mask():
    model = encoder()
    model.mask = nn.Parameter(torch.full((4,), -inf), requires_grad=False)
    (found,) = diagnosed(model).findings
    assert (found.severity, found.where) == ("warning", "mask")
    assert "buffer" in found.fix


def test_what_a_checkpoint_lacks_is_named():
    model = encoder()
    model.layers[1].linear2.bias.data.fill_(nan)
    (found,) = diagnosed(
        model, loading=Loading(missing=("layers.1.linear2.bias",), unexpected=())
    ).findings
    assert "the checkpoint lacks layers.1.linear2.bias" in found.fix


def test_finite_weights_and_infinite_buffers_are_no_finding():
    model = encoder()
    model.register_buffer("mask", torch.full((4,), -inf))
    model.layers[0].linear1.weight.data[0, 0] = torch.finfo(torch.float32).max
    assert nonfinite_weights(model) == ()


def test_a_buffer_of_nan_is_named_and_no_other_batch_is_asked_for():
    """allenai/OLMo-core 698: scales of norms that were lost when the model was materialised."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder()
            self.register_buffer("scale", torch.tensor([1.0, nan]))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.scale.sum()

    (found,) = diagnosed(Scaled()).findings
    assert (found.id, found.severity, found.where) == ("nonfinite-weights", "error", "scale")
    assert found.message.startswith("1 of 2 entries of these buffers are infinite or NaN")
    assert "no training changes a buffer" in found.fix


def test_bits_come_back_after_an_error_too():
    model = encoder()
    weight = model.layers[0].linear1.weight.data
    weight.view(torch.int32)[0, :3] = torch.tensor(
        [0x7FC00001, 0x7F800000, 0x7FA00123]
    )  # NaN with payloads, and inf
    before = bits(model)

    def fail() -> None:
        with read_as_zero(model, nonfinite_weights(model)):
            assert not weight[0, :3].any()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(torch.equal(*pair) for pair in zip(before, bits(model), strict=True))
