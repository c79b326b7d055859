"""Sentence pairs against BERT's procedure written with lists of tokens, and against the frequencies
it promises.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from normscope.data.batches import StableDraw
from normscope.data.documents import pairs as pairs_module
from normscope.data.documents.corpus import DocumentSplit
from normscope.data.documents.pairs import pack_pairs

SIZES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=2, max_size=6)
"""Tokens of each sentence of each document."""


def lengths(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of each sequence, [CLS] and both [SEP] included."""
    found: NDArray[np.int64] = (pairs[:, [1, 3]] - pairs[:, [0, 2]]).sum(1) + 3
    return found


def numbered(sizes: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Documents in which no token occurs twice, so that it is plain where a token comes from."""
    following = iter(range(10**6))
    return [[[next(following) for _ in range(size)] for size in document] for document in sizes]


def packed(
    sizes: Sequence[Sequence[int]], length: int, seed: int = 1, packings: int = 1
) -> NDArray[np.int64]:
    split = DocumentSplit.of(numbered(sizes), words=0, vocabulary_size=10**6)
    return pack_pairs(split, sequence_length=length, seed=seed, packings=packings)


def tokens(pair: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Of both parts; token i stands at place i."""
    return list(range(*pair[:2])), list(range(*pair[2:4]))


def by_hand(
    documents: list[list[list[int]]], number: int, length: int, draw: StableDraw
) -> Iterator[tuple[object, ...]]:
    """The pairs of one document (Devlin et al. 2018, appendix A.2): sentences are moved from one
    pile to another.
    """
    room = length - 3
    wanted = room
    if draw.chance(0.1):
        wanted = 2 + draw.below(room - 1)  # 2 to room
    waiting, gathered = [list(sentence) for sentence in documents[number]], list[list[int]]()
    while waiting:
        gathered.append(waiting.pop(0))
        if waiting and sum(map(len, gathered)) < wanted:
            continue
        cut = 1 if len(gathered) == 1 else 1 + draw.below(len(gathered) - 1)
        first, rest = list(chain(*gathered[:cut])), gathered[cut:]
        is_random = not rest or draw.chance(0.5)
        if is_random:
            waiting = rest + waiting  # "put back, so they don't go to waste"
            drawn = (draw.below(len(documents)) for _ in range(10))
            other = next(
                (other for other in drawn if other != number), (number + 1) % len(documents)
            )
            second = list[int]()
            for sentence in documents[other][draw.below(len(documents[other])) :]:
                second += sentence
                if len(second) >= wanted - len(first):
                    break
        else:
            second = list(chain(*rest))
        while len(first) + len(second) > room:
            longer = first if len(first) > len(second) else second
            longer.pop(-0 if draw.chance(0.5) else -1)
        yield first, second, int(is_random)
        gathered = []


@given(SIZES, st.integers(5, 60), st.integers(0, 2**31), st.integers(0, 2))
def test_pairs_are_those_of_the_procedure_by_hand(
    sizes: list[list[int]], length: int, seed: int, packing: int
) -> None:
    documents = numbered(sizes)
    wanted = [
        pair
        for round_ in range(packing + 1)
        for number in range(len(documents))
        for pair in by_hand(
            documents, number, length, StableDraw(f"pairs {seed} {round_} {number}")
        )
    ]
    ours = packed(sizes, length, seed, packing + 1)
    assert [(*tokens(pair), pair[4]) for pair in ours] == wanted


@given(SIZES, st.integers(5, 60), st.integers(0, 2**31))
def test_every_pair_fits_and_a_random_partner_is_of_another_document(
    sizes: list[list[int]], length: int, seed: int
) -> None:
    ends = np.cumsum([sum(document) for document in sizes])
    pairs = packed(sizes, length, seed)
    for i in range(len(pairs)):
        first, second = tokens(pairs[i])
        assert first
        assert second
        assert len(first) + len(second) + 3 == lengths(pairs)[i] <= length
        homes = [
            {int(np.searchsorted(ends, token, "right")) for token in part}
            for part in (first, second)
        ]
        assert [len(home) for home in homes] == [1, 1]
        assert (homes[0] != homes[1]) == bool(pairs[i][4])
        if not pairs[i][4]:
            assert first[-1] < second[0]


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(5, 30), st.integers(0, 2**31)
)
def test_every_token_is_used_once_and_in_order_where_nothing_has_to_be_cut(
    sentences: list[int], length: int, seed: int
) -> None:
    """With a token a sentence, pairs fill up exactly, and what a random part displaced comes in the
    next pair.
    """
    pairs = packed([[1] * count for count in sentences], length, seed)
    used = list[int]()
    for i in range(len(pairs)):
        first, second = tokens(pairs[i])
        used += first if pairs[i][4] else first + second
    assert used == list(range(sum(sentences)))


