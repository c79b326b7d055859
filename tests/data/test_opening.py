"""The corpus a run opens: the toy language is the same everywhere, and its chance loss is a closed
form.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import toy
from normscope.data.opening import DataConfig, open_corpus, toy_corpus
from normscope.data.parallel.corpus import Corpus
from normscope.data.toy import toy_pairs
from normscope.errors import UserError


def test_the_toy_corpus_has_the_same_fingerprint_in_every_process() -> None:
    program = (
        "from normscope.data import opening; "
        f"opening._TOY_HELD_OUT = {toy.HELD_OUT}; print(opening.toy_corpus(40).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == toy_corpus(40).fingerprint
    assert toy_corpus(41).fingerprint != toy_corpus(40).fingerprint


def test_more_training_pairs_leave_the_first_ones_and_the_held_out_ones_as_they_are() -> None:
    few, many = toy_corpus(20), toy_corpus(60)
    assert [few.splits["train"].target[i].tolist() for i in range(20)] == [
        many.splits["train"].target[i].tolist() for i in range(20)
    ]
    assert few.splits["valid"].target_text == many.splits["valid"].target_text
    assert len(few.splits["valid"]) == len(few.splits["test"]) == toy.HELD_OUT
    assert toy.AS_SHIPPED == 500


def test_every_word_is_in_the_vocabulary_and_comes_back() -> None:
    corpus = toy_corpus(200)
    pairs = toy_pairs(200, seed=1, split="train")
    for i, (_, english) in enumerate(pairs):
        ids = corpus.splits["train"].target[i]
        assert corpus.codec.decode_target_tokenised(ids[:-1]) == english
    assert corpus.codec.joint


def test_a_folder_that_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no corpus at .*nowhere.*normscope data prepare.*'toy'"):
        open_corpus(DataConfig(corpus=str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match="not a corpus"):
        open_corpus(DataConfig(corpus=str(tmp_path)))
    assert isinstance(open_corpus(DataConfig(toy_pairs=3)), Corpus)
    with pytest.raises(ValueError, match="must be at least 1"):
        DataConfig(toy_pairs=0)


def test_the_other_direction_has_the_same_pairs_in_each_other_s_place() -> None:
    there, back = (
        open_corpus(DataConfig(toy_pairs=5, reverse=reverse)) for reverse in (False, True)
    )
    for name, split in there.splits.items():
        other = back.splits[name]
        assert [other.source[i].tolist() for i in range(len(split))] == [
            split.target[i].tolist() for i in range(len(split))
        ]
        assert [other.target[i].tolist() for i in range(len(split))] == [
            split.source[i].tolist() for i in range(len(split))
        ]
    assert back.splits["valid"].source_text == there.splits["valid"].target_text
    assert (back.source.form.language, back.target.form.language) == ("en", "de")
    assert back.fingerprint != there.fingerprint
    assert back.reversed().fingerprint == there.fingerprint


def test_a_corpus_read_backwards_is_the_one_prepared_so() -> None:
    """Its fingerprint is that of lines given in the other order to the same vocabularies."""
    corpus = toy_corpus(30)
    lines = {"train": toy_pairs(30, seed=1, split="train")}
    codec = corpus.reversed().codec
    english_first = {
        name: ([english for _, english in pairs], [german for german, _ in pairs])
        for name, pairs in lines.items()
    }
    made = Corpus.of_lines(codec, english_first)
    whole = corpus.reversed()
    own = Corpus.in_memory(codec, {"train": whole.splits["train"]})
    assert made.fingerprint == own.fingerprint
