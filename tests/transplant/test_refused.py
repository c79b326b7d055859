"""What cannot be transplanted is refused with the reason and the place, and the model is bit for
bit as it was.
"""

import copy
import re

import pytest
import torch
from torch import Tensor, nn

import normscope
from transplant.hand_written import GPT, WIDTH, Block, ids, perturb


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f: Tensor, x: Tensor) -> Tensor:
        return f + x

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient


class FusedSum(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return torch.addcmul(x, torch.ones(()), self.mlp(self.ln_2(x)))


class OwnFunction(Block):
    """As kernels have it: what is summed in it has gradients of its own."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return _Sum.apply(self.mlp(self.ln_2(x)), x)


class Written(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        x.clamp_(-1e9, 1e9)
        return x + self.mlp(self.ln_2(x))


class Parallel(Block):
    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        return x + self.attn(normed) + self.mlp(normed)


class OwnNorm(Block):
    """The norm is computed by the block itself."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x * x.square().mean(-1, keepdim=True).add(1e-6).rsqrt() * self.gain)
        return x + self.mlp(self.ln_2(x))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = GPT(), GPT()

    def forward(self, ids: Tensor) -> Tensor:
        return self.one(ids) + self.other(ids)


def refused(model: nn.Module, placement: str, **settings: str) -> str:
    """Why; after it has been seen that nothing of the model has changed."""
    before = copy.deepcopy(model)
    with pytest.raises(normscope.UserError) as error:
        normscope.transplant(model, placement, inputs=ids(), **settings)
    assert [type(one) for one in model.modules()] == [type(one) for one in before.modules()]
    assert list(model.state_dict()) == list(before.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True)
    )
    compiled = {"_compiled_call_impl"}  # not copied
    assert [{*vars(one)} - compiled for one in model.modules()] == [
        {*vars(one)} - compiled for one in before.modules()
    ]
    assert torch.equal(model(ids()), before(ids()))
    return str(error.value)


@pytest.mark.parametrize(
    ("style", "said"),
    [
        (
            FusedSum,
            "blocks.0: 1 sums with the residual stream were seen and it has 2 sub-layers; a sum "
            "within a fused",
        ),
        (OwnFunction, "blocks.0: its sum is made within an autograd.Function"),
        (Written, "blocks.0: clamp_ writes into the residual stream"),
        (
            OwnNorm,
            "the norm with blocks.0.gain is computed within a forward that does more than that",
        ),
        (
            Parallel,
            "blocks.0.attn: .* is wired in parallel: .*use_parallel_residual=False.* the weights "
            "fit",
        ),
    ],
)
def test_a_model_that_cannot_be_followed(style: type[nn.Module], said: str) -> None:
    assert re.search(said, refused(perturb(GPT(style)), "post-ln"))


def test_several_stacks_without_a_name() -> None:
    model = Twice()
    assert "several stacks: name one of 'one.blocks', 'other.blocks'" in refused(model, "post-ln")
    assert "there is no stack 'blocks'" in refused(model, "post-ln", stack="blocks")
    normscope.transplant(model, "post-ln", inputs=ids(), stack="other.blocks")
    assert model.transplanted.stacks == ("other.blocks",)
    assert "placed" not in dict(model.one.blocks[0].named_children())


def test_a_formula_that_goes_inside_of_a_sub_layer() -> None:
    assert "applies functions within attention (output)" in refused(GPT(), "sub-ln")


def test_twice_and_not_at_all() -> None:
    model = normscope.transplant(GPT(), "post-ln", inputs=ids())
    with pytest.raises(normscope.UserError, match="transplanted already"):
        normscope.transplant(model, "pre-ln", inputs=ids())
    with pytest.raises(normscope.UserError, match="is not transplanted"):
        normscope.untransplant(GPT())
    with pytest.raises(ValueError, match="did you mean 'post-ln'"):
        normscope.transplant(GPT(), "post-lm", inputs=ids())
