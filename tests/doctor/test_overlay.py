"""Predicted curves beside what models with random weights do.

Only the source's moments and, for gradients, one factor a stack are taken from the measurement: all
that comes after the source is predicted, so that curves that grow several-fold test the formula and
the weights' part in it.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from doctor.corpus import CORPUS, hugging_face
from normscope.doctor.measured import ModelMeasurements, SublayerMeasurements
from normscope.doctor.observe.examine import examined
from normscope.doctor.predict import with_predictions
from normscope.doctor.record import Stack, StackTheory
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.theory.kernels import kernel, normal_nodes
from normscope.theory.predict import ModelSetting, predict

WIDTH, TOKENS, VOCABULARY, BLOCKS = 128, 32, 500, 4
# One draw of weights at this width: its squares scatter by about a tenth, and a causal stack's
# places differ.
SQUARES, CORRELATIONS = 0.25, 0.12
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 4,
    "intermediate_size": 2 * WIDTH,
}


def ids(sequences: int = 4) -> torch.Tensor:
    return torch.randint(
        4, VOCABULARY, (sequences, TOKENS), generator=torch.Generator().manual_seed(1)
    )


def looked_at(
    model: nn.Module, inputs: Any
) -> tuple[tuple[StackTheory | None, ...], tuple[Stack, ...], ModelMeasurements]:
    stacks, measured = examined(model, inputs)
    stacks = with_predictions(stacks, measured)
    return tuple(stack.predicted for stack in stacks), stacks, measured


def of_stack(stack: Stack) -> list[SublayerMeasurements]:
    return [sublayer.measured for sublayer in stack.sublayers]


def close(
    model: nn.Module, inputs: Any, *, gradients: float, correlations: float = CORRELATIONS
) -> list[tuple[float, ...]]:
    """Compares all stacks, and returns the predicted squares."""
    predictions, stacks, _ = looked_at(model, inputs)
    for prediction, stack in zip(predictions, stacks, strict=True):
        assert prediction is not None
        assert prediction.stream_square[0] == pytest.approx(stack.source_square, rel=1e-5)
        for n, sublayer in enumerate(of_stack(stack)):
            assert prediction.stream_square[n] == pytest.approx(sublayer.stream_square, rel=SQUARES)
            assert prediction.correlation[n] == pytest.approx(
                sublayer.correlation, abs=correlations
            )
            if sublayer.gradient_norm:
                assert prediction.gradient_norm[n] == pytest.approx(
                    sublayer.gradient_norm, rel=gradients
                )
    return [prediction.stream_square for prediction in predictions]


def own(placement: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = EncoderDecoder(
        ModelConfig(
            placement=placement,
            width=WIDTH,
            ffn_width=2 * WIDTH,
            heads=4,
            encoder_blocks=BLOCKS,
            decoder_blocks=BLOCKS,
        ),
        VOCABULARY,
        VOCABULARY,
    )
    layout = Layout(torch.tensor([TOKENS]))
    return model, (ids()[0], layout, ids()[1], layout)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("placement", "growth"),
    [
        ("post-ln", 1),
        ("pre-ln", 2),
        ("deepnorm", 1),
        ("sandwich", 4),
        ("rezero", 1),
        ("peri-ln", 6),
        ("sub-ln", 6),
        ("olmo-2", 5),
        ("residual", 1),
        ("b2t", 1),
        ("hybrid-norm-width", 1.2),
        ("ngpt", 1),
        ("t-fixup", 1.1),
    ],
)
def test_our_own_encoders_and_decoders(placement, growth):
    squares = close(*own(placement), gradients=0.3)
    assert all(max(curve) / min(curve) > growth for curve in squares) or growth == 1


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("name", "suffix", "changes", "growth", "correlations"),
    [
        ("Bert", "ForMaskedLM", SIZES, 1, CORRELATIONS),
        (
            "GPT2",
            "LMHeadModel",
            {"n_embd": WIDTH, "n_layer": BLOCKS, "vocab_size": VOCABULARY, "n_head": 4},
            1.8,
            0.12,
        ),
        ("GPTNeoX", "ForCausalLM", SIZES, 8, CORRELATIONS),
        ("Llama", "ForCausalLM", SIZES, 6, CORRELATIONS),
        # A norm after causal attention: every place is normed by itself, theory norms their mean.
        ("Gemma2", "ForCausalLM", {**SIZES, "head_dim": 32, "num_key_value_heads": 2}, 1000, 0.3),
    ],
)
def test_foreign_models(name, suffix, changes, growth, correlations):
    model = hugging_face(name, suffix, **changes)()
    (curve,) = close(model, {"input_ids": ids()}, gradients=0.45, correlations=correlations)
    assert curve[-1] / curve[0] >= growth * 0.999


GPT_1 = {"n_embd": WIDTH, "n_layer": BLOCKS, "vocab_size": VOCABULARY, "n_head": 4}


def test_gradients_are_of_matrices_on_both_sides():
    """The first GPT reads embeddings of N(0, 0.02²) without a norm: there biases have eight times
    the gradient.

    Taken together with theirs, block 1 would stand out and lift the scale that theory is fitted to
    for all blocks.
    """
    model = hugging_face("OpenAIGPT", "LMHeadModel", **GPT_1)()
    (prediction,), stacks, measured = looked_at(model, {"input_ids": ids()})
    seen = of_stack(stacks[0])
    for n, sublayer in enumerate(seen):
        own = [w for w in sublayer.parameters if model.get_parameter(w).ndim == 2]
        matrices = math.hypot(*(measured.gradient_norms[name] for name in own))
        assert sublayer.gradient_norm == pytest.approx(matrices, rel=1e-9)
        assert prediction.gradient_norm[n] == pytest.approx(matrices, rel=0.1)
    everything = [
        math.hypot(*(measured.gradient_norms[name] for name in sublayer.parameters))
        for sublayer in seen
    ]
    assert everything[0] > 3 * seen[0].gradient_norm


def test_a_sublayer_with_a_frozen_matrix_is_not_compared():
    model = hugging_face("OpenAIGPT", "LMHeadModel", **GPT_1)()
    (before,), *_ = looked_at(model, {"input_ids": ids()})
    model.transformer.h[1].mlp.c_proj.weight.requires_grad_(False)
    (after,), stacks, _ = looked_at(model, {"input_ids": ids()})
    assert [norm is None for norm in after.gradient_norm] == [n == 3 for n in range(2 * BLOCKS)]
    # What is left of it is measured, but the others are fitted without it.
    assert of_stack(stacks[0])[3].gradient_norm > 0
    left = [norm for n, norm in enumerate(before.gradient_norm) if n != 3]
    assert [norm for norm in after.gradient_norm if norm is not None] == pytest.approx(
        left, rel=0.02
    )


def test_scores_that_are_not_divided_and_two_stacks_with_a_memory():
    changes = {
        "d_model": WIDTH,
        "d_kv": 32,
        "d_ff": 2 * WIDTH,
        "num_layers": BLOCKS,
        "num_heads": 4,
    }
    model = hugging_face("T5", "ForConditionalGeneration", vocab_size=VOCABULARY, **changes)()
    curves = close(model, {"input_ids": ids(), "decoder_input_ids": ids().flip(0)}, gradients=0.5)
    assert all(curve[-1] / curve[0] > 3 for curve in curves)


def torch_encoder(*, drawn_anew: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    for copy in model.layers if drawn_anew else ():
        for module in copy.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
            elif isinstance(module, nn.MultiheadAttention):
                module._reset_parameters()
    return model


def test_layers_that_are_copies_of_one_leave_the_curve():
    x = torch.randn(4, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    close(torch_encoder(drawn_anew=True), x, gradients=0.4)
    (prediction,), stacks, _ = looked_at(torch_encoder(drawn_anew=False), x)
    # F(x) of one layer is like that of the next: squares of what is alike add up faster than
    # independent ones.
    assert of_stack(stacks[0])[-1].stream_square > 1.5 * prediction.stream_square[-1]


def test_agrees_with_the_prediction_for_a_named_setting():
    """The same curve by way of `normscope predict`, which knows the initialisation by its name."""
    model, inputs = own("pre-ln")
    predictions, stacks, _ = looked_at(model, inputs)
    setting = ModelSetting(
        stack="encoder-decoder",
        blocks=BLOCKS,
        width=WIDTH,
        ffn_width=2 * WIDTH,
        heads=4,
        tokens=TOKENS,
        vocabulary=VOCABULARY,
        setting="paper",
    )
    named = predict("pre-ln", setting)
    for prediction, seen, kind in zip(predictions, stacks, ("encoder", "decoder"), strict=True):
        # The source is that of this draw and that of all draws: what is added to it is the same.
        step = 2 if kind == "encoder" else 3
        added = [q - seen.source_square for q in prediction.stream_square[::step]][1:]
        expected = [q - named[kind].q[0] for q in named[kind].q[1:BLOCKS]]
        assert added == pytest.approx(expected, rel=0.1)


def test_weights_are_read_and_activations_are_not():
    model, inputs = own("pre-ln")
    before, *_ = looked_at(model, inputs)
    with torch.no_grad():
        model.encoder.blocks[1].feed_forward.f.ffn_out.weight.mul_(3)
    (after, _), stacks, _ = looked_at(model, inputs)
    encoder = before[0]
    # The branch of the second feed-forward grows nine times; what comes before it stays.
    assert after.stream_square[:4] == pytest.approx(encoder.stream_square[:4], rel=1e-9)
    grown = after.stream_square[4] - after.stream_square[3]
    assert grown == pytest.approx(
        9 * (encoder.stream_square[4] - encoder.stream_square[3]), rel=1e-9
    )
    assert after.stream_square[4] == pytest.approx(
        of_stack(stacks[0])[4].stream_square, rel=SQUARES
    )


class Odd(nn.Module):
    """Two Pre-LN sub-layers around any function of the hidden units."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.second = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(self.function(first(nn.functional.layer_norm(x, (WIDTH,)))))
        return x


