"""Beam search against fairseq's numbers, a loop without caches, and the enumeration of
everything.
"""

import itertools

import pytest
import torch
from torch import Tensor

from fairseq_weights import load
from normscope.decode.search import BeamConfig, Hypothesis, beam_search
from normscope.model import Cache, EncoderDecoder, Layout, ModelConfig
from normscope.placement import registered

PAD, EOS = 1, 2
FIXTURES = ["post_shared_1", "post_separate_2", "pre_shared_1", "pre_separate_2"]


def tiny(seed: int, *, vocabulary: int = 20, placement: str = "pre-ln") -> EncoderDecoder:
    """A float64 model with weights large enough that its predictions differ."""
    torch.manual_seed(seed)
    config = ModelConfig(
        placement=placement, width=16, ffn_width=24, heads=2, encoder_blocks=2, decoder_blocks=2
    )
    model = EncoderDecoder(config, vocabulary, vocabulary).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def sources(seed: int, lengths: list[int], vocabulary: int = 20) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.cat([torch.randint(4, vocabulary, (n,), generator=generator), torch.tensor([EOS])])
        for n in lengths
    ]


def log_probs(model: EncoderDecoder, source: Tensor, inputs: list[int]) -> Tensor:
    """(T, V) by one teacher-forced pass, without caches."""
    source_layout, layout = (Layout(torch.tensor([n])) for n in (len(source), len(inputs)))
    with torch.no_grad():
        found = model.logits(
            model(source, source_layout, torch.tensor(inputs), layout)
        ).log_softmax(-1)
    found[
        :, PAD
    ] = -torch.inf  # afterwards: the probabilities know nothing of what the search forbids
    return found


class TestFairseq:
    @pytest.mark.sampled(one_in=4)
    @pytest.mark.parametrize("length_penalty", ["0.6", "1.0", "1.2"])
    @pytest.mark.parametrize("name", FIXTURES)
    def test_every_hypothesis_and_score(self, shared, name, length_penalty):
        model, arrays = load(shared / f"fixtures/fairseq_{name}.npz")
        rows = torch.from_numpy(arrays["src"])
        # fairseq's limit counts the batch's longest source, ours each its own: here all get the
        # longest one's.
        limit = BeamConfig().limit(rows.shape[1])
        config = BeamConfig(
            length_penalty=float(length_penalty), max_length_ratio=0, max_length_extra=limit
        )
        found = beam_search(model, [row[row != PAD] for row in rows], config)
        for s, hypotheses in enumerate(found):
            assert len(hypotheses) == 5
            for rank, hypothesis in enumerate(hypotheses):
                assert hypothesis.tokens == arrays[f"beam:{length_penalty}:{s}:{rank}"].tolist()
                # fairseq adds up float32 log-probabilities, and the fixtures hold that sum: a few
                # of its roundings.
                expected = float(arrays[f"score:{length_penalty}:{s}:{rank}"])
                assert hypothesis.score == pytest.approx(expected, rel=4 * 2**-23)

    @pytest.mark.parametrize("name", FIXTURES)
    def test_the_limit_of_the_longest_source_is_the_default(self, shared, name):
        model, arrays = load(shared / f"fixtures/fairseq_{name}.npz")
        s = int((arrays["src"] != PAD).sum(1).argmax())
        (hypotheses,) = beam_search(model, [torch.from_numpy(arrays["src"][s])])
        assert [h.tokens for h in hypotheses] == [
            arrays[f"beam:1.0:{s}:{rank}"].tolist() for rank in range(5)
        ]


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("seed", range(4))
def test_greedy_equals_a_loop_without_caches(seed):
    model = tiny(seed)
    for source in sources(seed, [1, 5, 9]):
        tokens: list[int] = []
        total, limit = 0.0, int(1.2 * len(source) + 10)
        while not tokens or tokens[-1] != EOS:
            row = log_probs(model, source, [EOS, *tokens])[-1]
            if not tokens:
                row[EOS] = -torch.inf
            tokens.append(EOS if len(tokens) == limit else int(row.argmax()))
            total += float(row[tokens[-1]])
        ((best,),) = beam_search(model, [source], BeamConfig(beam=1))
        assert best.tokens == tokens
        assert best.score == pytest.approx(total / len(tokens), rel=1e-6)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_of_everything_finds_everything_in_order(length_penalty):
    model, (source,) = tiny(3, vocabulary=6), sources(0, [4], vocabulary=6)
    expected = []
    for length in (1, 2, 3):
        for words in itertools.product([0, 3, 4, 5], repeat=length):
            rows = log_probs(model, source, [EOS, *words])
            tokens = [*words, EOS]
            total = float(rows[torch.arange(length + 1), tokens].sum())
            expected.append(Hypothesis(tokens, total / (length + 1) ** length_penalty))
    expected.sort(key=lambda h: h.score, reverse=True)
    config = BeamConfig(
        beam=320, length_penalty=length_penalty, max_length_ratio=0, max_length_extra=3
    )
    (found,) = beam_search(model, [source], config)
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-5)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("seed", "beam"), [(0, 1), (1, 4), (2, 4)])
def test_together_equals_one_by_one(seed, beam):
    model = tiny(seed)
    lengths = torch.randint(1, 25, (21,), generator=torch.Generator().manual_seed(seed)).tolist()
    batch, config = sources(seed, lengths), BeamConfig(beam=beam)
    together = beam_search(model, batch, config)
    assert len({len(hypotheses[0].tokens) for hypotheses in together}) > 3, (
        "they should not all end at once"
    )
    for source, hypotheses in zip(batch, together, strict=True):
        (alone,) = beam_search(model, [source], config)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in alone]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in alone], rel=1e-6)