def test_half_of_the_pairs_that_could_follow_are_random() -> None:
    pairs = packed([[1] * 6000] * 4, 11)
    assert len(pairs) > 3000
    random = int(pairs[:, 4].sum())
    # The last pair of a document may have a single sentence, and is random then: at most 4 beyond
    # the even chance.
    assert abs(random - len(pairs) / 2) < 5 * math.sqrt(len(pairs) / 4) + 4


def test_a_tenth_of_the_documents_are_packed_shorter_to_any_length() -> None:
    room = 12
    pairs = packed([[1] * 2 * room] * 5000, room + 3)
    # A document's first pair, unless a random part ended with its own document before it was long
    # enough.
    first = np.flatnonzero((pairs[:, 0] % (2 * room) == 0) & (pairs[:, 4] == 0))
    targets = lengths(pairs)[first] - 3
    documents = len(targets)
    assert documents > 2000
    share = 0.1 * (1 - 1 / (room - 1))  # one of the lengths 2 to room is room itself
    short = targets[targets < room]
    assert abs(len(short) - share * documents) < 5 * math.sqrt(documents * share * (1 - share))
    counts = np.bincount(short, minlength=room)[2:]
    assert abs(counts - len(short) / (room - 2)).max() < 5 * math.sqrt(len(short) / (room - 2))


def test_the_cut_is_anywhere_between_two_sentences() -> None:
    pairs = packed([[1] * 5] * 4000, 8)
    whole = pairs[pairs[:, 0] % 5 == 0]
    cuts = np.bincount(whole[:, 1] - whole[:, 0], minlength=5)
    # Of the 90 % of documents that are packed whole; the shorter ones cut earlier.
    assert cuts[4] > 0
    assert cuts[0] == 0
    even = 0.9 * 4000 / 4
    assert all(
        even - 5 * math.sqrt(even) < count < even + 400 + 5 * math.sqrt(even) for count in cuts[1:]
    )


def test_packings_and_seeds_choose_anew_and_the_same_arguments_the_same() -> None:
    sizes = [[3, 1, 4, 1, 5, 9, 2, 6]] * 20
    once, twice, other = packed(sizes, 20), packed(sizes, 20, packings=2), packed(sizes, 20, seed=2)
    assert twice[: len(once)].tolist() == once.tolist() == packed(sizes, 20).tolist()
    assert twice[len(once) :].tolist() != once.tolist() != other.tolist()


def test_of_two_documents_the_partner_is_always_the_other() -> None:
    pairs = packed([[1] * 20_000] * 2, 6)
    assert int(pairs[:, 4].sum()) > 3000  # of which BERT would give up on three
    random = pairs[pairs[:, 4] == 1]
    assert ((random[:, 0] < 20_000) != (random[:, 2] < 20_000)).all()


def test_pairs_are_the_same_from_mapped_files_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = np.random.default_rng(40).integers(1, 12, (40, 20)).tolist()
    split = DocumentSplit.of(numbered(sizes), words=0, vocabulary_size=10**6)
    in_memory = pack_pairs(split, sequence_length=30, seed=1)
    monkeypatch.setattr(pairs_module, "_DOCUMENTS_AT_ONCE", 3)
    on_disk = replace(
        split,
        sentences=in_a_file(split.sentences, tmp_path / "sentences"),
        documents=in_a_file(split.documents, tmp_path / "documents"),
    )
    assert np.array_equal(pack_pairs(on_disk, sequence_length=30, seed=1), in_memory)


def in_a_file(numbers: NDArray[np.int64], path: Path) -> NDArray[np.int64]:
    numbers.tofile(path)
    return np.memmap(path, np.int64, "r")


def test_the_shortest_sequence_has_a_token_of_each() -> None:
    assert lengths(packed([[3, 4], [5]], 5)).tolist() == [5] * len(packed([[3, 4], [5]], 5))
