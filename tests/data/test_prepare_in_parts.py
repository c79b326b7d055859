"""Preparations in parts: the same bytes for any number and size of parts, processes and kills."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kill_preparations import Make, child, documents, ended, pairs, stored, undisturbed
from normscope.data import words as data_words, work
from normscope.data.documents import text as parts
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.prepare import DocumentsConfig, prepare_documents
from normscope.data.parallel.vocabulary import Vocabulary


@pytest.mark.parametrize("kind", [documents, pairs])
def test_neither_parts_nor_processes_nor_kills_change_a_byte(
    kind: Callable[[Path], Make], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, out = kind(tmp_path), tmp_path / "corpus"
    make(out, 1)
    in_one_part = stored(out)
    shutil.rmtree(out)
    wanted, operations = undisturbed(make, out)
    assert wanted == in_one_part
    # One after the other, each further on than the last; what was whole by then is found again.
    for at in range(operations // 6, operations, operations // 6):
        if ended(child(make, out, kill_at=at)):
            break
        assert [path.name for path in tmp_path.glob(".*")] == [".unfinished-corpus"]
    monkeypatch.setattr(work, "PART_CHARACTERS", 3000)
    make(out, 2)
    assert stored(out) == wanted
    assert not list(tmp_path.glob(".*"))


def test_what_is_done_is_not_done_again_and_other_work_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, out = documents(tmp_path), tmp_path / "corpus"
    wanted, operations = undisturbed(make, out)
    assert not ended(child(make, out, kill_at=operations - 8))
    left = tmp_path / ".unfinished-corpus/parts"
    assert (left / "read.json").exists()
    # A child that is given nothing to read, and does not need to.
    with monkeypatch.context() as patch:
        patch.setattr(parts, "paragraphs_in", lambda *a: pytest.fail("read again"))
        assert ended(child(make, out))
    assert stored(out) == wanted
    shutil.rmtree(out)
    assert not ended(child(make, out, kill_at=operations - 8))
    monkeypatch.setattr(
        work, "PART_CHARACTERS", 10**6
    )  # by which these are too small to be worth going on with
    make(out, 1)
    assert stored(out) == wanted


def test_work_is_kept_when_it_is_stopped_from_a_whole_part_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents(tmp_path)
    config = DocumentsConfig(
        out=tmp_path / "corpus",
        splits={"train": (tmp_path / "text.txt",)},
        tokeniser="bpe",
        vocabulary_size=300,
    )

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "learn":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_documents(config, stop)
    assert not list(tmp_path.glob(".*"))
    monkeypatch.setattr(work, "PART_CHARACTERS", 1500)
    with pytest.raises(KeyboardInterrupt):
        prepare_documents(config, stop)
    note = (tmp_path / ".unfinished-corpus/parts/work.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):  # another option, other work
        prepare_documents(replace(config, lowercase=True), stop)
    assert (tmp_path / ".unfinished-corpus/parts/work.json").read_bytes() != note
    (tmp_path / ".unfinished-corpus/parts/work.json").write_bytes(b"damaged")
    prepare_documents(config)
    assert not list(tmp_path.glob(".*"))


def test_a_document_longer_than_a_part_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "\n".join(f"The horse number {number} stands here." for number in range(60))
    (tmp_path / "text").write_text(f"First house.\n\n{long}\n\nThe last horse.\n", encoding="utf-8")
    valid = tmp_path / "valid"
    valid.write_text("One horse.\n\nAnother house.\n", encoding="utf-8")
    config = DocumentsConfig(
        out=tmp_path / "corpus",
        splits={"train": (tmp_path / "text",), "valid": (valid,)},
        tokeniser="bpe",
        vocabulary_size=270,
    )
    monkeypatch.setattr(work, "PART_CHARACTERS", 200)
    report = prepare_documents(config)
    train = DocumentCorpus.open(report.out).splits["train"]
    assert train.documents[:].tolist() == [0, 1, 61, 62]
    assert report.counts["documents"] == {"train": 3, "valid": 2}
    assert report.counts["words"]["train"] == 2 + 60 * 6 + 3


def test_of_very_many_words_the_most_frequent_are_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = data_words.added(Counter({"a": 3, "b": 2}), Counter({"b": 5}))
    assert data_words.most_frequent(exact) == {"a": 3, "b": 7}
    monkeypatch.setattr(data_words, "MOST_WORDS", 2)
    counts = Counter[str]()
    for more in ({"a": 3, "b": 2, "c": 2}, {"d": 1, "e": 9, "c": 1}, {"b": 1}):
        counts = data_words.added(counts, Counter(more))
    # Of five the two most frequent stay, so that b begins anew; b's last one is one too few to be
    # among them.
    assert data_words.most_frequent(counts) == {"e": 9, "a": 3}
    monkeypatch.setattr(data_words, "MOST_LEARNED_FROM", 100)
    assert [data_words.counted_every(words) for words in (0, 1, 100, 101, 200, 201)] == [
        1,
        1,
        1,
        2,
        2,
        3,
    ]


def test_a_vocabulary_is_the_same_in_whatever_order_words_were_counted() -> None:
    lines = [f"the horse {number} runs under the bridges {number * 7}" for number in range(60)]
    counts = {
        word: " ".join(lines).split().count(word)
        for line in reversed(lines)
        for word in line.split()
    }
    forwards = Counter(word for line in lines for word in line.split())
    assert (
        Vocabulary.of_counts(forwards, 60).to_json() == Vocabulary.of_counts(counts, 60).to_json()
    )
