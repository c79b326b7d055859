"""Encoder, Decoder and Transformer on (batch, time, width) tensors: beside torch's own modules,
beside our packed models to the last bit, and with padding of every kind."""

import copy
import pickle
from itertools import cycle, product

import pytest
import torch
from torch import Tensor

from model.test_against_torch import copy_weights, torch_decoder, torch_encoder
from normscope import Decoder, Encoder, Transformer
from normscope.model import (
    Context,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    LanguageModel,
    Layout,
    MaskedEncoder,
    ModelConfig,
    initialise,
)
from normscope.model.padded.modules import Placed
from normscope.placement import named, registered
from stacks import CLOSE, FFN_WIDTH, HEADS, WIDTH, perturbed

SIZES = {"width": WIDTH, "heads": HEADS, "ffn_width": FFN_WIDTH}
DEFINED = {
    kind: [name for name, placement in registered().items() if kind in placement.models]
    for kind in ("encoder-only", "decoder-only", "encoder-decoder")
}
BOTH = tuple(product(("pre-ln", "attn-res"), [False, True]))
HOLES = torch.tensor([[0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
"""Padding between and at the end, at the beginning, and none."""


def evaluated(module: Placed, *, unprofiled: bool = True) -> Placed:
    """A module that lets itself be looked at; where initial values matter a test profiles it."""
    module.unready = not unprofiled
    return module.eval()


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@pytest.mark.parametrize("pre", [False, True], ids=["post-ln", "pre-ln"])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_is_torchs(pre: bool, causal: bool) -> None:
    ours = perturbed(Encoder("pre-ln" if pre else "post-ln", blocks=3, **SIZES), 1)
    theirs = torch_encoder(3, pre=pre)
    copy_weights(ours.stack, theirs)
    padding = torch.arange(5) >= torch.tensor([[3], [5], [1]])
    x, y = vectors(3, 5).requires_grad_(), vectors(3, 5).requires_grad_()
    found = ours(x, padding_mask=padding, causal=causal)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected = theirs(y, mask=mask, src_key_padding_mask=padding, is_causal=causal)
    torch.testing.assert_close(found[~padding], expected[~padding], **CLOSE)
    assert (found[padding] == 0).all()
    found[~padding].square().sum().backward()
    expected[~padding].square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, **CLOSE)


@pytest.mark.parametrize("pre", [False, True], ids=["post-ln", "pre-ln"])
def test_decoder_with_cross_attention_is_torchs(pre: bool) -> None:
    ours = perturbed(
        Decoder("pre-ln" if pre else "post-ln", blocks=2, encoder_blocks=4, **SIZES), 2
    )
    theirs = torch_decoder(2, pre=pre)
    copy_weights(ours.stack, theirs)
    padding, memory_padding = (
        torch.arange(5) >= torch.tensor([[4], [5]]),
        torch.arange(3) >= torch.tensor([[3], [2]]),
    )
    x, memory = vectors(2, 5), vectors(2, 3, seed=1)
    found = ours(x, memory, padding_mask=padding, memory_padding_mask=memory_padding)
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=padding,
        memory_key_padding_mask=memory_padding,
    )
    torch.testing.assert_close(found[~padding], expected[~padding], **CLOSE)


@pytest.mark.parametrize("placement", DEFINED["encoder-only"])
def test_encoder_has_the_bits_of_the_packed_model(placement: str) -> None:
    torch.manual_seed(0)
    model = MaskedEncoder(
        EncoderConfig(placement=placement, blocks=3, positions=8, dropout=0.0, **SIZES), 20
    ).eval()
    ours = evaluated(Encoder(placement, blocks=3, activation="gelu", **SIZES))
    ours.stack.load_state_dict(model.encoder.state_dict())
    x = vectors(2, 5).float()
    packed = model.encoder(x.view(10, WIDTH), Context(layout=Layout(torch.tensor([5, 5]))))
    assert torch.equal(ours(x).view(10, WIDTH), packed)


@pytest.mark.parametrize("placement", DEFINED["decoder-only"])
def test_decoder_starts_with_the_bits_of_the_registrys_model(placement: str) -> None:
    """One seed, the same weights; and causal attention over them, the same outputs."""
    config = DecoderConfig(placement=placement, blocks=3, positions=8, dropout=0.0, **SIZES)
    model = LanguageModel(config, 20).eval()
    torch.manual_seed(7)
    initialise(model.decoder, "normal-0.02", named(placement))
    torch.manual_seed(7)
    ours = Decoder(
        placement, blocks=3, activation="gelu-tanh", initialisation="normal-0.02", **SIZES
    )
    state = model.decoder.state_dict()
    assert ours.stack.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in ours.stack.state_dict().items())
    x = vectors(2, 5).float()
    packed = model.decoder(
        x.view(10, WIDTH), Context(layout=Layout(torch.tensor([5, 5])), causal=True)
    )
    assert torch.equal(evaluated(ours)(x).view(10, WIDTH), packed)


