"""Passes with numbers that have no sums or no norms of their own: whole ones, true and false,
complex ones, ones of 8 bits, and none at all.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from doctor.wired import VOCABULARY, WIDTH, Model, Stack, pre
from normscope.doctor import find_stacks
from normscope.doctor.diagnose import Diagnosis

IDS = torch.randint(4, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1))
PLACES, ROWS = torch.arange(7), torch.arange(7 * WIDTH).reshape(7, WIDTH)
COMPLEX, EIGHT_BITS = torch.complex64, torch.float8_e4m3fn

Step = Callable[[nn.Module, Tensor], Tensor]


class Before(nn.Module):
    """A step in front of a stack, with a parameter of its own."""

    def __init__(self, inner: nn.Module, step: Step, weight: Tensor | None) -> None:
        super().__init__()
        self.inner, self.step = inner, step
        if weight is not None:
            trained = weight.is_floating_point() or weight.is_complex()
            self.weight = nn.Parameter(weight, requires_grad=trained)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.step(self, x))


def one_hot(dtype: torch.dtype) -> Tensor:
    return functional.one_hot(IDS, VOCABULARY).to(dtype)


def small(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return 0.1 * torch.randn(*size, dtype=dtype, generator=torch.Generator().manual_seed(2))


def numbered(dtype: torch.dtype) -> Step:
    """What comes of the input in a dtype, with numbers of its places added."""
    return lambda of, x: x + 1e-3 * real((8 * x).to(dtype) + ROWS.to(dtype), x)


def real(z: Tensor, like: Tensor) -> Tensor:
    return (z.real if z.is_complex() else z).to(like.dtype)


BEFORE: dict[str, tuple[Step, Tensor | None]] = {
    **{
        f"places added in {dtype}": (numbered(dtype), None)
        for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool, COMPLEX)
    },
    "places of three axes": (
        lambda of, x: x + 1e-3 * (torch.stack([IDS, IDS]) + PLACES).sum(0)[..., None].to(x),
        None,
    ),
    "places counted from a mask": (
        lambda of, x: (
            x + functional.embedding((IDS != 5).cumsum(-1) + torch.zeros(2, 7).long(), of.weight)
        ),
        small(9, WIDTH),
    ),
    "a mask that joins a mask": (
        lambda of, x: x * ((IDS[..., None] >= 0) + torch.zeros(7, 1, dtype=torch.bool)),
        None,
    ),
    "whole numbers in a product": (
        lambda of, x: x + 1e-3 * (one_hot(torch.long) @ of.weight).to(x),
        torch.arange(VOCABULARY * WIDTH).reshape(VOCABULARY, WIDTH),
    ),
    "a stack of complex numbers": (
        lambda of, x: x + torch.stack([x.to(COMPLEX), x.to(COMPLEX)]).sum(0).real,
        None,
    ),
    "one complex number": (lambda of, x: (x * torch.tensor(1j)).imag, None),
    "a complex gain": (lambda of, x: (x * of.weight).real, torch.ones(WIDTH, dtype=COMPLEX)),
    "complex gates": (
        lambda of, x: x * torch.sigmoid(of.weight).real,
        torch.full((WIDTH,), 9.0, dtype=COMPLEX),
    ),
    "a complex matrix": (
        lambda of, x: x + (x.to(COMPLEX) @ of.weight).real,
        small(WIDTH, WIDTH, dtype=COMPLEX),
    ),
    "a filter of frequencies": (
        lambda of, x: x + torch.fft.irfft(torch.fft.rfft(x, dim=1) * of.weight, n=7, dim=1),
        small(4, WIDTH, dtype=COMPLEX),
    ),
    "numbers of 8 bits": (lambda of, x: x.to(EIGHT_BITS).to(x), None),
    "a product of 8 bits": (lambda of, x: (x.to(EIGHT_BITS) * x.to(EIGHT_BITS)).to(x), None),
    "one number added": (lambda of, x: x + torch.tensor(0.5), None),
    "one trained number added": (lambda of, x: x + of.weight, torch.tensor(0.1)),
    "nothing put before the tokens": (lambda of, x: torch.cat([x[:, :0], x], 1), None),
    "rows of no tokens": (
        lambda of, x: x + functional.embedding(IDS[:, :0], of.weight).sum(1, keepdim=True),
        small(VOCABULARY, WIDTH),
    ),
    "rows of no features": (
        lambda of, x: x + functional.embedding(IDS, of.weight).sum(-1, keepdim=True),
        torch.zeros(VOCABULARY, 0),
    ),
    "a division by 0": (
        lambda of, x: (
            x + 0 * torch.nan_to_num(functional.embedding(IDS, of.weight) / torch.tensor(0.0))
        ),
        small(VOCABULARY, WIDTH),
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BEFORE)
def test_what_stands_before_the_blocks_is_no_hindrance(name):
    step, weight = BEFORE[name]
    model = Model(lambda: Before(Stack(pre, pre, blocks=2, final=1), step, weight))
    found = normscope.diagnose(model, (IDS,), advise=False)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]


def test_a_square_of_8_bits_has_no_gradient_and_is_refused_in_a_line():
    def step(of: nn.Module, x: Tensor) -> Tensor:
        z = x.to(EIGHT_BITS)
        return (z * z).to(x)

    model = Model(lambda: Before(Stack(pre, pre, blocks=2, final=1), step, None))
    with pytest.raises(ValueError, match="the backward pass raised NotImplementedError") as refused:
        normscope.diagnose(model, (IDS,), advise=False)
    assert "\n" not in str(refused.value)
    model.requires_grad_(False)
    assert [stack.placement for stack in find_stacks(model, (IDS,))] == ["pre-ln"]


ROUNDED: dict[str, Step] = {
    "true and false": lambda of, x: x + (x @ of.weight > 0),
    "whole numbers": lambda of, x: x + (x @ of.weight).round().int(),
    "a stream of whole numbers": lambda of, x: (
        x + ((8 * x).long() + (8 * (x @ of.weight)).long()).to(x) / 64
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_a_branch_that_ends_in_other_numbers_gets_no_gradient(name):
    weight = small(WIDTH, WIDTH)
    model = Model(lambda: Before(Stack(pre, pre, blocks=2, final=1), ROUNDED[name], weight))
    found = normscope.diagnose(model, (IDS,), advise=False)
    assert "dead-sublayer" in [finding.id for finding in found.findings]


class Giving(nn.Module):
    """A model, and what is made of its logits."""

    def __init__(self, made_of: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model, self.made_of = Model(lambda: Stack(pre, pre, blocks=2, final=1)), made_of

    def forward(self, ids: Tensor) -> Any:
        return self.made_of(self.model(ids))


GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "numbers of 8 bits": lambda logits: logits.to(EIGHT_BITS),
    "nothing and logits": lambda logits: (torch.zeros(0, 3), logits),
    "nothing under a name": lambda logits: {"logits": logits[:, :0], "states": logits},
    "whole numbers and logits": lambda logits: [logits.argmax(-1), logits],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_beside_logits_is_no_hindrance(name):
    found = normscope.diagnose(Giving(GIVEN[name]), (IDS,), advise=False)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("made_of", "said"),
    [
        (torch.fft.fft, "returned complex numbers only"),
        (lambda logits: logits > 0, "returned integers only"),
        (lambda logits: logits[:, :0], "no tensor of two dimensions or more"),
        (lambda logits: logits[..., :0], "no tensor of two dimensions or more"),
    ],
)
def test_an_output_that_no_loss_can_be_taken_of_is_refused_in_a_line(made_of, said):
    with pytest.raises(ValueError, match=said) as refused:
        normscope.diagnose(Giving(made_of), (IDS,), advise=False)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("error")
def test_buffers_and_parameters_of_every_kind_are_no_hindrance():
    model = Model(lambda: Stack(pre, pre, blocks=2, final=1))
    for number, kind in enumerate((EIGHT_BITS, COMPLEX, torch.bool, torch.float64)):
        model.register_buffer(f"some_{number}", torch.ones(3).to(kind))
        model.register_buffer(f"none_{number}", torch.ones(0).to(kind))
    model.unused = nn.Parameter(torch.ones(3, dtype=COMPLEX))
    model.empty = nn.Parameter(torch.ones(0, WIDTH))
    found = normscope.diagnose(model, (IDS,), advise=False)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]


@pytest.mark.parametrize("shape", [(0, 7), (2, 0)])
def test_a_batch_of_nothing_is_refused_in_a_line(shape):
    model = Model(lambda: Stack(pre, pre, blocks=2, final=1))
    with pytest.raises(ValueError, match="the batch is empty") as refused:
        normscope.diagnose(model, (torch.zeros(shape, dtype=torch.long),), advise=False)
    assert "\n" not in str(refused.value)


class Attending(nn.Module):
    """Attention by a function of queries, keys and values."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.maps = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, last = self.maps
        return last(self.attend(query(x), key(x), value(x)))


