"""Labelled pairs as sequences: cut as BERT cuts them, batched in order, and known by a fingerprint."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.labelled import LabelledCorpus, PairDataConfig, cut, open_labelled
from normscope.errors import UserError
from words import word_tokeniser

WORDS = ("a", "b", "c", "d", "e", "f")
TOKENISER = word_tokeniser(*WORDS)
ROWS = [("yes", "a b c d e f", "f e d"), ("no", "a", "b c"), ("yes", "a b c d e f a b c", "f e d c b a f e d c")]


def file_of(folder: Path, rows: list[tuple[str, str, str]], name: str = "train.tsv") -> Path:
    path = folder / name
    path.write_text("label\tsentence1\tsentence2\n" + "".join("\t".join(row) + "\n" for row in rows))
    return path


def opened(folder: Path, rows: list[tuple[str, str, str]] = ROWS, **settings: object) -> LabelledCorpus:
    train, dev = file_of(folder, rows), file_of(folder, rows[:2], "dev.tsv")
    given_: dict[str, object] = {"corpus": str(train), "valid_file": str(dev), "sequence_length": 14} | settings
    return open_labelled(PairDataConfig(**given_), TOKENISER)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60))
def test_the_longer_sentence_is_cut_and_no_more_than_needed(first: int, second: int, room: int) -> None:
    a, b = cut(first, second, room)
    assert a <= first
    assert b <= second
    assert a + b == min(first + second, room)
    # Who lost a token is not the shorter one by more than the token that made them equal.
    assert a == first or a >= b
    assert b == second or b >= a - 1


def test_of_two_equally_long_sentences_the_second_is_cut() -> None:
    assert cut(9, 10, 11) == (6, 5)
    assert cut(2, 10, 11) == (2, 9)


def test_sequences_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    theirs = transformers.BertTokenizer(vocab=vocabulary)
    # Of two equally long sentences BERT cuts the second and this tokeniser the first: 12 tokens part evenly.
    split = opened(tmp_path, sequence_length=15).splits["train"]
    for (_, first, second), tokens, segments in zip(ROWS, split.tokens_T, split.segments_T, strict=True):
        wanted = theirs(first, second, truncation="longest_first", max_length=15)
        assert tokens.tolist() == wanted["input_ids"]
        assert segments.tolist() == wanted["token_type_ids"]
    assert len(split.tokens_T[2]) == 15


def test_a_batch_holds_the_asked_pairs_in_the_asked_order(tmp_path: Path) -> None:
    corpus = opened(tmp_path)
    split = corpus.splits["train"]
    batch = split.batch([2, 0])
    assert batch.tokens_N.tolist() == [*split.tokens_T[2], *split.tokens_T[0]]
    assert batch.segments_N.tolist() == [*split.segments_T[2], *split.segments_T[0]]
    assert batch.lengths_B.tolist() == [14, 12]
    assert batch.labels_B.tolist() == [1, 1]  # labels are no, yes
    assert split.batch([1]).labels_B.tolist() == [0]
    assert batch.tokens_N.dtype == batch.labels_B.dtype == torch.int64
    with pytest.raises(ValueError, match="no pairs"):
        split.batch([])


def test_the_fingerprint_knows_all_that_is_read(tmp_path: Path) -> None:
    same, other = [], []
    for name, rows, changes in (
        ("one", ROWS, {}),
        ("two", ROWS, {"batch_sequences": 7}),
        ("label", [("no", *ROWS[0][1:]), *ROWS[1:]], {}),
        ("order", [ROWS[1], ROWS[0], ROWS[2]], {}),
        ("cut", ROWS, {"sequence_length": 13}),
        ("names", [(f"{label}!", *rest) for label, *rest in ROWS], {}),
    ):
        (tmp_path / name).mkdir()
        fingerprint = opened(tmp_path / name, rows, **changes).fingerprint  # type: ignore[arg-type]
        (same if name in ("one", "two") else other).append(fingerprint)
    assert same[0] == same[1]
    assert len({*same, *other}) == 5


def test_the_positive_label(tmp_path: Path) -> None:
    assert opened(tmp_path).positive == 1
    assert opened(tmp_path, positive_label="no").positive == 0
    assert opened(tmp_path, [*ROWS, ("maybe", "a", "b")]).positive is None
    with pytest.raises(UserError, match="positive label 'si' is not among those of the training pairs, no, yes"):
        opened(tmp_path, positive_label="si")
    with pytest.raises(UserError, match="F1 is of one of two labels, and there are 3"):
        opened(tmp_path, [*ROWS, ("maybe", "a", "b")], positive_label="yes")


def test_labels_outside_those_of_the_training_pairs_are_refused(tmp_path: Path) -> None:
    train = file_of(tmp_path, ROWS)
    dev = file_of(tmp_path, [("yes", "a", "b"), ("perhaps", "a", "b")], "dev.tsv")
    with pytest.raises(UserError, match=r"dev.tsv:3: label 'perhaps' is not among"):
        open_labelled(PairDataConfig(corpus=str(train), valid_file=str(dev)), TOKENISER)


def test_without_a_second_file_every_tenth_pair_validates(tmp_path: Path) -> None:
    rows = [(("no", "yes")[i % 2], WORDS[i % 6], WORDS[(i + i // 6) % 6]) for i in range(25)]
    corpus = open_labelled(PairDataConfig(corpus=str(file_of(tmp_path, rows))), TOKENISER)
    assert [len(corpus.splits[name]) for name in ("train", "valid")] == [23, 2]
    held_out = [TOKENISER.encode_many([rows[i][1]])[0] for i in (9, 19)]
    assert [
        tokens[1 : 1 + len(ids)].tolist() for tokens, ids in zip(corpus.splits["valid"].tokens_T, held_out, strict=True)
    ] == held_out
    with pytest.raises(UserError, match=r"9 pair\(s\), too few to hold every tenth out"):
        open_labelled(PairDataConfig(corpus=str(file_of(tmp_path, rows[:9]))), TOKENISER)


def test_what_is_saved_is_enough_to_judge_pairs(tmp_path: Path) -> None:
    corpus = opened(tmp_path)
    corpus.save_vocabularies(tmp_path)
    assert json.loads((tmp_path / "labels.json").read_text()) == ["no", "yes"]
    assert TextTokeniser.load(tmp_path / "tokenizer.json").to_json() == corpus.tokeniser.to_json()
    assert np.array_equal(corpus.splits["train"].labels, [1, 0, 1])
