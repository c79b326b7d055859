"""The encoder-decoder: refusals, positions, and what padding, other sentences and later tokens must
not change.
"""

import math
import shutil

import pytest
import torch
from hypothesis import given, strategies as st

import forked
from compiled import model_by_aot_eager, stack_by_inductor
from normscope.model import EncoderDecoder, Layout, ModelConfig, Stack, StackConfig
from normscope.model.embedding import Embedding
from normscope.model.linear import Dropout
from normscope.model.sublayers import Attention
from normscope.placement import Site, StackShape, named, registered
from stacks import SOURCE_LENGTHS, TARGET_LENGTHS, random_tokens, small_model
from tiny import finish

EXACT = {"rtol": 1e-12, "atol": 1e-12}


PLACEMENT = named("pre-ln")(StackShape(kind="encoder", width=8, encoder_blocks=1))


class TestSizes:
    def test_the_defaults_are_the_papers(self):
        config = ModelConfig()
        sizes = (
            config.width,
            config.ffn_width,
            config.heads,
            config.encoder_blocks,
            config.decoder_blocks,
        )
        assert sizes == (512, 1024, 4, 6, 6)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"placement": "middle-ln"}, "unknown placement 'middle-ln'; did you mean "),
            ({"width": 0}, "width must be at least 1, got 0"),
            ({"heads": -1}, "heads must be at least 1, got -1"),
            ({"ffn_width": 0}, "ffn_width must be at least 1, got 0"),
            ({"encoder_blocks": 0}, "encoder_blocks must be at least 1, got 0"),
            ({"decoder_blocks": 0}, "decoder_blocks must be at least 1, got 0"),
            ({"width": 30, "heads": 4}, "width=30 must be even and a multiple of heads=4"),
            ({"width": 33, "heads": 3}, "width=33 must be even and a multiple of heads=3"),
            ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
            ({"attention_dropout": -0.1}, r"attention_dropout must lie in \[0, 1\), got -0.1"),
            ({"activation_dropout": math.nan}, r"activation_dropout must lie in \[0, 1\), got nan"),
            (
                {"norm": "batch-norm"},
                "norm must be one of as-placement, layer-norm, .*, sphere-norm, dyt, derf, got "
                "'batch-norm'",
            ),
            (
                {"initialisation": "he"},
                "initialisation must be one of as-placement, paper, .*, got 'he'",
            ),
            ({"initialisation": "theory"}, "theory is stated for heads = 1 and ffn_width = width"),
        ],
    )
    def test_what_cannot_be_built(self, changes, message):
        with pytest.raises(ValueError, match=message):
            ModelConfig(**changes)

    def test_shared_embeddings_need_one_vocabulary(self):
        sizes = {"width": 8, "ffn_width": 8, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 1}
        with pytest.raises(
            ValueError, match="source has 20 entries and the target 30; prepare a joint vocabulary"
        ):
            EncoderDecoder(ModelConfig(**sizes), 20, 30)
        model = EncoderDecoder(ModelConfig(**sizes, embeddings="separate"), 20, 30)
        assert model.logits(torch.zeros(2, 8)).shape == (2, 30)
        assert model.source_embedding.weight.shape == (20, 8)

    def test_modules_refuse_for_themselves(self):
        with pytest.raises(ValueError, match="width=10 must be a multiple of heads=4"):
            Attention(
                Site(kind="attention", block=1, stack=StackShape(kind="encoder", width=10, heads=4))
            )
        with pytest.raises(ValueError, match="even width of at least 4, got width=2"):
            Embedding(10, 2, PLACEMENT)
        with pytest.raises(ValueError, match=r"rate lies in \[0, 1\), got 1.5"):
            Dropout(1.5)