@pytest.mark.parametrize(
    ("function", "known"),
    [
        (torch.relu, True),
        (lambda z: z * (z > 0), True),
        (nn.functional.gelu, True),
        (lambda z: 0.5 * z * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))), True),
        (torch.tanh, False),
        (lambda z: torch.relu(z) ** 2, False),
        (lambda z: 1.1 * torch.relu(z), False),
    ],
)
def test_activations_are_known_by_their_values(function, known):
    x = torch.randn(4, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    (prediction,), stacks, _ = looked_at(Odd(function), x)
    assert (prediction is not None) == known
    if known:
        last = of_stack(stacks[0])[-1].stream_square
        assert prediction.stream_square[-1] == pytest.approx(last, rel=SQUARES)


def test_nothing_is_predicted_without_a_placement_or_of_gradients_of_one_place():
    class Gated(Odd):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for first, second in zip(self.first, self.second, strict=True):
                x = (
                    0.3 * x
                    + 2.0 * nn.functional.layer_norm(second(torch.relu(first(x))), (WIDTH,))
                    + 0.1 * x.abs()
                )
            return x

    class Pooled(Odd):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[:, 0]

    x = torch.randn(4, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    assert looked_at(Gated(torch.relu), x)[0] == (None,) * len(examined(Gated(torch.relu), x)[0])
    (prediction,), *_ = looked_at(Pooled(torch.relu), x)
    assert set(prediction.gradient_norm) == {None}
    (prediction,), stacks, _ = looked_at(Odd(torch.relu), x)
    measured = [sublayer.gradient_norm for sublayer in of_stack(stacks[0])]
    assert prediction.gradient_norm == pytest.approx(measured, rel=0.2)


def test_nothing_is_predicted_of_windows_or_of_convolutions_before_the_blocks():
    of_waves, *_ = looked_at(CORPUS["wav2vec2"].build(), CORPUS["wav2vec2"].inputs())
    assert of_waves == (None,)
    # The second stack's windows are the whole image; its scores are cosines, times a trained number
    # for each head.
    (small_windows, whole), stacks, _ = looked_at(
        CORPUS["swin-v2"].build(), CORPUS["swin-v2"].inputs()
    )
    assert small_windows is None
    for n, sublayer in enumerate(of_stack(stacks[1])):
        assert whole.stream_square[n] == pytest.approx(sublayer.stream_square, rel=SQUARES)


def test_geglu_is_gelu_times_an_independent_normal():
    nodes, weights = normal_nodes(60)
    gelu = torch.nn.functional.gelu(torch.tensor(nodes * 1.3)).numpy()
    found = kernel("geglu", 1.69, 0.4)
    assert found.one == pytest.approx(1.69 * float(weights @ gelu**2), rel=1e-6)
    assert found.slope_one == pytest.approx(float(weights @ gelu**2), rel=1e-6)
    assert found.two == pytest.approx(1.69 * 0.4 * kernel("gelu", 1.69, 0.4).two, rel=1e-9)
