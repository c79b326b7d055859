"""What a model's own code does to the stream: it is right, outputs and gradients, or refused with
reason and place.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normscope
from transplant.hand_written import GPT, WIDTH, Block, PostBlock, by_hand, ids, perturb
from transplant.test_own import assert_same, gradients, loss_of
from transplant.test_refused import refused

pytestmark = [
    # Of a reentrant checkpoint without gradients, and of torch's compiler, which looks at all that
    # we follow.
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning"),
    pytest.mark.filterwarnings(
        "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
    ),
]


class Checkpointed(Block):
    """Something of it is computed again in the backward pass, where nothing of ours is there to
    follow it.
    """

    reentrant: ClassVar[bool] = False

    def again(self, function: Callable[..., Tensor], x: Tensor) -> Tensor:
        return checkpoint(function, x, use_reentrant=self.reentrant)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.again(self.attn, self.ln_1(x))
        return x + self.again(self.mlp, self.ln_2(x))


class CheckpointedNorm(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.again(self.ln_1, x))
        return x + self.mlp(self.again(self.ln_2, x))


class CheckpointedHalf(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.again(lambda x: self.mlp(self.ln_2(x)), x)


class CheckpointedSum(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return self.again(lambda x: x + self.mlp(self.ln_2(x)), x)


class CheckpointedInTraining(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        return (
            self.again(super(Checkpointed, self).forward, x)
            if self.training
            else super(Checkpointed, self).forward(x)
        )


class CheckpointedPost(Checkpointed):
    """F reads the stream itself."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.ln_1(x + self.again(self.attn, x))
        return self.ln_2(x + self.again(self.mlp, x))


def reentrant(style: type[Checkpointed]) -> type[Checkpointed]:
    return type(f"{style.__name__}Reentrant", (style,), {"reentrant": True})


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.flatten(0, 1).t() @ x.flatten(0, 1)


class OwnLinear(nn.Linear):
    """As kernels are written: what it has kept of the stream is seen by nobody."""

    def forward(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self.weight) + self.bias  # type: ignore[no-any-return]


def first_of_mlp(made: Callable[[], nn.Module], block: type[Block] = Block) -> type[Block]:
    def init(self: Any) -> None:
        block.__init__(self)
        self.mlp = nn.Sequential(made(), *self.mlp)

    return type(block.__name__, (block,), {"__init__": init})


