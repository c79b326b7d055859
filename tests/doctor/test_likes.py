"""Likes beside likes: what is odd is named with block and factor, and laws of depth are left
alone.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from doctor.wired import WIDTH, Model, Stack, patient, post, pre
from normscope.doctor.lint.checks.likes import uneven_blocks
from normscope.doctor.lint.likes import odd_ones, repeated
from normscope.doctor.lint.patient import Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.predict import with_predictions
from normscope.doctor.result import Severity
from normscope.model import EncoderDecoder, Layout, ModelConfig

sizes = st.floats(1e-6, 1e6)


@given(
    usual=sizes,
    count=st.integers(3, 12),
    at=st.integers(0, 11),
    factor=st.sampled_from([0.0, 0.01, 0.5, 2.0, 100.0]),
)
def test_one_that_is_unlike_equal_likes_is_found_alone(usual, count, at, factor):
    values = [usual] * count
    values[at % count] *= factor
    (found,) = odd_ones([str(n) for n in range(count)], values, apart=1.5)
    assert (found.name, found.block, found.likes) == (str(at % count), at % count + 1, count)
    assert found.value == pytest.approx(factor * found.usual)


@given(
    first=sizes,
    exponent=st.sampled_from([-1.0, -0.5, 0.5, 1.0]),
    count=st.integers(3, 60),
    at=st.just(0),
)
def test_a_law_of_depth_is_no_fault(first, exponent, count, at):
    """1/√l (LayerNorm Scaling), l^(-1/2) initial weights (DS-Init), and their like."""
    assert (
        odd_ones(["x"] * count, [first * (n + 1) ** exponent for n in range(count)], apart=1.5)
        == []
    )


@given(values=st.lists(sizes, max_size=2))
def test_of_two_nobody_says_which_is_odd(values):
    assert odd_ones(["x"] * len(values), values, apart=1.5) == []


def test_draws_of_one_scheme_are_alike():
    torch.manual_seed(0)
    drawn = [float(torch.randn(8).square().mean().sqrt()) for _ in range(4)]
    assert odd_ones(["x"] * 4, [0.02 * math.sqrt(n / 8) for n in (8, 8, 8, 8)], apart=1.5) == []
    assert (
        max(drawn) / min(drawn) > 1
    )  # that small a vector strays, and 1.5 times is what a fault must exceed


def test_likes_differ_in_the_number_of_their_block_alone():
    shapes = {
        f"blocks.{block}.mlp.{place}.weight": torch.ones(2, 3)
        for block in (0, 1, 10, 2)
        for place in (0, 2)
    }
    shapes |= {
        "blocks.0.gate": torch.ones(1),
        "head.weight": torch.ones(2, 3),
        "blocks.1.wide": torch.ones(4),
    }
    assert [list(group) for group in repeated(shapes)] == [
        [f"blocks.{block}.mlp.{place}.weight" for block in (0, 1, 2, 10)] for place in (0, 2)
    ]


def test_biases_of_matrices_with_other_inputs_are_no_likes():
    """The first of a predictor's convolutions reads a wider stream, by which torch draws its bias,
    too.
    """
    convolutions = nn.ModuleList(nn.Conv1d(inputs, 4, 3) for inputs in (96, 4, 4, 4, 4))
    for model, path in ((convolutions, ""), (nn.ModuleDict({"net": convolutions}), "net.")):
        groups = [list(group) for group in repeated(dict(model.named_parameters()))]
        assert groups == [
            [f"{path}{block}.{what}" for block in range(1, 5)] for what in ("weight", "bias")
        ]


class Macaron(nn.Module):
    """A layer with a feed-forward at half its size on either side of a whole one, as a Conformer
    has a convolution.
    """

    def __init__(self, half=0.5):
        super().__init__()
        self.before, self.whole, self.after = (
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH)
            )
            for _ in range(3)
        )
        self.half = half

    def forward(self, x):
        x = x + self.half * self.before(x)
        x = x + self.whole(x)
        return x + self.half * self.after(x)


def macarons(*halves):
    return Model(lambda: nn.Sequential(*(Macaron(half) for half in halves), nn.LayerNorm(WIDTH)))


def test_sublayers_at_another_place_of_each_layer_are_no_likes():
    assert list(uneven_blocks.check(patient(macarons(0.5, 0.5, 0.5, 0.5)))) == []
    found = list(uneven_blocks.check(patient(macarons(0.5, 0.5, 2.0, 0.5))))
    assert {one.where for one in found} >= {"encoder.2.before", "encoder.2.after"}


def multiplied(weight: str, factor: float, join=pre):
    """Five blocks, of which one weight is multiplied."""
    model = Model(lambda: Stack(join, join, blocks=5, final=1))
    with torch.no_grad():
        model.get_parameter(weight).mul_(factor)
    return model


@pytest.mark.sampled(one_in=7)
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize(
    "weight", ["f.0.value.weight", "f.0.last.weight", "f.1.0.weight", "norms.1.weight"]
)
def test_a_weight_of_one_block_is_named_with_its_factor(weight, factor, block):
    name = f"encoder.blocks.{block}.{weight}"
    found = list(uneven_blocks.check(patient(multiplied(name, factor))))
    assert [(one.where, one.severity) for one in found] == [(name, Severity.WARNING)]
    assert f"block {block + 1} of 5" in found[0].message
    assert f"times as {'large' if factor > 1 else 'small'}" in found[0].message


@pytest.mark.parametrize("join", [pre, post])
def test_blocks_of_one_scheme_are_left_alone(join):
    assert list(uneven_blocks.check(patient(multiplied("embedding.weight", 3.0, join)))) == []


def test_a_factor_in_one_block_is_named():
    def twice(x, f, norm):
        return 2 * x + f(norm(x))

    stack = Stack(pre, pre, blocks=4, final=1)
    stack.blocks[2].joins[0] = twice
    (found, *_) = uneven_blocks.check(patient(Model(lambda: stack)))
    assert "block 3: the skip of" in found.message
    assert "is multiplied by 2, in most of the 4 blocks by 1" in found.message


class Louder(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x * 40)


@pytest.mark.parametrize(("size", "named"), [(1.0, True), (1e-12, False)])
def test_an_output_of_one_block_is_named_where_its_weights_are_as_the_others(size, named):
    """Unless all of them are next to nothing, as in models that wait for a checkpoint with weights
    of 1e-10.
    """
    stack = Stack(pre, pre, blocks=4, final=1)
    with torch.no_grad():
        for block in stack.blocks:
            block.f[1][-1].weight.mul_(size)
            block.f[1][-1].bias.zero_()
    stack.blocks[1].f[1] = Louder(stack.blocks[1].f[1])
    found = list(uneven_blocks.check(patient(Model(lambda: stack))))
    assert (
        any("block 2" in one.message and "adds to the stream" in one.message for one in found)
        == named
    )


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    "placement",
    ["depth-scaled", "keel-pre-first", "siamese-norm-hybrid", "x0-residual", "deepnorm"],
)
def test_factors_that_a_placement_gives_one_block_are_left_alone(placement):
    torch.manual_seed(0)
    sizes = {"width": 32, "ffn_width": 48, "heads": 2, "encoder_blocks": 4, "decoder_blocks": 4}
    model = EncoderDecoder(ModelConfig(placement=placement, **sizes), 20, 20)
    layouts = [Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
    source, target = (torch.randint(4, 20, (layout.tokens,)) for layout in layouts)
    stacks, observed = examined(model, (source, layouts[0], target, layouts[1]))
    found = Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)
    assert list(uneven_blocks.check(found)) == []


@pytest.mark.parametrize(("measured", "named"), [(1.0, False), (30.0, True)])
def test_gradients_that_are_alike_are_not_named_where_theory_is_odd(measured, named):
    """LongT5's first attention, of which theory says a twelfth of what is measured in all four
    blocks.
    """
    looked = patient(multiplied("embedding.weight", 1.0))
    (stack,) = with_predictions(looked.stacks, looked.observed)
    first, *others = stack.sublayers
    seen = replace(first.measured, gradient_norm=first.measured.gradient_norm * measured)
    theory = [
        norm / (1 if place or named else 30)
        for place, norm in enumerate(stack.predicted.gradient_norm)
    ]
    stack = replace(
        stack,
        sublayers=(replace(first, measured=seen), *others),
        predicted=replace(stack.predicted, gradient_norm=tuple(theory)),
    )
    found = list(uneven_blocks.check(replace(looked, stacks=(stack,))))
    assert bool(found) == named
