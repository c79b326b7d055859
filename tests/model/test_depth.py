"""A thousand blocks stay finite in bounded memory, and computing blocks again in the backward pass
changes nothing.
"""

import gc
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

import live
from normscope.model import Context, Layout, Stack, StackConfig
from normscope.model.initialisation import initialise
from normscope.model.profiling import profile
from normscope.placement import StackShape, named, registered
from stacks import SOURCE_LENGTHS, TARGET_LENGTHS, cotangent, perturbed, random_tokens, small_model

pytestmark = pytest.mark.sampled(one_in=12)

DEEP, TOKENS, WIDTH, HEADS = 1000, [5, 3], 64, 4
STATE_BYTES = sum(TOKENS) * WIDTH * 4
"""Of what stands between two blocks, (N, D) in float32."""
EVERY_DROPOUT = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}


def encoder(placement: str, blocks: int, config: StackConfig, width: int = WIDTH) -> Stack:
    torch.manual_seed(0)
    shape = StackShape(
        kind="encoder", width=width, ffn_width=2 * width, heads=HEADS, encoder_blocks=blocks
    )
    stack = Stack(named(placement)(shape), config)
    initialise(stack, "as-placement", named(placement))
    return stack


def kept_for_backward(
    run: Callable[[], Tensor], parameters: Iterable[nn.Parameter]
) -> tuple[Tensor, int]:
    """The result of `run`, and the bytes that its graph holds beside parameters; a storage counts
    once.
    """
    owned = {p.untyped_storage().data_ptr() for p in parameters}
    held: dict[int, Tensor] = {}  # tensors, so that no storage is freed and its address used again

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in owned:
            held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, sum(tensor.untyped_storage().nbytes() for tensor in held.values())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("placement", "again"),
    [("deepnorm", True), ("pre-ln", False), ("admin", False), ("lns", False)],
)
def test_a_thousand_blocks(placement, again):
    """Computed again once, for the memory: below, that has the same bits under every placement."""
    stack = encoder(placement, DEEP, StackConfig(activation_checkpointing=again))
    context = Context(layout=Layout(torch.tensor(TOKENS)))
    x_ND = torch.randn(sum(TOKENS), WIDTH, requires_grad=True)
    profile(stack, lambda: stack(x_ND, context))
    output, kept = kept_for_backward(lambda: stack(x_ND, context), stack.parameters())
    # One state a block; what the ends keep does not grow with depth.
    assert not again or kept <= (DEEP + 8) * STATE_BYTES

    (output * torch.randn(output.shape)).sum().backward()
    assert output.isfinite().all()
    assert 0.1 < output.detach().square().mean().sqrt() < 10
    gradients = [x_ND.grad, *(p.grad for p in stack.parameters() if p.grad is not None)]
    assert all(gradient.isfinite().all() for gradient in gradients)
    # The signal has come through from one end to the other, neither vanished nor exploded.
    assert 0.1 < x_ND.grad.norm() / sum(TOKENS) ** 0.5 < 100


@pytest.mark.parametrize("placement", ["post-ln", "pre-ln"])
def test_without_it_a_block_keeps_many_times_as_much(placement):
    context = Context(layout=Layout(torch.tensor(TOKENS)))
    per_block = {}
    for again in (False, True):
        kept = []
        for blocks in (4, 24):
            stack = encoder(placement, blocks, StackConfig(activation_checkpointing=again))
            x_ND = torch.randn(sum(TOKENS), WIDTH, requires_grad=True)
            kept.append(
                kept_for_backward(lambda s=stack, x=x_ND: s(x, context), stack.parameters())[1]
            )
        per_block[again] = (kept[1] - kept[0]) / 20
    assert per_block[True] == STATE_BYTES
    assert per_block[False] > 8 * STATE_BYTES


def test_no_dropout_mask_outlives_a_block_that_is_computed_again():
    live.begin()
    stack = encoder(
        "pre-ln", 6, StackConfig(dropout=0.3, activation_dropout=0.3, activation_checkpointing=True)
    )
    layout = Layout(torch.tensor([2, 5]))
    output = stack(torch.randn(7, WIDTH, requires_grad=True), Context(layout=layout))
    gc.collect()
    masks = [
        t for t in gc.get_objects() if type(t) is Tensor and t.dtype is torch.bool and len(t) == 7
    ]
    assert len(masks) <= 1, "that of the embedding, which stands outside of all blocks"
    assert output.requires_grad