class Doubling(nn.Module):
    """Writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        x[..., 1:].mul_(2)
        return x


class Early(Block):
    """Left out in training, now and then."""

    def forward(self, x: Tensor) -> Tensor:
        return x if self.training else super().forward(x)


class SkippedOutside(GPT):
    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks[1:] if self.training else self.blocks:
            x = block(x)
        return self.head(self.final(x))


class ReturnsOldToo(Block):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = x
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x)), before


class ReadsOld(Block):
    def forward(self, x: Tensor) -> Tensor:
        before = x
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x) if before.isfinite().all() else x)


class Weighed(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return torch.add(x, self.mlp(self.ln_2(x)), alpha=0.5 if self.training else 1)


class NormOfBoth(Block):
    """Its norm is of a context as well, which no placement says anything of."""

    def __init__(self) -> None:
        super().__init__()
        self.context = nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x) + self.ln_1(self.context))
        return x + self.mlp(self.ln_2(x))


class AddNorm(nn.LayerNorm):
    def forward(self, x: Tensor, f: Tensor | None = None) -> Tensor:
        return super().forward(x if f is None else x + f)


class FusedPost(Block):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = AddNorm(WIDTH), AddNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.ln_1(x, self.attn(x))
        return self.ln_2(x, self.mlp(x))


def patched() -> GPT:
    model = GPT(blocks=2)
    for block in model.blocks:
        block.forward = block.forward
    return model


def compiled(style: type[Block]) -> GPT:
    torch._dynamo.reset()
    model = GPT(style, final=style is Block, blocks=2)
    for block in model.blocks:
        block.mlp.compile(backend="eager")
    return model


ONLY_NORMED: dict[str, Callable[[], GPT]] = {
    "checkpointed": lambda: GPT(Checkpointed, blocks=2),
    "reentrant": lambda: GPT(reentrant(Checkpointed), blocks=2),
    "own function": lambda: GPT(first_of_mlp(lambda: OwnLinear(WIDTH, WIDTH)), blocks=2),
    "compiled": lambda: compiled(Block),
}


@pytest.mark.parametrize(
    ("name", "placement"),
    [(name, "peri-ln") for name in ONLY_NORMED]
    + [("reentrant", "post-ln"), ("checkpointed", "lns")],
)
def test_what_reads_the_norms_output_alone_is_right(name: str, placement: str) -> None:
    """F has what it reads in its hands, wherever and however often it computes; at other lengths
    than the proof's.
    """
    torch.manual_seed(0)
    model = perturb(
        normscope.transplant(ONLY_NORMED[name](), placement, inputs=ids()).double().train()
    )
    for tokens in (ids(), ids()[:1, :4], ids().repeat(3, 2)):
        outputs, expected = model(tokens), by_hand(model, placement, tokens)
        assert torch.equal(outputs, expected)
        assert_same(
            gradients(model, outputs.square().sum()), gradients(model, expected.square().sum())
        )


def test_what_writes_into_a_norms_output_is_right_where_that_is_no_stream() -> None:
    style = first_of_mlp(Doubling)
    model = perturb(normscope.transplant(GPT(style, blocks=2), "peri-ln", inputs=ids()))
    outputs, expected = model(ids()), by_hand(model, "peri-ln")
    assert torch.equal(outputs, expected)
    assert_same(gradients(model, loss_of(outputs)), gradients(model, loss_of(expected)))
    assert "blocks.0: a sub-layer writes into what it reads" in refused(
        GPT(style, blocks=2), "post-ln"
    )


CHECKPOINT = (
    "blocks.0: .* within torch.utils.checkpoint, or other hooks on saved tensors, inside of its "
    "forward"
)
FUNCTION = "blocks.0: .* within an autograd.Function"


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("placement", ["post-ln", "peri-ln"])
@pytest.mark.parametrize(
    ("style", "said"),
    [
        *(
            (one, CHECKPOINT)
            for one in (CheckpointedNorm, CheckpointedHalf, CheckpointedSum, CheckpointedInTraining)
        ),
        *(
            (reentrant(one), FUNCTION)
            for one in (CheckpointedNorm, CheckpointedHalf, CheckpointedSum)
        ),
        (Early, "blocks.0: it returned without any residual sum"),
        (ReturnsOldToo, "blocks.0: it returns the residual stream of before its last sum"),
        (ReadsOld, "blocks.0: it reads the residual stream of before its last sum"),
        (Weighed, "blocks.0: its sum is made with alpha"),
        (NormOfBoth, "blocks.0.ln_1: this norm is of the residual stream and of other things"),
    ],
)
def test_what_cannot_be_right_is_refused(style: type[Block], said: str, placement: str) -> None:
    assert re.search(said, refused(GPT(style, blocks=2), placement))


@pytest.mark.parametrize("placement", ["deepnorm", "reordered"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT(
            first_of_mlp(lambda: OwnLinear(WIDTH, WIDTH), PostBlock), final=False, blocks=2
        ),
        lambda: compiled(PostBlock),
    ],
)
def test_a_module_that_reads_the_stream_itself_has_it_in_its_hands(
    make: Callable[[], GPT], placement: str
) -> None:
    """Where nothing can be followed either: what it reads is what it is called with."""
    torch.manual_seed(0)
    model = normscope.transplant(make(), placement, inputs=ids(), initialise="draw")
    perturb(model.double().train())
    for tokens in (ids(), ids()[:1, :4], ids().repeat(3, 2)):
        outputs = model(tokens)
        if hasattr(model.blocks[-1].placed, "finish"):
            end, model.final = model.final, model.blocks[-1].placed.finish.norms.main
            expected, model.final = by_hand(model, placement, tokens), end
        else:
            expected = by_hand(model, placement, tokens)
        assert torch.equal(outputs, expected)
        assert_same(
            gradients(model, outputs.square().sum()), gradients(model, expected.square().sum())
        )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GPT(CheckpointedPost, final=False, blocks=2), CHECKPOINT),
        (lambda: GPT(reentrant(CheckpointedPost), final=False, blocks=2), FUNCTION),
        (lambda: GPT(FusedPost, final=False, blocks=2), "AddNorm takes more than what it norms"),
        (lambda: SkippedOutside(blocks=2), "blocks.0: a training leaves it out"),
        (patched, "Block has a forward of its own beside its class's"),
    ],
)
def test_where_f_reads_the_stream_itself_and_other_hidden_things(
    make: Callable[[], GPT], said: str
) -> None:
    assert re.search(said, refused(make(), "peri-ln"))


def test_streams_of_which_a_block_knows_nothing() -> None:
    """A block that is left out hands on fewer values of a history than the next one reads."""
    model = normscope.transplant(GPT(blocks=3), "attn-res", inputs=ids())
    x = model.blocks[0](model.table(ids()))
    with pytest.raises(normscope.UserError, match=r"blocks\.2: a block before it did not run"):
        model.blocks[2](x)
