"""Files of labelled pairs: what is read, and what is refused with file and line."""

from pathlib import Path
from typing import Any

import pytest

from normscope.data import labelled
from normscope.data.labelled import (
    hold_out,
    label_names,
    largest_share,
    read_pairs,
    refuse_unknown_labels,
)
from normscope.errors import UserError

HEADER = "label\tsentence1\tsentence2"


def written(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "pairs.tsv"
    path.write_text(end.join(lines) + end, encoding="utf-8", newline="")
    return path


def pairs(*labels: str) -> list[Any]:
    return [labelled._LabelledPair(label, f"a {i}", f"b {i}", i + 2) for i, label in enumerate(labels)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_are_found_by_name_whatever_their_order_and_quotation_marks_are_text(tmp_path: Path, end: str) -> None:
    file = written(
        tmp_path, "\ufeffid\tsecond\tjudged\tfirst", '7\t"b" said\tyes\t it\'s "a ', "8\tb2\tno\ta2", end=end
    )
    found = read_pairs(file, ("judged", "first", "second"))
    assert found == [("yes", "it's \"a", '"b" said', 2), ("no", "a2", "b2", 3)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["label\tone\ttwo", "1\ta\tb"],
            r"pairs.tsv:1: no column 'sentence1'; the first line names 'label', 'one', 'tw",
        ),
        (["label\tsentence1\tsentence1\tsentence2"], r"pairs.tsv:1: 2 columns are named 'sentence1'"),
        ([HEADER, "1\ta\tb", "0\ta"], r"pairs.tsv:3: 2 column\(s\), and the first line names 3"),
        ([HEADER, "1\ta\tb\tc"], r"pairs.tsv:2: 4 column\(s\)"),
        ([HEADER, "1\ta\tb", ""], r"pairs.tsv:3: 1 column\(s\)"),
        ([HEADER, "1\ta\t "], r"pairs.tsv:2: sentence2 is empty"),
        ([HEADER, "1\ta\tb", "\ta\tb"], r"pairs.tsv:3: label is empty"),
        ([HEADER], r"pairs.tsv: no pairs"),
    ],
)
def test_what_cannot_be_read_is_told_with_file_and_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_pairs(written(tmp_path, *lines))


def test_what_is_no_text_is_refused_as_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    with pytest.raises(UserError, match=r"pairs.tsv: no such file"):
        read_pairs(path)
    path.write_bytes(HEADER.encode() + b"\n1\ta\t\xff\n")
    with pytest.raises(UserError, match=r"pairs.tsv:2: byte 5 of the line \(0xff\) is not UTF-8"):
        read_pairs(path)


def test_every_tenth_pair_is_held_out_in_order() -> None:
    rows = pairs(*"01" * 16)
    train, valid = hold_out(rows)
    assert valid == [rows[9], rows[19], rows[29]]
    assert train == [row for row in rows if row not in valid]


def test_labels_are_those_of_the_training_pairs_sorted() -> None:
    assert label_names(Path("t"), pairs("yes", "no", "yes", "maybe")) == ("maybe", "no", "yes")
    with pytest.raises(UserError, match="every pair to train on has the label '1'; at least two"):
        label_names(Path("t"), pairs("1", "1"))
    with pytest.raises(UserError, match=r"dev.tsv:3: label '2' is not among those of the training pairs, '0', '1'"):
        refuse_unknown_labels(Path("dev.tsv"), pairs("1", "2", "3"), ("0", "1"))


def test_the_best_constant_answer() -> None:
    assert largest_share(pairs(*"0110100")) == 4 / 7


@pytest.mark.parametrize(
    ("task", "sizes", "majority"), [("mrpc", (3668, 408), 279 / 408), ("rte", (2490, 277), 146 / 277)]
)
def test_the_real_files_are_read_whole(shared: Path, task: str, sizes: tuple[int, int], majority: float) -> None:
    """Sizes and shares as data/README.md counts them."""
    train, dev = (read_pairs(shared / "data" / task / f"{name}.tsv") for name in ("train", "dev"))
    assert (len(train), len(dev)) == sizes
    assert largest_share(dev) == majority
    refuse_unknown_labels(Path("dev.tsv"), dev, label_names(Path("train.tsv"), train))
