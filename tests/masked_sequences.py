"""Sequences and their masks, in a file of their own: worker processes import it, and not what tests
need beside.
"""

import numpy as np
from numpy.typing import NDArray

from normscope.data.documents.batches import Masker

CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 60
SHARE = 0.15
BEGINS = np.array([i < 5 or i % 3 == 0 for i in range(VOCABULARY)])
"""Two of three tokens go on with a word."""


def masker(*, whole_words: bool = False) -> Masker:
    return Masker(
        masked_share=SHARE,
        whole_words=whole_words,
        mask_id=MASK,
        special_ids=frozenset({0, CLS, SEP, MASK}),
        regular_ids=np.arange(5, VOCABULARY),
        begins_word_V=BEGINS,
    )


def sequence(length: int, seed: int) -> NDArray[np.int64]:
    """[CLS] A [SEP] B [SEP] of distinct draws."""
    draw = np.random.default_rng(seed)
    tokens = draw.integers(5, VOCABULARY, length)
    tokens[[0, length // 2, -1]] = CLS, SEP, SEP
    return tokens


def as_lists(masked: tuple[NDArray[np.int64], ...]) -> list[list[int]]:
    return [part.tolist() for part in masked]


def masks_of(indices: list[int]) -> list[list[list[int]]]:
    """What a worker makes."""
    made = [masker(), masker(whole_words=True)]
    return [
        as_lists(m.mask(sequence(60, i), seed=5, epoch=i % 3, index=i))
        for i in indices
        for m in made
    ]