def turned(x: Tensor) -> Tensor:
    """By complex numbers, as Llama's own code does."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    angles = PLACES[:, None] * 100.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones(angles.shape), angles)).flatten(-2)


def weighing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (turned(query) @ turned(key).mT / 4).softmax(-1) @ value


def masked_by_whole_numbers(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen = torch.ones(7, 7).tril().long()
    return (query @ key.mT / 4 * seen + (1 - seen) * -10000).softmax(-1) @ value


def choosing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.one_hot((query @ key.mT).argmax(-1), 7).to(value) @ value


def complex_scores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = (query.to(COMPLEX) @ key.to(COMPLEX).mH / 4).real
    return scores.softmax(-1) @ value


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("attend", [weighing, masked_by_whole_numbers, choosing, complex_scores])
def test_attention_by_such_numbers_is_looked_at(attend):
    model = Model(lambda: Stack(pre, pre, blocks=2, final=1))
    for block in model.encoder.blocks:
        block.f[0] = Attending(attend)
    found = normscope.diagnose(model, (IDS,), advise=False)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]


class Complex(nn.Module):
    """Attention of complex matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ParameterList(3 * small(WIDTH, WIDTH, dtype=COMPLEX) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, last = (x.to(COMPLEX) @ weight for weight in self.maps)
        weights = (query @ key.mH / 4).real.softmax(-1)
        return (weights.to(COMPLEX) @ value @ self.maps[3] + 0 * last).real


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("trained", [False, True])
def test_complex_matrices_in_blocks_are_looked_at_by_every_rule(trained):
    model = Model(lambda: Stack(pre, pre, blocks=3, final=1))
    for block in model.encoder.blocks:
        block.f[0] = Complex()
    if trained:
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.05 * torch.randn_like(weight)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    found = normscope.diagnose(model, (IDS,), optimizer=optimizer)
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]
    assert str(found)
    assert all(rule.reason or rule.asked for rule in found.rules)


