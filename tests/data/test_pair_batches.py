"""Batches of masked pairs: taken apart again, they are the text."""

import pytest
import torch
from torch import Tensor

from normscope.data.documents.batches import Masker, PairBatch, PairSource
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.pairs import pack_pairs
from normscope.data.documents.tokeniser import CLS, MASK, SEP, TextTokeniser
from normscope.data.toy import toy_pairs

TEXTS = [english for _, english in toy_pairs(120, seed=1, split="train")]


@pytest.fixture(scope="module")
def source() -> PairSource:
    tokeniser = TextTokeniser.learn(TEXTS, 300, kind="wordpiece", lowercase=True)
    split = DocumentCorpus.of_texts(
        tokeniser, {"train": [TEXTS[i : i + 6] for i in range(0, 120, 6)]}
    ).splits["train"]
    masker = Masker(
        masked_share=0.15,
        whole_words=False,
        mask_id=tokeniser.ids[MASK],
        special_ids=frozenset(tokeniser.ids.values()),
        regular_ids=tokeniser.regular_ids,
        begins_word_V=tokeniser.begins_word_V,
    )
    pairs = pack_pairs(split, sequence_length=40, seed=1)
    return PairSource(split=split, pairs=pairs, tokeniser=tokeniser, masker=masker, seed=1)


def rows(packed: Tensor, batch: PairBatch) -> list[list[int]]:
    return [row.tolist() for row in packed.split(batch.lengths_B.tolist())]


def test_a_batch_is_cls_a_sep_b_sep_with_tokens_hidden(source: PairSource) -> None:
    indices = [5, 0, 17]
    batch = source.batch(indices, epoch=2)
    restored = batch.tokens_N.clone()
    restored[batch.masked_M] = batch.targets_M
    assert not torch.equal(restored, batch.tokens_N)
    cls, sep = source.tokeniser.ids[CLS], source.tokeniser.ids[SEP]
    for row, segments, index, random in zip(
        rows(restored, batch),
        rows(batch.segments_N, batch),
        indices,
        batch.is_random_B.tolist(),
        strict=True,
    ):
        a, a_end, b, b_end, is_random = source.pairs[index].tolist()
        text = source.split.tokens.tolist()
        first, second = text[a:a_end], text[b:b_end]
        assert row == [cls, *first, sep, *second, sep]
        assert segments == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert random == is_random


def test_masks_do_not_depend_on_the_batch(source: PairSource) -> None:
    together = source.batch([5, 0, 17], epoch=2)
    alone = [source.batch([index], epoch=2) for index in (5, 0, 17)]
    assert rows(together.tokens_N, together) == [batch.tokens_N.tolist() for batch in alone]
    assert together.targets_M.tolist() == [i for batch in alone for i in batch.targets_M.tolist()]
    other = source.batch([5, 0, 17], epoch=3)
    assert other.masked_M.tolist() != together.masked_M.tolist()


def test_moving_a_batch_leaves_the_lengths_on_the_cpu(source: PairSource) -> None:
    batch = source.batch([1, 2], epoch=0)
    moved = batch.to("meta")
    assert moved.lengths_B.device.type == "cpu"
    for name in ("tokens_N", "segments_N", "masked_M", "targets_M", "is_random_B"):
        assert getattr(moved, name).is_meta
        assert getattr(moved, name).shape == getattr(batch, name).shape
