"""Models that cannot be looked at: one clear line each."""

import pytest
import torch
from torch import Tensor, nn

from normscope import diagnose, transplant
from normscope.doctor import find_stacks
from normscope.doctor.observe.examine import examined

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Returning(nn.Module):
    def __init__(self, result: object) -> None:
        super().__init__()
        self.inner, self.result = encoder(), result

    def forward(self, x: Tensor) -> object:
        y = self.inner(x)
        return y.argmax(-1) if self.result == "integers" else self.result


def test_without_a_residual_sum():
    with pytest.raises(ValueError, match="no residual stream found"):
        find_stacks(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X)


@pytest.mark.parametrize("shape", [(0, 6), (2, 0)])
def test_an_empty_batch_is_called_so(shape: tuple[int, int]) -> None:
    model = nn.Sequential(nn.Embedding(50, 8), encoder())
    with pytest.raises(ValueError, match=r"the batch is empty, of shape .*; give one with"):
        find_stacks(model, torch.zeros(shape, dtype=torch.long))


def test_a_token_out_of_range_is_named_with_the_range() -> None:
    model = nn.Sequential(nn.Embedding(50, 8), encoder())
    said = "token 50 is out of range: the largest embedding has 50 entries, 0 to 49"
    with pytest.raises(ValueError, match=said):
        find_stacks(model, torch.tensor([[1, 50, 3]]))
    with pytest.raises(Exception, match=said):
        transplant(model, "peri-ln", inputs=torch.tensor([[1, 50, 3]]))


class Siblings(nn.Module):
    """Adds what two matrices make of one input: neither is a skip of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.some, self.others = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.some(x) + self.others(x))


def test_sums_that_are_no_stream_are_told():
    with pytest.raises(
        ValueError, match=r"1 sums of two values were seen, the last of shape \(2, 5, 8\)"
    ):
        find_stacks(Siblings(), X)
    with pytest.raises(ValueError, match="adds no two values"):
        find_stacks(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X)


def test_without_layers():
    with pytest.raises(ValueError, match="no residual stream found"):
        find_stacks(
            nn.Sequential(nn.Linear(8, 8), nn.Sequential(), nn.LayerNorm(8), nn.Linear(8, 4)), X
        )


def test_a_forward_that_raises():
    with pytest.raises(ValueError, match=r"the forward pass raised TypeError: .*missing"):
        find_stacks(encoder(), {})


def test_weights_that_are_not_finite():
    model = encoder()
    with torch.no_grad():
        model.layers[1].linear2.weight[0, 0] = torch.nan
    with pytest.raises(
        ValueError, match=r"layers\.1\.linear2\.weight has values that are not finite"
    ):
        find_stacks(model, X)


def test_the_meta_device_has_nothing_to_measure():
    with torch.device("meta"):
        model = encoder()
    with pytest.raises(ValueError, match="meta device"):
        examined(model, X)


@pytest.mark.parametrize(
    ("result", "said"), [("integers", "integers only"), (None, "no tensor, but NoneType")]
)
def test_an_output_without_floating_point_tensors(result, said):
    with pytest.raises(ValueError, match=said):
        find_stacks(Returning(result), X)


def test_inputs_whose_norm_is_nought_are_looked_at():
    """Equal entries: every branch begins with zeros, which theory foretells and no division
    needs.
    """
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    found = diagnose(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.ones(2, 5, 8)
    )
    (stack,) = found.stacks
    assert stack.placement == "pre-ln"
    assert "dead-sublayer" in {finding.id for finding in found.findings}