def autoformer() -> tuple[nn.Module, dict[str, Tensor]]:
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {
        f"{side}_{what}": number
        for side in ("encoder", "decoder")
        for what, number in (("layers", 2), ("ffn_dim", 32), ("attention_heads", 2))
    }
    config = transformers.AutoformerConfig(
        prediction_length=4,
        context_length=12,
        d_model=16,
        num_time_features=1,
        lags_sequence=[1, 2, 3],
        moving_average=5,
        **sizes,
    )
    drawn = torch.Generator().manual_seed(0)
    past = {
        "past_values": torch.rand(2, 15, generator=drawn),
        "past_time_features": torch.rand(2, 15, 1, generator=drawn),
        "past_observed_mask": torch.ones(2, 15),
    }
    future = {
        "future_values": torch.rand(2, 4, generator=drawn),
        "future_time_features": torch.rand(2, 4, 1, generator=drawn),
    }
    return transformers.AutoformerModel(config), past | future


def qwen2_vl() -> tuple[nn.Module, dict[str, Tensor]]:
    transformers = pytest.importorskip("transformers")
    rotation = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    text = {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_parameters": rotation,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    config = transformers.Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=90,
        video_token_id=91,
        vision_start_token_id=92,
        vision_end_token_id=93,
    )
    ids = torch.tensor([[5, 92, 90, 90, 90, 90, 93, 6, 7, 8, 9, 10]])
    given = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(16, 96, generator=torch.Generator().manual_seed(0)),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == 90).int(),
    }
    return transformers.Qwen2VLForConditionalGeneration(config), given


def looked_at(build: Callable[[], tuple[nn.Module, dict[str, Tensor]]]) -> Diagnosis:
    torch.manual_seed(0)
    model, given = build()
    return normscope.diagnose(model, given, advise=False)


def test_autoformer_whose_decompositions_count_places_is_looked_at():
    found = looked_at(autoformer)
    assert [stack.name for stack in found.stacks][:2] == ["encoder.layers", "decoder.layers"]
    # Where hardly anything is read for sure, no norm is missed.
    assert {finding.severity for finding in found.findings} == {"info"}


def test_qwen2_vl_with_an_image_is_read_as_what_it_is():
    found = looked_at(qwen2_vl)
    assert [(stack.placement, stack.blocks) for stack in found.stacks] == [("pre-ln", 2)] * 2
    assert {one.confidence for stack in found.stacks for one in stack.sublayers} == {"sure"}
    assert found.findings == ()