# How the pool takes places again and grows does not depend on the placement: one that keeps a
# history of values and the two that norm keys and values take it that far, the others only until
# beams have moved and a sentence has left.
LONG = {"pre-ln": 40, "attn-res": 40, "ngpt": 40, "hybrid-norm": 40}


@pytest.mark.parametrize(
    ("placement", "steps"), [(name, LONG.get(name, 8)) for name in registered()]
)
def test_cached_steps_equal_teacher_forcing(placement, steps):
    """Beams that move at random, sentences that leave, and, in some, steps until the pool grows."""
    leaves = 17 if steps == 40 else 4
    model, generator = tiny(0, placement=placement), torch.Generator().manual_seed(0)
    batch, rows = sources(1, [3, 7, 5]), 4
    layout = Layout(torch.tensor([len(source) for source in batch]))
    with torch.inference_mode():
        cache = Cache(model.encode(torch.cat(batch), layout), layout)
        histories: list[list[list[int]]] = [[[]] for _ in batch]
        for step in range(steps):
            if step == leaves:
                cache.select([2, 0])
                batch, histories = [batch[2], batch[0]], [histories[2], histories[0]]
            parent = torch.randint(len(histories[0]), (len(batch), rows), generator=generator)
            token = torch.randint(2, 20, (len(batch), rows), generator=generator)
            hidden = model.step(token, parent, cache).view(len(batch), rows, -1)
            histories = [
                [[*histories[s][int(parent[s, r])], int(token[s, r])] for r in range(rows)]
                for s in range(len(batch))
            ]
            if step in (0, 1, leaves - 1, leaves, 25, steps - 1):
                # Every beam of every sentence in one pass, which knows nothing of what the steps
                # keep.
                many = Layout(torch.tensor([len(source) for source in batch for _ in range(rows)]))
                own = Layout(torch.full((len(batch) * rows,), step + 1))
                told = torch.cat([source for source in batch for _ in range(rows)])
                said = torch.tensor(
                    [word for beams in histories for beam in beams for word in beam]
                )
                forced = model(told, many, said, own).view(len(batch), rows, step + 1, -1)[:, :, -1]
                torch.testing.assert_close(hidden, forced, rtol=1e-10, atol=1e-10)


def test_what_no_beam_continues_leaves_its_place():
    model, (source,) = tiny(0), sources(0, [3])
    layout = Layout(torch.tensor([len(source)]))
    with torch.inference_mode():
        cache = Cache(model.encode(source, layout), layout)
        for _ in range(60):
            model.step(torch.full((1, 5), 7), torch.zeros(1, 5, dtype=torch.int64), cache)
    assert cache.filled == 60 + 4


def test_lengths_stay_within_their_bounds():
    config = BeamConfig(beam=3, max_length_ratio=0.5, max_length_extra=2, min_length=4)
    batch = sources(0, [2, 19])
    for source, hypotheses in zip(batch, beam_search(tiny(1), batch, config), strict=True):
        most = max(4, int(0.5 * len(source) + 2))
        assert all(
            4 <= len(h.tokens) - 1 <= most and h.tokens.index(EOS) == len(h.tokens) - 1
            for h in hypotheses
        )
        assert all(PAD not in h.tokens for h in hypotheses)


@pytest.mark.parametrize("seed", range(3))
def test_what_has_ended_is_not_continued(seed):
    # With four words to choose from, most steps have end tokens among the first candidates and
    # among the later ones.
    for hypotheses in beam_search(
        tiny(seed, vocabulary=6), sources(seed, [*range(1, 21)], vocabulary=6)
    ):
        assert all(h.tokens.index(EOS) == len(h.tokens) - 1 for h in hypotheses)


def test_nothing_to_translate():
    assert beam_search(tiny(0), []) == []


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_restored(training):
    model = tiny(0).train(training)
    with torch.no_grad():
        assert beam_search(model, sources(0, [3])) == beam_search(model, sources(0, [3])), (
            "dropout must be off"
        )
    assert model.training is training
    with torch.no_grad():
        model.target_embedding.weight[5] = torch.nan
    with pytest.raises(FloatingPointError, match="no finite log-probabilities"):
        beam_search(model, sources(0, [3]))
    assert model.training is training


@pytest.mark.parametrize(
    "wrong", [{"beam": 0}, {"max_length_ratio": -1.0}, {"max_length_extra": -1}]
)
def test_wrong_settings(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BeamConfig(**wrong)
