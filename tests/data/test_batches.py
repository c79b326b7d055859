from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from normscope.data.batches import permutation
from normscope.data.parallel.batches import collate, make_batches
from normscope.data.parallel.corpus import Split, TokenArray
from normscope.data.parallel.vocabulary import EOS, PAD
from normscope.errors import UserError

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=120)


@given(LENGTHS, st.integers(30, 200), st.integers(0, 2**32 - 1))
def test_every_sentence_once_under_the_budget_and_no_batch_needlessly_small(
    pairs, max_tokens, seed
):
    lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    batches = make_batches(lengths[:, 0], lengths[:, 1], max_tokens=max_tokens, seed=seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    order = [(pairs[i][1], pairs[i][0]) for batch in batches for i in batch]
    assert order == sorted(order)
    for batch in batches:
        assert max(max(pairs[i]) for i in batch) * len(batch) <= max_tokens
    for batch, following in pairwise(batches):
        one_more = [*batch, following[0]]
        assert max(max(pairs[i]) for i in one_more) * len(one_more) > max_tokens


def test_seed_decides_which_equal_sentences_meet():
    equal = np.full(1000, 10)
    first, again, other = (
        make_batches(equal, equal, max_tokens=100, seed=seed) for seed in (1, 1, 2)
    )
    assert [b.tolist() for b in first] == [b.tolist() for b in again]
    assert [b.tolist() for b in first] != [b.tolist() for b in other]
    assert np.concatenate(first).tolist() != list(range(1000))
    assert np.concatenate(first).tolist() != permutation(1000, 1, 0).tolist()


def test_a_sentence_over_the_budget_is_told():
    with pytest.raises(
        UserError,
        match=r"sentence 2 .* has 41 tokens, more than the 40 of a batch; raise max_tokens",
    ):
        make_batches(np.array([3, 40, 5]), np.array([3, 4, 41]), max_tokens=40, seed=0)


def small_split():
    source = [[5, 6, EOS], [7, EOS], [8, 9, 10, 11, EOS]]
    target = [[20, EOS], [21, 22, 23, EOS], [EOS]]
    return Split(
        TokenArray.of(source, vocabulary_size=50), TokenArray.of(target, vocabulary_size=50)
    )


def test_collate_by_hand():
    batch = collate(small_split(), np.array([1, 0, 2]))
    assert batch.source_BS.tolist() == [[7, 2, 1, 1, 1], [5, 6, 2, 1, 1], [8, 9, 10, 11, 2]]
    assert batch.target_out_BT.tolist() == [[21, 22, 23, 2], [20, 2, 1, 1], [2, 1, 1, 1]]
    assert batch.target_in_BT.tolist() == [[2, 21, 22, 23], [2, 20, 1, 1], [2, 1, 1, 1]]
    assert batch.source_lengths_B.tolist() == [2, 3, 5]
    assert batch.target_lengths_B.tolist() == [4, 2, 1]
    assert batch.target_tokens == 7
    tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 5
    assert all(tensor.dtype == torch.int64 for tensor in tensors)


@given(st.lists(st.lists(st.integers(4, 49), max_size=9), min_size=1, max_size=8), st.randoms())
def test_collate_against_the_sentences(rows, random):
    sentences = TokenArray.of([[*row, EOS] for row in rows], vocabulary_size=50)
    indices = random.choices(range(len(rows)), k=5)
    batch = collate(Split(sentences, sentences), indices)
    for b, i in enumerate(indices):
        length = len(rows[i]) + 1
        assert batch.target_out_BT[b, :length].tolist() == [*rows[i], EOS]
        assert batch.target_in_BT[b, :length].tolist() == [EOS, *rows[i]]
        assert (batch.target_out_BT[b, length:] == PAD).all()
        assert (batch.target_in_BT[b, length:] == PAD).all()
    assert batch.target_tokens == int((batch.target_out_BT != PAD).sum())
    assert torch.equal(batch.source_BS, batch.target_out_BT)


def test_moving_a_batch_leaves_lengths_behind():
    moved = collate(small_split(), [0, 1]).to("meta")
    assert (
        moved.source_BS.device.type
        == moved.target_in_BT.device.type
        == moved.target_out_BT.device.type
        == "meta"
    )
    assert moved.source_lengths_B.device.type == moved.target_lengths_B.device.type == "cpu"
    assert moved.target_tokens == 6


def test_collate_outside():
    with pytest.raises(IndexError):
        collate(small_split(), [3])