class TestPositions:
    def test_sinusoids_by_their_formula(self):
        table = Embedding(5, 8, PLACEMENT).sinusoids.table_PD
        for position in range(200):
            for i in range(4):
                angle = (position + 2) / 10000 ** (
                    i / 3
                )  # counted from 2 at the first token, as fairseq does
                # float32: the angle's own rounding grows with the position.
                assert table[position, i].item() == pytest.approx(
                    math.sin(angle), abs=1e-7 * (position + 2)
                )
                assert table[position, 4 + i].item() == pytest.approx(
                    math.cos(angle), abs=1e-7 * (position + 2)
                )

    def test_beyond_the_initial_table(self):
        embedding = Embedding(5, 8, PLACEMENT)
        torch.nn.init.zeros_(embedding.weight)
        before = embedding.sinusoids.table_PD.clone()
        longest = len(before) + 45
        rows = embedding(torch.full((longest,), 4), torch.arange(longest), longest)
        assert torch.equal(rows[: len(before)], before)
        angle = longest + 1  # of the last position, at the highest frequency
        assert rows[-1, 0].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert rows[-1, 4].item() == pytest.approx(math.cos(angle), abs=1e-6)
        assert "sinusoids" not in embedding.state_dict()

    def test_a_longer_table_changes_nothing_before(self):
        model, long = small_model("pre-ln"), random_tokens([300], 0)
        short = _hidden(model, long[:, :5], [5], long[:, :100], [100])
        torch.testing.assert_close(
            _hidden(model, long[:, :5], [5], long, [300])[:, :100], short, **EXACT
        )


@pytest.mark.parametrize("placement", registered())
class TestIndependence:
    def test_of_other_sentences_and_padding(self, placement):
        model = small_model(placement)
        source, target = random_tokens(SOURCE_LENGTHS, 1), random_tokens(TARGET_LENGTHS, 2)
        together = _hidden(model, source, SOURCE_LENGTHS, target, TARGET_LENGTHS)
        for s, (source_length, length) in enumerate(
            zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)
        ):
            alone = _hidden(
                model,
                source[s : s + 1, :source_length],
                [source_length],
                target[s : s + 1, :length],
                [length],
            )
            torch.testing.assert_close(together[s, :length], alone[0], **EXACT)

    def test_of_what_stands_in_the_padding(self, placement):
        model = small_model(placement)
        source, target = random_tokens(SOURCE_LENGTHS, 1), random_tokens(TARGET_LENGTHS, 2)
        one = _hidden(model, source, SOURCE_LENGTHS, target, TARGET_LENGTHS)
        source[source == 1], target[target == 1] = 7, 9
        assert torch.equal(one, _hidden(model, source, SOURCE_LENGTHS, target, TARGET_LENGTHS))

    def test_of_later_target_tokens(self, placement):
        model = small_model(placement)
        source, target = random_tokens([5], 1), random_tokens([8], 2)
        before = _hidden(model, source, [5], target, [8])[0]
        # Sentences do not see each other: each of the eight tokens is changed in one of eight.
        after = _hidden(model, source.repeat(8, 1), [5] * 8, one_changed_in_each(target), [8] * 8)
        for changed in range(8):
            torch.testing.assert_close(after[changed, :changed], before[:changed], **EXACT)
            assert ((after[changed] - before)[changed:].abs().amax(1) > 1e-6).all(), (
                "and every later one sees it"
            )

    def test_every_source_token_is_seen(self, placement):
        model = small_model(placement)
        source, target = random_tokens([5], 1), random_tokens([3], 2)
        before = _hidden(model, source, [5], target, [3])
        after = _hidden(model, one_changed_in_each(source), [5] * 5, target.repeat(5, 1), [3] * 5)
        assert ((after - before).abs().amax(2) > 1e-8).all()


def one_changed_in_each(sentence: torch.Tensor) -> torch.Tensor:
    """As many copies of a sentence (1, T) as it has tokens; in copy t token t is another."""
    other = 4 + (sentence - 3) % 16
    return torch.where(torch.eye(sentence.shape[1], dtype=torch.bool), other, sentence)


