"""Small float64 stacks and models beside the reference, and the comparison of outputs and of every
gradient.
"""

import torch
from torch import Tensor, nn

from normscope.model import Context, EncoderDecoder, Layout, ModelConfig, Stack, StackConfig
from normscope.placement import StackShape, named
from reference import Equations, ReferenceStack, keep_keys, leaves

WIDTH, HEADS, FFN_WIDTH = 12, 3, 20
SCHEDULED = 0.37
"""What every number that follows a schedule stands at: neither end of it."""
SOURCE_LENGTHS, TARGET_LENGTHS = [4, 7, 1], [5, 2, 6]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def perturbed(module: nn.Module, seed: int) -> nn.Module:
    """The module in float64 with every parameter moved off its initial value, so that no 0 or 1
    hides a mistake.
    """
    generator = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64
            )
        schedule(module, SCHEDULED)
    return module


def schedule(module: nn.Module, value: float) -> None:
    """Put every number that follows a schedule at this value."""
    for name, number in module.named_buffers():
        if ".schedules." in f".{name}":
            number.fill_(value)


def small_stack(
    placement: str, kind: str, blocks: int, norm: str = "layer-norm", seed: int = 0
) -> Stack:
    """An encoder-only or decoder-only stack, without cross-attention."""
    torch.manual_seed(seed)
    shape = StackShape(
        kind=kind, width=WIDTH, ffn_width=FFN_WIDTH, heads=HEADS, **{f"{kind}_blocks": blocks}
    )
    return perturbed(Stack(named(placement)(shape), StackConfig(norm=norm)), seed)


def small_model(
    placement: str, norm: str = "layer-norm", seed: int = 0, **changes: object
) -> EncoderDecoder:
    """2 encoder and 3 decoder blocks over 20 tokens."""
    torch.manual_seed(seed)
    sizes = {
        "width": WIDTH,
        "ffn_width": FFN_WIDTH,
        "heads": HEADS,
        "encoder_blocks": 2,
        "decoder_blocks": 3,
    }
    config = ModelConfig(
        **{"placement": placement, "norm": norm, "dropout": 0.0, **sizes, **changes}
    )
    return perturbed(EncoderDecoder(config, 20, 20), seed)


def random_tokens(lengths: list[int], seed: int) -> Tensor:
    """(B, T) ids in 4..19, right-padded with 1."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 20, (len(lengths), max(lengths)), generator=generator)
    return torch.where(torch.arange(max(lengths)) < torch.tensor(lengths)[:, None], tokens, 1)


def cotangent(shape: torch.Size) -> Tensor:
    """What outputs are multiplied with before the backward pass: any fixed numbers that treat no
    direction alike.
    """
    return torch.randn(shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)


def assert_same_gradients(
    module: nn.Module, weights: dict[str, Tensor], tolerance: float = 1e-10
) -> None:
    for name, parameter in module.named_parameters():
        expected = (
            torch.zeros_like(weights[name]) if weights[name].grad is None else weights[name].grad
        )
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            found, expected, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_stack_matches(
    stack: Stack, equations: Equations, *, norm: str = "layer-norm", epsilon: float = 1e-5
) -> None:
    """Output, input gradient and every parameter's gradient of a stack without cross-attention, to
    1e-10.
    """
    lengths, causal = SOURCE_LENGTHS, stack.placement.stack.kind == "decoder"
    layout = Layout(torch.tensor(lengths))
    x_BTD = torch.randn(
        3, 7, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    ours, theirs = x_BTD.clone().requires_grad_(), x_BTD.clone().requires_grad_()
    weights = leaves(stack)
    blocks, keep = stack.placement.stack.blocks, keep_keys(lengths, 7, causal=causal)
    reference = ReferenceStack(
        weights, "", blocks, HEADS, keep, norm=norm, epsilon=epsilon, scheduled=SCHEDULED
    )
    found = stack(layout.pack(ours), Context(layout=layout, causal=causal))
    expected = layout.pack(equations.length * equations.stack(theirs, reference))
    torch.testing.assert_close(found, expected, **CLOSE)
    for output in (found, expected):
        (output * cotangent(output.shape)).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, **CLOSE)
    assert_same_gradients(stack, weights)


def assert_model_matches(
    model: EncoderDecoder, equations: Equations, *, norm: str = "layer-norm", epsilon: float = 1e-5
) -> None:
    """Logits and every parameter's gradient of an encoder-decoder, embeddings included, to
    1e-10.
    """
    source, target = random_tokens(SOURCE_LENGTHS, 1), random_tokens(TARGET_LENGTHS, 2)
    layouts = [Layout(torch.tensor(lengths)) for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)]
    weights = leaves(model)
    table = weights["target_embedding.weight"]
    positions = model.target_embedding.sinusoids.table_PD.double()

    def embedded(tokens: Tensor, rows: Tensor) -> Tensor:
        return equations.rows(rows[tokens]) + positions[: tokens.shape[1]]

    either = {"norm": norm, "epsilon": epsilon, "scheduled": SCHEDULED}
    encoder_keep = keep_keys(SOURCE_LENGTHS, 7, causal=False)
    encoder = ReferenceStack(
        weights, "encoder.", model.config.encoder_blocks, HEADS, encoder_keep, **either
    )
    decoder = ReferenceStack(
        weights,
        "decoder.",
        model.config.decoder_blocks,
        HEADS,
        keep_keys(TARGET_LENGTHS, 6, causal=True),
        kinds=("attention", "cross_attention", "feed_forward"),
        memory=equations.stack(
            embedded(source, weights.get("source_embedding.weight", table)), encoder
        ),
        memory_keep=keep_keys(SOURCE_LENGTHS, 6, causal=False),
        **either,
    )
    hidden = equations.stack(embedded(target, table), decoder)
    expected = layouts[1].pack(equations.logits(hidden, table, weights))
    found = model.logits(
        model(layouts[0].pack(source), layouts[0], layouts[1].pack(target), layouts[1])
    )
    torch.testing.assert_close(found, expected, **CLOSE)
    for output in (found, expected):
        (output * cotangent(output.shape)).sum().backward()
    assert_same_gradients(model, weights)