@pytest.mark.parametrize("placement", DEFINED["encoder-decoder"])
def test_transformer_starts_with_the_bits_of_the_registrys_model(placement: str) -> None:
    config = ModelConfig(
        placement=placement, encoder_blocks=2, decoder_blocks=3, dropout=0.0, **SIZES
    )
    model = EncoderDecoder(config, 20, 20).eval()
    torch.manual_seed(7)
    for stack in (model.encoder, model.decoder):
        initialise(stack, "as-placement", named(placement))
    torch.manual_seed(7)
    ours = evaluated(Transformer(placement, encoder_blocks=2, decoder_blocks=3, **SIZES))
    expected = model.state_dict()
    stacks = {
        name: value
        for name, value in ours.state_dict().items()
        if name != "profiled" and name != "updates"
    }
    assert stacks.keys() == {name for name in expected if name.startswith(("encoder.", "decoder."))}
    assert all(torch.equal(value, expected[name]) for name, value in stacks.items())
    source, target = vectors(2, 5).float(), vectors(2, 4, seed=1).float()
    layouts = Layout(torch.tensor([5, 5])), Layout(torch.tensor([4, 4]))
    memory = model.encoder(source.view(10, WIDTH), Context(layout=layouts[0]))
    context = Context(layout=layouts[1], causal=True, memory_MD=memory, memory_layout=layouts[0])
    assert torch.equal(
        ours(source, target).view(8, WIDTH), model.decoder(target.view(8, WIDTH), context)
    )


# A mask is attention's alone: every placement meets padding with one of the two by turns, and two
# of them with both.
MASKS = dict.fromkeys([*zip(DEFINED["encoder-only"], cycle([False, True]), strict=False), *BOTH])


@pytest.mark.parametrize(("placement", "causal"), MASKS)
def test_padding_anywhere_is_as_if_it_were_not_there(placement: str, causal: bool) -> None:
    ours = evaluated(perturbed(Encoder(placement, blocks=2, **SIZES), 3))
    x = vectors(3, 5)
    hidden = x.masked_fill(HOLES[:, :, None], torch.nan)
    found = ours(hidden, padding_mask=HOLES, causal=causal)
    for row, padding in enumerate(HOLES):
        alone = ours(x[row : row + 1, ~padding], causal=causal)[0]
        torch.testing.assert_close(found[row, ~padding], alone, **CLOSE)
    assert (found[HOLES] == 0).all()


def test_no_gradient_reaches_padding_or_is_not_finite() -> None:
    ours = Transformer("post-ln", encoder_blocks=1, decoder_blocks=1, **SIZES).double()
    source, target = (vectors(3, 5, seed=seed).requires_grad_() for seed in (0, 1))
    empty = HOLES.clone()
    empty[2] = True  # a sentence without any token
    ours(
        source, target, source_padding_mask=empty, target_padding_mask=HOLES
    ).square().sum().backward()
    for x, padding in ((source, empty), (target, HOLES)):
        assert torch.isfinite(x.grad).all()
        assert (x.grad[padding] == 0).all()
        assert (x.grad[0, 0] != 0).any()
    assert all(torch.isfinite(parameter.grad).all() for parameter in ours.parameters())