def _hidden(
    model: EncoderDecoder,
    source: torch.Tensor,
    source_lengths: list[int],
    target: torch.Tensor,
    target_lengths: list[int],
) -> torch.Tensor:
    """(B, T, D) decoder states, padding 0."""
    source_layout, layout = (
        Layout(torch.tensor(source_lengths)),
        Layout(torch.tensor(target_lengths)),
    )
    with torch.no_grad():
        hidden = model(source_layout.pack(source), source_layout, layout.pack(target), layout)
    return layout.unpack(hidden)


class TestLayout:
    @given(
        lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
        heads=st.sampled_from([1, 2, 3]),
    )
    def test_round_trips(self, lengths, heads):
        layout = Layout(torch.tensor(lengths))
        grid = torch.arange(len(lengths) * max(lengths) * 6, dtype=torch.float64).view(
            len(lengths), max(lengths), 6
        )
        packed = layout.pack(grid)
        assert packed.tolist() == [
            row for s, n in enumerate(lengths) for row in grid[s, :n].tolist()
        ]
        keep = torch.tensor([[t < n for t in range(max(lengths))] for n in lengths])
        assert torch.equal(layout.keep_BT, keep)
        assert torch.equal(layout.unpack(packed), torch.where(keep[:, :, None], grid, 0.0))
        assert torch.equal(layout.pack(layout.unpack(packed, fill=-1.0)), packed)
        assert layout.positions_N.tolist() == [t for n in lengths for t in range(n)]
        in_heads = layout.to_heads(packed, heads)
        expected = layout.unpack(packed).view(len(lengths), max(lengths), heads, -1).transpose(1, 2)
        assert torch.equal(in_heads, expected)
        assert torch.equal(layout.from_heads(in_heads), packed)

    @pytest.mark.parametrize("lengths", [[], [0], [3, 0], [2, -1]])
    def test_empty_sentences_are_refused(self, lengths):
        with pytest.raises(
            ValueError, match="at least one sentence and at least one token in each"
        ):
            Layout(torch.tensor(lengths, dtype=torch.int64))

    @pytest.mark.parametrize("lengths", [[3, 1, 4], [2, 2]])
    def test_gradients_of_the_grids(self, lengths):
        layout = Layout(torch.tensor(lengths))
        x = torch.randn(sum(lengths), 6, dtype=torch.float64, requires_grad=True)
        y = torch.randn(len(lengths), 2, max(lengths), 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: layout.to_heads(x, 2), x)
        assert torch.autograd.gradcheck(layout.from_heads, y)


def test_dropout_acts_in_training_alone():
    model = small_model("pre-ln", dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)
    tokens, layout = random_tokens([6], 1)[0], Layout(torch.tensor([6]))
    torch.manual_seed(0)
    one, two = (model(tokens, layout, tokens, layout) for _ in range(2))
    assert not torch.allclose(one, two)
    torch.manual_seed(0)
    assert torch.equal(model(tokens, layout, tokens, layout), one)
    model.eval()
    without = small_model("pre-ln").eval()
    assert torch.equal(
        model(tokens, layout, tokens, layout), without(tokens, layout, tokens, layout)
    )


def test_a_stack_of_own_kinds():
    """Feed-forward sub-layers alone: the setting of the paper's appendix."""
    shape = StackShape(kind="encoder", width=8, ffn_width=8, heads=1, encoder_blocks=2)
    stack = Stack(named("pre-ln")(shape), StackConfig(), ("feed_forward",))
    assert not [name for name, _ in stack.named_parameters() if "attention" in name]


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("check", [model_by_aot_eager, stack_by_inductor])
def test_compiled_equals_eager(check):
    """The whole model and its gradients as one graph; and the code generator on a stack, as it
    takes its time.

    In a process of its own: what the compiler warns about and leaves behind is not ours.
    """
    if check is stack_by_inductor and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler to generate code, and none is here")
    code, _, err = finish(forked.call(check))
    assert code == 0, err[-2000:]
