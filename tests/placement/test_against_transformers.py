"""Our stacks against the layers of Hugging Face transformers in float64: every block's output, and
input gradients.

What is compared is the wiring of each layer's own `forward`; `transformers_models` says what was
made plain around it.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack, StackConfig
from normscope.placement import StackShape, named
from stacks import FFN_WIDTH, HEADS, SOURCE_LENGTHS, TARGET_LENGTHS, WIDTH, cotangent
from transformers_models import (
    BART_CROSS,
    BART_LAYER,
    BLOCKS,
    FAMILIES,
    TRANSLATION,
    Family,
    Names,
    Theirs,
    kosmos_2,
)
from transformers_newer import NEWER

pytestmark = pytest.mark.sampled(one_in=3)

EVERY = FAMILIES | NEWER


def our_stack(
    placement: str, kind: str, norm: str = "as-placement", *, both: bool = False
) -> Stack:
    """In float64. both: one of the two stacks of an encoder-decoder."""
    blocks = (
        {"encoder_blocks": BLOCKS, "decoder_blocks": BLOCKS} if both else {f"{kind}_blocks": BLOCKS}
    )
    shape = StackShape(kind=kind, width=WIDTH, ffn_width=FFN_WIDTH, heads=HEADS, **blocks)
    return Stack(named(placement)(shape), StackConfig(norm=norm)).double()


def loaded(stack: Stack, theirs: Theirs, names: Names, *, strict: bool = True) -> Stack:
    """The stack with their weights. Strictly, none of ours and none of theirs may be left over."""
    weights: dict[str, Tensor] = {}
    for b, layer in enumerate(theirs.layers):
        read = set()
        for our_name, their_name in names.items():
            path, _, third = their_name.partition("#")
            if ".placed." in our_name:
                read.add(path)
                weights[f"blocks.{b}.{our_name}"] = layer.get_parameter(path)
                continue
            module = layer.get_submodule(path)
            for leaf, values in module.named_parameters():
                read.add(f"{path}.{leaf}")
                if type(module).__name__ == "Conv1D" and leaf == "weight":
                    values = values.T
                weights[f"blocks.{b}.{our_name}.{leaf}"] = (
                    values.chunk(3)[int(third)] if third else values
                )
        assert not strict or read == {name for name, _ in layer.named_parameters()}
    if theirs.final is not None:
        weights |= {
            f"finish.norm.main.{leaf}": values for leaf, values in theirs.final.named_parameters()
        }
    weights |= theirs.extra
    stack.load_state_dict(
        {name: values.detach() for name, values in weights.items()}, strict=strict
    )
    return stack


def seen(blocks: nn.ModuleList, run: Callable[[], Tensor]) -> list[Tensor]:
    """What leaves every block, then the stack's output."""
    found: list[Tensor] = []
    hooks = [
        block.register_forward_hook(
            lambda _, __, out: found.append(out[0] if isinstance(out, tuple) else out)
        )
        for block in blocks
    ]
    output = run()
    for hook in hooks:
        hook.remove()
    return [*found, output]