def test_a_hand_built_stack_has_the_placements_weights() -> None:
    """DeepNorm's gain, (8N)^-1/4 of values, outputs and both feed-forward matrices: Wang et al.
    2022, table 1.
    """
    torch.manual_seed(0)
    wide = {"width": 256, "heads": 4, "ffn_width": 256}
    deep, post = (Encoder(name, blocks=12, **wide).stack for name in ("deepnorm", "post-ln"))
    xavier = (2 / (256 + 256)) ** 0.5
    for matrix in ("value", "output"):
        measured = getattr(deep.blocks[5].attention.f, matrix).weight.std().item()
        assert measured == pytest.approx(xavier * (8 * 12) ** -0.25, rel=0.02)
    assert deep.blocks[5].attention.f.query.weight.std().item() == pytest.approx(xavier, rel=0.02)
    assert post.blocks[5].attention.f.output.weight.std().item() == pytest.approx(xavier, rel=0.02)


def test_making_a_module_draws_its_weights_and_nothing_else() -> None:
    """What is drawn after it is the same whatever the dropout, the norm and the number of
    parameters of the norm.
    """
    draws = []
    for options in ({}, {"dropout": 0.3}, {"norm": "rms-norm"}):
        torch.manual_seed(1)
        Encoder("pre-ln", blocks=2, **SIZES, **options)
        draws.append(torch.rand(()).item())
    assert len(set(draws)) == 1


@pytest.mark.thorough
def test_compiled_as_one_graph_for_every_size_of_batch() -> None:
    torch._dynamo.reset()
    ours = evaluated(Encoder("lns", blocks=1, **SIZES))
    compiled = torch.compile(ours, backend="eager", fullgraph=True, dynamic=True)
    for sentences, longest in ((2, 5), (3, 7)):
        x = torch.randn(sentences, longest, WIDTH)
        assert torch.equal(compiled(x, causal=True), ours(x, causal=True))
    padding = torch.arange(7) >= torch.tensor([[3], [7], [1]])
    assert torch.equal(compiled(x, padding_mask=padding), ours(x, padding_mask=padding))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_copies_compute_the_same(copied) -> None:
    ours = evaluated(Encoder("residual", blocks=1, **SIZES))
    x = torch.randn(1, 3, WIDTH)
    assert torch.equal(copied(ours)(x), ours(x))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda e, x: e(x[0]), r"x must be \(batch, time, 12\)"),
        (lambda e, x: e(x, padding_mask=torch.ones(2, 5)), "attention_mask == 0"),
        (lambda e, x: e(x, padding_mask=torch.ones(2, 4).bool()), r"\(2, 5\), got \(2, 4\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call(Encoder("pre-ln", blocks=1, **SIZES), torch.randn(2, 5, WIDTH))


def test_a_memory_is_asked_for_and_refused_by_the_shape() -> None:
    x = torch.randn(2, 5, WIDTH)
    with pytest.raises(ValueError, match="pass memory"):
        Decoder("pre-ln", blocks=1, encoder_blocks=1, **SIZES)(x)
    with pytest.raises(ValueError, match="takes no memory"):
        Decoder("pre-ln", blocks=1, **SIZES)(x, x)
    with pytest.raises(ValueError, match="memory of 1"):
        Decoder("pre-ln", blocks=1, encoder_blocks=1, **SIZES)(x, x[:1])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"placement": "pre-lnn"}, "pre-ln"),
        ({"placement": "t-fixup"}, "not defined for encoder-only"),
        ({"norm": "layernorm"}, "layer-norm"),
        ({"activation": "swish"}, "gelu"),
        ({"initialisation": "xavier"}, "xavier-normal"),
        ({"dropout": 1.0}, "dropout"),
        ({"heads": 5}, "multiple of heads"),
        ({"blocks": 0}, "blocks must be at least 1"),
        ({"initialisation": "theory"}, "heads=1"),
    ],
)
def test_options_that_are_none_are_refused(options, says) -> None:
    with pytest.raises(ValueError, match=says):
        Encoder(**{"placement": "pre-ln", "blocks": 1, **SIZES, **options})


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="drop_out"):
        Encoder("pre-ln", blocks=1, drop_out=0.1, **SIZES)
