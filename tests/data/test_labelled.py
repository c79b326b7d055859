"""Labelled sentences: every kind of file, what is wrong with one, and the token ids of pairs."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from normscope.data.labelled import LabelledTable, cut_lengths, encoded, read_labelled
from normscope.data.opening import toy_documents
from normscope.errors import UserError
from normscope.tasks.words import of_encoder

MRPC = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said "no .\tNo , he said .\n'


def rows(table: LabelledTable) -> list[tuple[str, ...]]:
    return [(row.label, *row.sentences) for row in table.rows]


def file(folder: Path, name: str, text: str) -> Path:
    made = folder / name
    made.write_text(text, encoding="utf-8")
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A quotation mark that is not closed is a character: MRPC has such sentences.
        (MRPC, ("1", 'He said "no .', "No , he said .")),
        ("index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n", ("entailment", "a b", "c")),
        ("sentence\tlabel\na fine film\t1\n", ("1", "a fine film")),
    ],
    ids=["MRPC", "RTE", "SST-2"],
)
def test_the_columns_of_glue_are_known(
    tmp_path: Path, text: str, expected: tuple[str, ...]
) -> None:
    assert rows(read_labelled(file(tmp_path, "train.tsv", text))) == [expected]


def test_other_columns_are_named(tmp_path: Path) -> None:
    given = file(tmp_path, "train.tsv", "question\tanswer\tjudged\nq\ta\tright\n")
    columns = ("judged", "question", "answer")
    assert rows(read_labelled(given, columns)) == [("right", "q", "a")]
    assert rows(read_labelled(given, ("judged", "answer"))) == [("right", "a")]


def test_csv_may_quote_commas_and_line_breaks(tmp_path: Path) -> None:
    text = 'label,sentence\nyes,"a, b"\nno,"one ""line""\nand another"\nyes,plain\n'
    table = read_labelled(file(tmp_path, "train.csv", text))
    assert rows(table) == [
        ("yes", "a, b"),
        ("no", 'one "line"\nand another'),
        ("yes", "plain"),
    ]
    assert [row.place.rpartition(":")[2] for row in table.rows] == ["2", "3", "5"]


def test_packed_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(b"label\tsentence\n1\ta\n"))
    assert rows(read_labelled(tmp_path / "train.tsv.gz")) == [("1", "a")]


def test_parquet_labels_may_be_numbers(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (the `parquet` extra)")
    from pyarrow import parquet

    columns = {"idx": [[1], [2]], "sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [0, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet")
    assert rows(read_labelled(tmp_path / "train.parquet")) == [("0", "a", "c"), ("1", "b", "d")]
    with pytest.raises(UserError, match="no column 'idx'; its columns are 'sentence1'"):
        read_labelled(tmp_path / "train.parquet", ("idx", "sentence1"))
    parquet.write_table(
        pyarrow.table({"label": [1, None], "sentence": ["a", "b"]}), tmp_path / "null.parquet"
    )
    with pytest.raises(UserError, match=r"null\.parquet, row 2: label is empty"):
        read_labelled(tmp_path / "null.parquet")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "label\tsentence\n1\ta\tb\n", r"a\.tsv:2: 3 column\(s\), and the first line"),
        ("a.tsv", "label\tsentence\n1\ta\n\n", r"a\.tsv:3: 1 column"),
        ("a.tsv", "label\tsentence\n1\t \n", r"a\.tsv:2: sentence is empty"),
        ("a.tsv", "label\tsentence\n\ta\n", r"a\.tsv:2: label is empty"),
        ("a.tsv", "label\tsentence\n", "no rows below the names"),
        ("a.tsv", "label\tlabel\tsentence\n1\t1\ta\n", "2 columns are named 'label'"),
        ("a.tsv", "judged\ttext\n1\ta\n", "its columns are 'judged', 'text', and not those"),
        ("a.csv", 'label,sentence\n1,"a\n', r"a\.csv:2: no CSV"),
        ("a.tsv", "", "empty file"),
        ("a.xlsx", "x", "read from .tsv, .csv and .parquet"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        read_labelled(file(tmp_path, name, text))


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    given = file(tmp_path, "a.tsv", "label\tsentence\n1\ta\n")
    with pytest.raises(UserError, match="no column 'text'; its columns are 'label', 'sentence'"):
        read_labelled(given, ("label", "text"))
    with pytest.raises(UserError, match="names the label's column and one or two of sentences"):
        read_labelled(given, ("label",))


def table(folder: Path, name: str, *given: str) -> LabelledTable:
    header = "label\tsentence1\tsentence2" if given[0].count("\t") > 1 else "label\tsentence"
    return read_labelled(file(folder, name, "\n".join([header, *given]) + "\n"))


def test_labels_of_train_and_dev_must_go_together(tmp_path: Path) -> None:
    tokeniser = toy_documents().tokeniser
    train = table(tmp_path, "train.tsv", "a\tthe dog", "b\tthe man")
    with pytest.raises(UserError, match=r"dev\.tsv:3: the label 'c' is not among those to train"):
        encoded(train, table(tmp_path, "dev.tsv", "a\tx", "c\ty"), tokeniser, sequence_length=16)
    with pytest.raises(UserError, match="every row to train on has the label 'a'"):
        encoded(table(tmp_path, "one.tsv", "a\tx", "a\ty"), train, tokeniser, sequence_length=16)
    with pytest.raises(UserError, match=r"one sentence and .*two\.tsv has two sentences"):
        encoded(train, table(tmp_path, "two.tsv", "a\tx\ty"), tokeniser, sequence_length=16)


def test_pairs_are_encoded_as_the_exported_tokeniser_encodes_them(tmp_path: Path) -> None:
    tokeniser = toy_documents().tokeniser
    given = [("a", "the man sees the dog .", "who sleeps ?"), ("b", "she reads .", "a dog [MASK]")]
    train = table(tmp_path, "train.tsv", *("\t".join(row) for row in given))
    data = encoded(train, train, tokeniser, sequence_length=64)
    theirs = Tokenizer.from_str(of_encoder(tokeniser).files["tokenizer.json"])
    # What merely spells a special token is text of ours.
    expected = [theirs.encode(a, b.replace("[MASK]", "[UNK]")) for _, a, b in given]
    assert [row.tolist() for row in data.train.tokens_T] == [one.ids for one in expected]
    assert [row.tolist() for row in data.train.segments_T] == [one.type_ids for one in expected]
    assert (data.labels, data.train.labels_P.tolist(), data.cut) == (("a", "b"), [0, 1], 0)


def test_a_batch_is_filled_up_on_the_right(tmp_path: Path) -> None:
    tokeniser = toy_documents().tokeniser
    train = table(tmp_path, "train.tsv", "a\tthe dog sleeps .", "b\tshe")
    data = encoded(train, train, tokeniser, sequence_length=16)
    batch = data.batch([data.train[1], data.train[0]])
    lengths = [len(data.train.tokens_T[row]) for row in (1, 0)]
    assert batch["attention_mask"].sum(1).tolist() == lengths
    for row, (number, length) in enumerate(zip((1, 0), lengths, strict=True)):
        assert batch["input_ids"][row, :length].tolist() == data.train.tokens_T[number].tolist()
        assert (batch["input_ids"][row, length:] == tokeniser.ids["[PAD]"]).all()
        assert (batch["attention_mask"][row, :length] == 1).all()
    assert batch["labels"].tolist() == [1, 0]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def truncated_as_bert_does(first: list[int], second: list[int], room: int) -> None:
    """`_truncate_seq_pair` of google-research/bert."""
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()


def test_long_pairs_are_cut_as_bert_cuts_them() -> None:
    generator = np.random.default_rng(1)
    for a, b, room in generator.integers(1, 12, (200, 3)).tolist():
        first, second = list(range(a)), list(range(b))
        truncated_as_bert_does(first, second, room)
        assert cut_lengths([a, b], room) == [len(first), len(second)]
        assert cut_lengths([a], room) == [min(a, room)]


def test_what_is_cut_is_counted_and_keeps_its_separators(tmp_path: Path) -> None:
    tokeniser = toy_documents().tokeniser
    long = "the dog and the man and the woman see the old house ."
    train = table(tmp_path, "train.tsv", f"a\t{long}\t{long}", "b\tshe\the")
    data = encoded(train, train, tokeniser, sequence_length=12)
    ids = data.train.tokens_T[0].tolist()
    assert (len(ids), data.cut) == (12, 2)
    assert [place for place, one in enumerate(ids) if one == tokeniser.ids["[SEP]"]] == [6, 11]


@pytest.mark.parametrize(
    ("task", "train", "dev", "majority", "majority_in_dev"),
    [("mrpc", 3668, 408, "1", 279), ("rte", 2490, 277, "entailment", 146)],
)
def test_the_real_files_of_glue_are_read_whole(
    shared: Path, task: str, train: int, dev: int, majority: str, majority_in_dev: int
) -> None:
    tables = [read_labelled(shared / "data" / task / f"{name}.tsv") for name in ("train", "dev")]
    assert [len(table.rows) for table in tables] == [train, dev]
    assert tables[0].majority == majority
    assert sum(row.label == majority for row in tables[1].rows) == majority_in_dev