def run_stack(
    placement: str, *, again: bool, dropouts: dict[str, float]
) -> tuple[Stack, Tensor, Tensor]:
    """A small stack after a forward and a backward pass, its output and its input's gradient."""
    stack = perturbed(
        encoder(placement, 3, StackConfig(activation_checkpointing=again, **dropouts), width=16), 1
    )
    layout = Layout(torch.tensor(SOURCE_LENGTHS))
    x_ND = torch.randn(
        layout.tokens, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    x_ND.requires_grad_()
    torch.manual_seed(3)
    output = stack(x_ND, Context(layout=layout))
    torch.rand(5)  # the backward pass finds the generator elsewhere than the forward pass did
    (output * cotangent(output.shape)).sum().backward()
    return stack, output, x_ND.grad


def run_model(
    placement: str, *, again: bool, dropouts: dict[str, float]
) -> tuple[nn.Module, Tensor]:
    """A small encoder-decoder after a forward and a backward pass, and its logits."""
    model = small_model(placement, norm="as-placement", activation_checkpointing=again, **dropouts)
    layouts = [Layout(torch.tensor(lengths)) for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)]
    source, target = random_tokens(SOURCE_LENGTHS, 1), random_tokens(TARGET_LENGTHS, 2)
    torch.manual_seed(3)
    logits = model.logits(
        model(layouts[0].pack(source), layouts[0], layouts[1].pack(target), layouts[1])
    )
    torch.rand(5)
    (logits * cotangent(logits.shape)).sum().backward()
    return model, logits


def assert_same_bits(found: nn.Module, expected: nn.Module) -> None:
    wanted = dict(expected.named_parameters())
    for name, parameter in found.named_parameters():
        gradient = wanted[name].grad
        assert (parameter.grad is None) == (gradient is None), name
        if gradient is not None:
            assert torch.equal(parameter.grad, gradient), name


def with_dropouts(names: Iterable[str]) -> list[object]:
    """Every placement with dropout, under which masks must come again too; what none of it skips no
    placement sees.
    """
    each = [pytest.param(name, EVERY_DROPOUT, id=f"{name}-dropout") for name in names]
    return each + [
        pytest.param(name, {}, id=name) for name in ("post-ln", "pre-ln", "ngpt", "attn-res", "mhc")
    ]


@pytest.mark.parametrize(
    ("placement", "dropouts"), with_dropouts(("denseformer", "mhc", "siamese-norm"))
)
def test_a_stack_computed_again_has_the_same_bits(placement, dropouts):
    expected, output, gradient = run_stack(placement, again=False, dropouts=dropouts)
    found, again_output, again_gradient = run_stack(placement, again=True, dropouts=dropouts)
    assert torch.equal(again_output, output)
    assert torch.equal(again_gradient, gradient)
    assert gradient.abs().max() > 0
    assert_same_bits(found, expected)


@pytest.mark.parametrize(("placement", "dropouts"), with_dropouts(registered()))
def test_an_encoder_decoder_computed_again_has_the_same_bits(placement, dropouts):
    expected, logits = run_model(placement, again=False, dropouts=dropouts)
    found, again_logits = run_model(placement, again=True, dropouts=dropouts)
    assert torch.equal(again_logits, logits)
    assert_same_bits(found, expected)


def test_the_switch_reaches_both_stacks():
    model = small_model("pre-ln", activation_checkpointing=True)
    assert model.encoder.activation_checkpointing
    assert model.decoder.activation_checkpointing


def test_nothing_is_kept_or_computed_again_without_gradients():
    stack = encoder("pre-ln", 2, StackConfig(activation_checkpointing=True))
    calls = []
    stack.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        output, kept = kept_for_backward(
            lambda: stack(torch.randn(8, WIDTH), Context(layout=Layout(torch.tensor(TOKENS)))),
            stack.parameters(),
        )
    assert (len(calls), kept, output.requires_grad) == (1, 0, False)