def inputs(lengths: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor, Layout]:
    """The same (B, T, D) embeddings twice, the (B, T) mask of real tokens, and their layout."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), WIDTH, generator=generator, dtype=torch.float64)
    keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return (
        x.requires_grad_(),
        x.detach().clone().requires_grad_(),
        keep,
        Layout(torch.tensor(lengths)),
    )


def assert_same(found: list[Tensor], expected: list[Tensor], layout: Layout) -> None:
    """Of every block and of the output, in the packed tokens."""
    assert len(found) == len(expected) == BLOCKS + 1
    for depth, (ours, theirs) in enumerate(zip(found, expected, strict=True), 1):
        torch.testing.assert_close(
            ours,
            layout.pack(theirs),
            rtol=1e-10,
            atol=1e-10,
            msg=lambda m, d=depth: f"after block {d}: {m}",
        )


def assert_same_gradients(
    outputs: tuple[Tensor, Tensor], pairs: list[tuple[Tensor, Tensor]]
) -> None:
    for output in outputs:
        (output * cotangent(output.shape)).sum().backward()
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", EVERY.values(), ids=EVERY)
def test_one_stack(family: Family):
    theirs = family.build()
    stack = loaded(our_stack(family.placement, family.kind, family.norm), theirs, family.names)
    x, y, keep, layout = inputs(family.lengths, 1)
    context = Context(layout=layout, causal=family.kind == "decoder")
    found = seen(stack.blocks, lambda: stack(layout.pack(x), context))
    expected = seen(theirs.layers, lambda: theirs.run(y, keep))
    assert_same(found, expected, layout)
    assert_same_gradients((found[-1], layout.pack(expected[-1])), [(x, y)])


@pytest.mark.parametrize("family", EVERY.values(), ids=EVERY)
def test_another_placement_is_told_from_it(family: Family):
    theirs = family.build()
    stack = loaded(
        our_stack(family.mistaken, family.kind, family.norm), theirs, family.names, strict=False
    )
    x, y, keep, layout = inputs(family.lengths, 1)
    found = stack(layout.pack(x), Context(layout=layout, causal=family.kind == "decoder"))
    assert not torch.allclose(found, layout.pack(theirs.run(y, keep)), atol=1e-2)


@pytest.mark.parametrize(("placement", "mistaken", "build"), TRANSLATION.values(), ids=TRANSLATION)
def test_encoder_and_decoder(placement, mistaken, build):
    model = build()
    sides = [
        Theirs(layers=side.layers, run=side, final=getattr(side, "layer_norm", None))
        for side in (model.encoder, model.decoder)
    ]
    encoder = loaded(our_stack(placement, "encoder", both=True), sides[0], BART_LAYER)
    decoder = loaded(our_stack(placement, "decoder", both=True), sides[1], BART_LAYER | BART_CROSS)
    source, source_theirs, keep, layout = inputs(SOURCE_LENGTHS, 1)
    target, target_theirs, target_keep, target_layout = inputs(TARGET_LENGTHS, 2)

    memory = seen(encoder.blocks, lambda: encoder(layout.pack(source), Context(layout=layout)))
    their_memory = seen(
        sides[0].layers,
        lambda: (
            model.encoder(inputs_embeds=source_theirs, attention_mask=keep.long()).last_hidden_state
        ),
    )
    assert_same(memory, their_memory, layout)
    context = Context(layout=target_layout, causal=True, memory_MD=memory[-1], memory_layout=layout)
    found = seen(decoder.blocks, lambda: decoder(target_layout.pack(target), context))
    expected = seen(
        sides[1].layers,
        lambda: (
            model.decoder(
                inputs_embeds=target_theirs,
                attention_mask=target_keep.long(),
                encoder_hidden_states=their_memory[-1],
                encoder_attention_mask=keep.long(),
                use_cache=False,
            ).last_hidden_state
        ),
    )
    assert_same(found, expected, target_layout)
    pairs = [(source, source_theirs), (target, target_theirs)]
    assert_same_gradients((found[-1], target_layout.pack(expected[-1])), pairs)

    other = loaded(
        our_stack(mistaken, "decoder", both=True), sides[1], BART_LAYER | BART_CROSS, strict=False
    )
    assert not torch.allclose(other(target_layout.pack(target), context), found[-1], atol=1e-2)


def test_sub_ln_leaves_cross_attention_as_pre_ln_has_it():
    """Kosmos-2's text model is torchscale's decoder: no inner norm in its cross-attention."""
    theirs = kosmos_2(add_cross_attention=True)
    decoder = loaded(
        our_stack("sub-ln", "decoder", both=True), theirs, FAMILIES["kosmos-2"].names | BART_CROSS
    )
    memory, memory_theirs, keep, layout = inputs(SOURCE_LENGTHS, 1)
    target, target_theirs, target_keep, target_layout = inputs(TARGET_LENGTHS, 2)
    context = Context(
        layout=target_layout, causal=True, memory_MD=layout.pack(memory), memory_layout=layout
    )
    found = seen(decoder.blocks, lambda: decoder(target_layout.pack(target), context))
    cross = {"encoder_hidden_states": memory_theirs, "encoder_attention_mask": keep[:, None, None]}
    expected = seen(theirs.layers, lambda: theirs.run(target_theirs, target_keep, **cross))
    assert_same(found, expected, target_layout)
    pairs = [(memory, memory_theirs), (target, target_theirs)]
    assert_same_gradients((found[-1], target_layout.pack(expected[-1])), pairs)
