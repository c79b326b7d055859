"""Stretches of text for language models: every token of every document is told once, from what
stands before it.
"""

import numpy as np
from hypothesis import given, strategies as st

from normscope.data.documents.batches import Stretches
from normscope.data.documents.corpus import DocumentSplit

END = 3
DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=6), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)


def stretches(documents: list[list[list[int]]], length: int) -> Stretches:
    return Stretches(
        split=DocumentSplit.of(documents, words=0, vocabulary_size=100), length=length, end=END
    )


@given(DOCUMENTS, st.integers(1, 40))
def test_every_token_and_every_end_is_told_once_in_order(
    documents: list[list[list[int]]], length: int
) -> None:
    text = [END]
    for document in documents:
        text += [token for sentence in document for token in sentence] + [END]
    made = stretches(documents, length)
    assert made.targets == len(text) - 1
    batch = made.batch(range(len(made)))
    assert batch.targets_N.tolist() == text[1:]
    assert batch.tokens_N.tolist() == text[:-1]
    assert batch.lengths_B.tolist()[:-1] == [length] * (len(made) - 1)
    assert 1 <= batch.lengths_B.tolist()[-1] <= length
    assert (batch.tokens_N.dtype, batch.targets_N.dtype) == (batch.lengths_B.dtype,) * 2


def test_a_batch_holds_the_stretches_asked_for_in_that_order() -> None:
    made = stretches([[[10, 11, 12], [13, 14]], [[15, 16, 17]]], 4)
    batch = made.batch([2, 0])
    assert batch.tokens_N.tolist() == [16, 17, END, 10, 11, 12]
    assert batch.targets_N.tolist() == [17, END, 10, 11, 12, 13]
    assert batch.lengths_B.tolist() == [2, 4]
    assert batch.to("meta").lengths_B.device.type == "cpu"
    assert batch.to("meta").tokens_N.is_meta


def test_a_large_corpus_keeps_its_own_dtype() -> None:
    assert stretches([[[10]]], 4)._text(0, 2).dtype == np.uint16
