"""What hooks on a transplanted model's modules see: a sub-layer that reads the stream itself is
handed what it reads, to the last bit.
"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from transplant.hand_written import (
    GPT,
    WIDTH,
    Attention,
    PostBlock,
    by_hand,
    feed_forward,
    ids,
    perturb,
)
from transplant.test_own import assert_same, gradients, loss_of
from transplant.test_transformers import HEADS, SIZES, made, opened

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
SOUND = {
    **{key: value for key, value in SIZES.items() if key != "vocab_size"},
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
}


def heard(name: str) -> Callable[[], nn.Module]:
    config = getattr(transformers, f"{name}Config")(**SOUND)
    return lambda: getattr(transformers, f"{name}Model")(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "BERT": made("BertForMaskedLM", **SIZES),
    "wav2vec 2": heard("Wav2Vec2"),
    "HuBERT": heard("Hubert"),
    "OLMo 2": made("Olmo2ForCausalLM", **SIZES, **HEADS, pad_token_id=0),
    "OLMo 3": made("Olmo3ForCausalLM", **SIZES, **HEADS, pad_token_id=0),
    "EXAONE 4": made("Exaone4ForCausalLM", **SIZES, **HEADS),
    "BART": lambda: opened("bart")[0],
}


def opened_here(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    if name in ("wav2vec 2", "HuBERT"):
        return model, {"input_values": torch.randn(2, 400)}
    decoder = {"decoder_input_ids": ids()} if model.config.is_encoder_decoder else {}
    return model, {"input_ids": ids(), **decoder}


def seen_by(
    model: nn.Module, run: Callable[[], Any]
) -> list[tuple[str, nn.Module, Tensor, Tensor]]:
    """Of every linear layer that ran: what a hook on it sees, and its output."""
    seen: list[tuple[str, nn.Module, Tensor, Tensor]] = []

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
            seen.append((name, module, args[0] if args else next(iter(kwargs.values())), output))

        return keep

    handles = [
        one.register_forward_hook(hook(name), with_kwargs=True)
        for name, one in model.named_modules()
        if isinstance(one, nn.Linear)
    ]
    with torch.no_grad():
        run()
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("placement", ["pre-ln", "peri-ln", "lns", "mhc"])
@pytest.mark.parametrize("name", MODELS)
def test_a_hook_sees_what_its_module_reads(name: str, placement: str) -> None:
    """W · seen + b is the module's output, bit for bit, computed when the pass is over."""
    model, batch = opened_here(name)
    perturb(normscope.transplant(model, placement, inputs=batch))
    seen = seen_by(model, lambda: model(**batch))
    assert len(seen) >= 12
    apart = [
        layer
        for layer, module, x, output in seen
        if not torch.equal(functional.linear(x, module.weight, module.bias), output)
    ]
    assert apart == []


@pytest.mark.parametrize("placement", ["post-ln", "deepnorm"])
def test_what_a_hook_puts_in_the_place_of_what_is_read_is_computed_with(placement: str) -> None:
    model = perturb(normscope.transplant(GPT(PostBlock, final=False), placement, inputs=ids()))
    before = model(ids())
    model.blocks[1].mlp.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    assert not torch.equal(model(ids()), before)
    assert torch.equal(model(ids()), by_hand(model, placement))


class Wrapped(nn.Module):
    """A norm before F within one module, as many write it, on a stream that is summed outside."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.norm, self.f = nn.LayerNorm(WIDTH), f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.norm(x))


class WrappedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Wrapped(Attention()), Wrapped(feed_forward())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.one(x)
        return x + self.two(x)


class Functional(nn.Module):
    """A norm without a module in the module that reads the stream: it must be passed over there."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(functional.layer_norm(x, (WIDTH,)))


class FunctionalBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Functional(Attention()), Functional(feed_forward())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.one(x)
        return x + self.two(x)


class Keyword(nn.Module):
    """With the stream by keyword, in a tuple, and once more as what goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), feed_forward()
        self.same = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(self.same(x) + self.attn(x=x))
        return self.norm_2(x + self.mlp(input=self.same(x)))


@pytest.mark.parametrize("placement", ["post-ln", "deepnorm", "lns"])
@pytest.mark.parametrize("style", [PostBlock, WrappedBlock, FunctionalBlock, Keyword])
def test_readers_of_every_kind_compute_with_what_they_are_handed(
    style: type[nn.Module], placement: str
) -> None:
    torch.manual_seed(0)
    model = GPT(style, final=style in (WrappedBlock, FunctionalBlock))
    normscope.transplant(model, placement, inputs=ids(), initialise="draw")
    perturb(model)
    for _, module, x, output in seen_by(model, lambda: model(ids())):
        assert torch.equal(functional.linear(x, module.weight, module.bias), output)


@pytest.mark.parametrize("placement", ["post-ln", "deepnorm", "lns", "reordered"])
def test_a_model_whose_sub_layers_read_the_stream_is_what_one_writes_by_hand(
    placement: str,
) -> None:
    """From Post-LN to each of these; some norm the end, which the model did not."""
    torch.manual_seed(0)
    model = perturb(normscope.transplant(GPT(PostBlock, final=False), placement, inputs=ids()))
    ours = model(ids())
    if hasattr(model.blocks[-1].placed, "finish"):
        model.final = model.blocks[-1].placed.finish.norms.main
    assert torch.equal(ours, by_hand(model, placement))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_hand_on_too_and_untransplant_takes_it_back(way: Callable[..., nn.Module]) -> None:
    model = GPT(PostBlock, final=False)
    before = [(type(one), sorted(vars(one))) for one in model.modules()]
    perturb(normscope.transplant(model, "lns", inputs=ids()))
    other = way(model)
    assert torch.equal(other(ids()), model(ids()))
    assert_same(gradients(other, loss_of(other(ids()))), gradients(model, loss_of(model(ids()))))
    for _, module, x, output in seen_by(other, lambda: other(ids())):
        assert torch.equal(functional.linear(x, module.weight, module.bias), output)
    assert other.transplanted.readers == tuple(
        f"blocks.{n}.{part}" for n in range(3) for part in ("attn", "mlp")
    )
    normscope.untransplant(other)
    assert [(type(one), sorted(vars(one))) for one in other.modules()] == before
    # A module that is no longer in a block of a transplant computes as ever.
    x = torch.randn(2, 5, WIDTH)
    assert torch.equal(model.blocks[0].mlp(x), other.blocks[0].mlp(x))


def test_modules_in_which_a_sum_is_made_are_called_with_what_stands_for_the_stream() -> None:
    """As the manual says: BERT's attention with its sum, whose parts see what they read."""
    model, batch = opened_here("BERT")
    normscope.transplant(model, "pre-ln", inputs=batch)
    layer = model.bert.encoder.layer[0]
    assert "bert.encoder.layer.0.attention.self" in model.transplanted.readers
    seen: dict[str, tuple[Tensor, ...]] = {}
    for name in ("attention", "attention.output", "output", "attention.self"):
        layer.get_submodule(name).register_forward_pre_hook(
            lambda module, args, name=name: seen.update({name: args})
        )
    model(**batch)
    # At the first sum that is the block's own input, and F's output alone from there on.
    assert torch.equal(seen["attention.output"][1], seen["attention"][0])
    assert not torch.equal(seen["attention.self"][0], seen["attention"][0])
    output = layer.attention.output
    assert torch.equal(seen["output"][1], output.dropout(output.dense(seen["attention.output"][0])))
