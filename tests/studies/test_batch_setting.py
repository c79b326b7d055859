"""What theory is told of batches, beside counting every pair of places by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from normscope.data.opening import DataConfig, open_corpus
from normscope.data.parallel.batches import collate
from normscope.model import ModelConfig
from normscope_studies.theory.simulation import repeats, setting_of

SENTENCES = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=7), min_size=1
)


@given(sentences=SENTENCES)
def test_every_pair_of_places(sentences):
    firsts, seconds = (
        [np.array([pair[side] for pair in row]) for row in sentences] for side in (0, 1)
    )
    places = [(s, *pair) for s, row in enumerate(sentences) for pair in row]
    within, apart = [], []
    for (i, (s, first, _)), (j, (other, _, second)) in itertools.product(
        enumerate(places), repeat=2
    ):
        if i != j:
            (within if s == other else apart).append(first == second)
    found = repeats(firsts, seconds)
    assert found[0] == pytest.approx(np.mean(within) if within else 0.0, abs=1e-12)
    assert found[1] == pytest.approx(np.mean(apart) if apart else 0.0, abs=1e-12)


def test_of_a_corpus():
    corpus = open_corpus(DataConfig(toy_pairs=50))
    batch = collate(corpus.splits["train"], np.arange(8))
    found = setting_of([batch], ModelConfig(dropout=0.2), vocabulary=99, label_smoothing=0.1)
    assert (found.blocks, found.width, found.ffn_width, found.heads) == (6, 512, 1024, 4)
    assert (found.sequences, found.vocabulary, found.dropout, found.label_smoothing) == (
        8,
        99,
        0.2,
        0.1,
    )
    assert found.tokens == round(float(batch.target_lengths_B.double().mean()))
    assert found.source_tokens == round(float(batch.source_lengths_B.double().mean()))
    # A text asks for what its next place reads: two of the n (n - 1) pairs of places of a sentence
    # for each of n - 1.
    assert found.target.asked_within > 1 / found.tokens > found.target.asked_apart
    assert found.source.asked_within == 0
    assert 0 < found.target.same_apart < 1
