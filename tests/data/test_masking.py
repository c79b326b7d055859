"""Masks: how many, of what, behind what, and the same ones in every process."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from masked_sequences import BEGINS, CLS, MASK, SEP, SHARE, VOCABULARY, masker, masks_of, sequence


def words(tokens: NDArray[np.int64]) -> list[list[int]]:
    """Positions of each word, read from left to right; a special token ends one."""
    found: list[list[int]] = []
    begun = False
    for position, token in enumerate(tokens.tolist()):
        if token < 5:
            begun = False
        elif BEGINS[token] or not begun:
            found.append([position])
            begun = True
        else:
            found[-1].append(position)
    return found


def bound(tries: int, share: float) -> float:
    return 5 * math.sqrt(tries * share * (1 - share))


SEQUENCES = st.builds(sequence, st.integers(5, 128), st.integers(0, 2**31))
WHERE = st.fixed_dictionaries({name: st.integers(0, 2**31) for name in ("seed", "epoch", "index")})


@given(SEQUENCES, WHERE)
def test_exactly_that_many_ordinary_tokens_are_hidden(
    tokens: NDArray[np.int64], where: dict[str, int]
) -> None:
    before = tokens.tolist()
    hidden, positions, targets = masker().mask(tokens, **where)
    assert len(positions) == min(max(1, round(SHARE * len(tokens))), len(tokens) - 3)
    assert positions.tolist() == sorted(set(positions.tolist()))
    assert not set(tokens[positions].tolist()) & {0, CLS, SEP, MASK}
    assert targets.tolist() == tokens[positions].tolist()
    untouched = np.delete(np.arange(len(tokens)), positions)
    assert hidden[untouched].tolist() == tokens[untouched].tolist()
    assert set(hidden[positions].tolist()) <= {MASK, *range(5, VOCABULARY)}
    assert tokens.tolist() == before  # not written into


@given(SEQUENCES, WHERE)
def test_whole_words_are_hidden_whole(tokens: NDArray[np.int64], where: dict[str, int]) -> None:
    _, positions, _ = masker(whole_words=True).mask(tokens, **where)
    wanted = max(1, round(SHARE * len(tokens)))
    whole = words(tokens)
    chosen = set(positions.tolist())
    if min(map(len, whole)) > wanted:
        assert len(chosen) == 1  # no word fits: a token alone
        return
    assert 1 <= len(chosen) <= wanted
    assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in whole)
    left = [word for word in whole if chosen.isdisjoint(word)]
    assert all(
        len(chosen) + len(word) > wanted for word in left
    )  # nothing that fits is passed over


def test_eight_of_ten_are_masked_one_is_random_and_one_stays() -> None:
    made, tokens = masker(), sequence(101, 0)
    total = kept = masked = 0
    random = np.zeros(VOCABULARY, dtype=np.int64)
    for index in range(1500):
        hidden, positions, targets = made.mask(tokens, seed=3, epoch=0, index=index)
        shown = hidden[positions]
        total, masked = total + len(shown), masked + int((shown == MASK).sum())
        kept += int((shown == targets).sum())
        random += np.bincount(shown[(shown != MASK) & (shown != targets)], minlength=VOCABULARY)
    assert abs(masked - 0.8 * total) < bound(total, 0.8)
    by_chance = 0.1 / (VOCABULARY - 5)  # a random token may be the one that stood there
    assert abs(kept - (0.1 + by_chance) * total) < bound(total, 0.1 + by_chance)
    assert random[:5].sum() == 0
    each = random[5:].sum() / (VOCABULARY - 5)
    assert (
        abs(random[5:] - each).max() < 5 * math.sqrt(each) + each * 0.1
    )  # those that stood there are a bit rarer


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_token_is_hidden_as_often(whole_words: bool) -> None:
    """With words of one token, whole or not: 5 standard deviations around the share."""
    tokens = np.array([CLS, *range(6, 36, 3), SEP, *range(36, 58, 3), SEP])
    made, times = masker(whole_words=whole_words), 1500
    counts = np.zeros(len(tokens), dtype=np.int64)
    for index in range(times):
        counts[made.mask(tokens, seed=1, epoch=0, index=index)[1]] += 1
    ordinary = np.flatnonzero(tokens >= 5)
    share = round(SHARE * len(tokens)) / len(ordinary)
    assert counts[np.flatnonzero(tokens < 5)].sum() == 0
    assert abs(counts[ordinary] - share * times).max() < bound(times, share)


def test_seed_epoch_and_index_each_change_the_mask() -> None:
    tokens = sequence(100, 0)
    wheres = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (0, 0, 0)]
    masks = [masker().mask(tokens, seed=s, epoch=e, index=i) for s, e, i in wheres]
    assert len({tuple(mask[1]) for mask in masks}) == len(wheres)


@pytest.mark.thorough
def test_the_same_masks_with_any_number_of_workers() -> None:
    indices = list(range(48))
    alone = masks_of(indices)
    assert len({str(mask[1]) for mask in alone}) > 90
    # A fresh interpreter, as a data loader on another machine would be; the parts are dealt out
    # like cards.
    dealt = [[indices[w::workers] for w in range(workers)] for workers in (1, 2, 3)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        every = iter(list(pool.map(masks_of, [hand for hands in dealt for hand in hands])))
    for workers, hands in enumerate(dealt, 1):
        parts = [next(every) for _ in hands]
        joined: list[list[list[int]]] = [[]] * len(alone)
        for worker, part in enumerate(parts):
            for place, index in enumerate(indices[worker::workers]):
                joined[2 * index : 2 * index + 2] = part[2 * place : 2 * place + 2]
        assert joined == alone


def test_a_mask_stays_the_same_for_ever() -> None:
    hidden, positions, targets = masker().mask(np.arange(5, 45), seed=1, epoch=2, index=3)
    assert (positions.tolist(), targets.tolist()) == ([*POSITIONS], [p + 5 for p in POSITIONS])
    assert hidden[positions].tolist() == HIDDEN


POSITIONS = [1, 2, 3, 11, 25, 26]
HIDDEN = [4, 4, 4, 59, 4, 4]
