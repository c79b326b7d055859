"""Our stacks against `torch.nn.Transformer` in float64: outputs, and gradients of all weights and
inputs.
"""

import pytest
import torch
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack
from stacks import (
    FFN_WIDTH,
    HEADS,
    SOURCE_LENGTHS,
    TARGET_LENGTHS,
    WIDTH,
    cotangent,
    perturbed,
    small_model,
    small_stack,
)

_LAYER = {"dim_feedforward": FFN_WIDTH, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}
PRE = pytest.mark.parametrize("pre", [False, True], ids=["post-ln", "pre-ln"])


def torch_encoder(blocks: int, *, pre: bool) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, norm_first=pre, **_LAYER)
    # torch's own constructor adds a final norm in Post mode too (pytorch#50086): passed by hand
    # instead.
    final = nn.LayerNorm(WIDTH, dtype=torch.float64) if pre else None
    return nn.TransformerEncoder(layer, blocks, final, enable_nested_tensor=False)


def torch_decoder(blocks: int, *, pre: bool) -> nn.TransformerDecoder:
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, norm_first=pre, **_LAYER)
    final = nn.LayerNorm(WIDTH, dtype=torch.float64) if pre else None
    return nn.TransformerDecoder(layer, blocks, final)


def in_torch_names(stack: Stack, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values under our parameter names -> under the names that torch's stack of the same sizes
    has.
    """
    kinds = stack.blocks[0].kinds
    of_attention = {"attention": "self_attn", "cross_attention": "multihead_attn"}
    found = {}
    for b in range(len(stack.blocks)):
        for last in ("weight", "bias"):
            for number, kind in enumerate(kinds, 1):
                at = f"blocks.{b}.{kind}"
                found[f"layers.{b}.norm{number}.{last}"] = values[f"{at}.norm.main.{last}"]
                if kind == "feed_forward":
                    found[f"layers.{b}.linear1.{last}"] = values[f"{at}.f.ffn_in.{last}"]
                    found[f"layers.{b}.linear2.{last}"] = values[f"{at}.f.ffn_out.{last}"]
                    continue
                packed = torch.cat(
                    [values[f"{at}.f.{m}.{last}"] for m in ("query", "key", "value")]
                )
                found[f"layers.{b}.{of_attention[kind]}.in_proj_{last}"] = packed
                found[f"layers.{b}.{of_attention[kind]}.out_proj.{last}"] = values[
                    f"{at}.f.output.{last}"
                ]
            if f"finish.norm.main.{last}" in values:
                found[f"norm.{last}"] = values[f"finish.norm.main.{last}"]
    return found


def copy_weights(stack: Stack, theirs: nn.Module) -> None:
    theirs.load_state_dict(
        in_torch_names(stack, {n: p.detach() for n, p in stack.named_parameters()})
    )


def assert_gradients(stack: Stack, theirs: nn.Module) -> None:
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    found = in_torch_names(stack, {n: p.grad for n, p in stack.named_parameters()})
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
        )


def padding(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]


def embedded(lengths: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """The same (B, T, D) inputs twice, each the leaf of a graph."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), WIDTH, generator=generator, dtype=torch.float64)
    return x.requires_grad_(), x.detach().clone().requires_grad_()


@PRE
def test_encoder(pre):
    stack = small_stack("pre-ln" if pre else "post-ln", "encoder", blocks=3)
    theirs = torch_encoder(3, pre=pre)
    copy_weights(stack, theirs)
    layout = Layout(torch.tensor(SOURCE_LENGTHS))
    x, y = embedded(SOURCE_LENGTHS, 1)
    found = stack(layout.pack(x), Context(layout=layout))
    expected = layout.pack(theirs(y, src_key_padding_mask=padding(SOURCE_LENGTHS)))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for output in (found, expected):
        (output * cotangent(output.shape)).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10)
    assert_gradients(stack, theirs)


@PRE
def test_encoder_and_decoder(pre):
    model = small_model("pre-ln" if pre else "post-ln")
    encoder, decoder = torch_encoder(2, pre=pre), torch_decoder(3, pre=pre)
    theirs = nn.Transformer(
        WIDTH,
        HEADS,
        custom_encoder=encoder,
        custom_decoder=decoder,
        batch_first=True,
        dtype=torch.float64,
    )
    copy_weights(model.encoder, encoder)
    copy_weights(model.decoder, decoder)
    source_layout, target_layout = (
        Layout(torch.tensor(SOURCE_LENGTHS)),
        Layout(torch.tensor(TARGET_LENGTHS)),
    )
    (x, x_theirs), (y, y_theirs) = embedded(SOURCE_LENGTHS, 1), embedded(TARGET_LENGTHS, 2)

    memory = model.encoder(source_layout.pack(x), Context(layout=source_layout))
    context = Context(
        layout=target_layout, causal=True, memory_MD=memory, memory_layout=source_layout
    )
    found = model.decoder(target_layout.pack(y), context)
    longest = max(TARGET_LENGTHS)
    grid = theirs(
        x_theirs,
        y_theirs,
        tgt_mask=torch.ones(longest, longest, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding(SOURCE_LENGTHS),
        tgt_key_padding_mask=padding(TARGET_LENGTHS),
        memory_key_padding_mask=padding(SOURCE_LENGTHS),
    )
    expected = target_layout.pack(grid)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for output in (found, expected):
        (output * cotangent(output.shape)).sum().backward()
    torch.testing.assert_close(x.grad, x_theirs.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(y.grad, y_theirs.grad, rtol=1e-10, atol=1e-10)
    assert_gradients(model.encoder, encoder)
    assert_gradients(model.decoder, decoder)


def test_the_comparison_tells_the_placements_apart():
    post, pre = (small_stack(name, "encoder", blocks=1) for name in ("post-ln", "pre-ln"))
    theirs = perturbed(torch_encoder(1, pre=False), 0)
    copy_weights(post, theirs)
    pre.load_state_dict(post.state_dict(), strict=False)
    layout = Layout(torch.tensor([5]))
    x, _ = embedded([5], 1)
    assert not torch.allclose(pre(x[0], Context(layout=layout)), theirs(x)[0], atol=1e-3)
