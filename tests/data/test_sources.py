"""Texts of records and of packed files: what a library wrote is read back, and what is no text is
told.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.data.documents.text import documents_in
from normscope.data.parallel.preparation import PrepareConfig, pairs_in
from normscope.data.sources import has_records, source_bytes, source_sha256, texts_in
from normscope.errors import UserError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import ipc, parquet  # noqa: E402

TEXTS = [
    "One text.\nOf two lines.",
    "",
    "Straße – 漢字 \u2028 and on",
    "The last one.",
    *(f"text {i}" for i in range(600)),
]


def json_lines(folder: Path) -> Path:
    path = folder / "texts.jsonl.gz"
    records = [{"id": i, "meta": {"n": 1.5}, "text": text} for i, text in enumerate(TEXTS)]
    path.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in records).encode()))
    return path


def parquet_file(folder: Path) -> Path:
    table = pyarrow.table(
        {"id": list(range(len(TEXTS))), "text": pyarrow.array(TEXTS).dictionary_encode()}
    )
    parquet.write_table(table, folder / "texts.parquet", row_group_size=100)
    return folder / "texts.parquet"


def dataset(folder: Path) -> Path:
    """As `datasets` saves it: the names and the format of its files."""
    out = folder / "dataset"
    out.mkdir()
    names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
    for name, texts in zip(names, (TEXTS[:5], TEXTS[5:]), strict=True):
        batch = pyarrow.record_batch({"text": pyarrow.array(texts, pyarrow.large_string())})
        with (
            pyarrow.OSFile(str(out / name), "wb") as sink,
            ipc.new_stream(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)
    state(out, _data_files=[{"filename": name} for name in names])
    return out


def state(folder: Path, **changes: object) -> None:
    (folder / "state.json").write_text(
        json.dumps({"_fingerprint": "f", "_data_files": [], **changes})
    )


@pytest.mark.parametrize("write", [json_lines, parquet_file, dataset])
def test_what_was_written_is_read_back_in_order(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path, told = write(tmp_path), list[int]()
    assert has_records(path)
    assert list(texts_in(path, "text", told.append)) == list(enumerate(TEXTS, 1))
    assert 0 < told[-1] <= source_bytes([path])
    found = [document.sentences for document in documents_in([path], "paragraphs", "en")]
    assert found[:2] == [["One text.", "Of two lines."], ["Straße – 漢字 and on"]]
    assert len(found) == len(TEXTS) - 1
    before = source_sha256(path)
    changed = next(iter(path.glob("*-00001-*"))) if path.is_dir() else path
    changed.write_bytes(changed.read_bytes() + b"\n")
    assert source_sha256(path) != before


def test_a_dataset_of_the_library_itself_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"text": TEXTS, "n": list(range(len(TEXTS)))})
    datasets.disable_progress_bars()
    made.shuffle(seed=1).save_to_disk(str(tmp_path / "shuffled"))
    expected = [TEXTS[n] for n in made.shuffle(seed=1)["n"]]
    assert [text for _, text in texts_in(tmp_path / "shuffled", "text")] == expected
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(
        UserError, match=r"holds several splits; give one of them: \S+splits/train$"
    ):
        list(texts_in(tmp_path / "splits", "text"))
    assert len(list(texts_in(tmp_path / "splits/train", "text"))) == len(TEXTS)


def test_wikitext_in_records_is_one_text(tmp_path: Path) -> None:
    lines = [
        "",
        " = First = \n",
        "",
        " Some text . \n",
        " = Played , W = \n",
        "",
        " = Second = \n",
        "",
        " More . \n",
    ]
    (tmp_path / "wiki.jsonl").write_text(
        "".join(json.dumps({"text": line}) + "\n" for line in lines)
    )
    found = [
        document.sentences for document in documents_in([tmp_path / "wiki.jsonl"], "wikitext", "en")
    ]
    assert found == [["= First =", "Some text .", "= Played , W ="], ["= Second =", "More ."]]


def test_pairs_come_from_fields_of_one_file_and_have_a_line_each(tmp_path: Path) -> None:
    rows = [{"de": "Ein\nHund", "en": "A dog"}, {"de": None, "en": "Nothing"}]
    path = tmp_path / "pairs.parquet"
    parquet.write_table(pyarrow.table({"translation": rows}), path)
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(file: Path, fields: tuple[str, str] | None) -> PrepareConfig:
        return PrepareConfig(
            out=tmp_path,
            source_language="de",
            target_language="en",
            splits={"train": (file, file)},
            vocabulary_size=9,
            fields=fields,
        )

    expected = [("Ein Hund", "A dog"), ("", "Nothing")]
    assert (
        list(pairs_in(path, path, config(path, ("translation.de", "translation.en")))) == expected
    )
    flat = tmp_path / "flat.jsonl"
    assert list(pairs_in(flat, flat, config(flat, None))) == expected
    assert config(flat, None).options().keys() == config(flat, ("a", "b")).options().keys() - {
        "fields"
    }


def test_zstandard_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text.txt.zst"
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.CompressedOutputStream(file, "zstd") as packed,
    ):
        packed.write(b"one\ntwo\r\nthree")
    assert list(texts_in(path, "text")) == [(1, "one"), (2, "two"), (3, "three")]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"text.txt.zst"):
        list(texts_in(path, "text"))


def _bytes(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def _dataset(**changes: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        out = dataset(folder)
        state(out, **changes)
        return out

    return write


def _nul(suffix: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        table = pyarrow.table({"text": ["x", "a\0b"]})
        if suffix == ".parquet":
            parquet.write_table(table, folder / "a.parquet")
        else:
            with ipc.new_stream(folder / "a.arrow", table.schema) as writer:
                writer.write_table(table)
        return folder / f"a{suffix}"

    return write


def _name_of_bytes(folder: Path) -> Path:
    table = pyarrow.table({"text": ["x"], "name": ["y"]})
    with ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    return _bytes("a.arrow", (folder / "a.arrow").read_bytes().replace(b"name", b"n\xffme"))(folder)


def _long_word(name: str) -> Callable[[Path], Path]:
    text = "so " + "ab" * 50_000 + "c and"
    return _bytes(name, f"one\n{text}\n".encode() if name == "a.txt" else _rows("one", text))


def _rows(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def test_a_long_text_without_blanks_is_read_where_sentences_end(tmp_path: Path) -> None:
    """Chinese is written so; and what has just as many characters as a word may have is read
    too.
    """
    texts = ["漢字です。" * 30_000, "ab" * 50_000]
    path = _bytes("a.jsonl", _rows(*texts))(tmp_path)
    assert [text for _, text in texts_in(path, "text")] == texts


@pytest.mark.parametrize(
    ("write", "field", "message"),
    [
        (
            json_lines,
            "body",
            "gz:1: 'body' is no such field; it has id, meta.n, text; name the field of the",
        ),
        (json_lines, "meta.n", r":1: 'meta.n' is 1.5, not text; it has"),
        (
            _bytes("a.jsonl", b'{"text": "x"}\n[1]\n'),
            "text",
            r"a.jsonl:2: \[1\] is no object; give one with a field",
        ),
        (
            _bytes("a.json", b'[\n{"text": 1}]'),
            "text",
            "a.json:1: not JSON .*; give JSON lines, an object with",
        ),
        (
            _bytes("a.jsonl", b"[" * 999),
            "text",
            "a.jsonl:1: not JSON .lists, tables or keys are nested more than 64",
        ),
        (
            _bytes("a.jsonl", b'{"text": "x"}\n{"text": "a\\u0000b"}\n'),
            "text",
            r"a.jsonl:2: NUL in the text, which no",
        ),
        (
            _nul(".parquet"),
            "text",
            r"a.parquet, row 2: NUL in the text, which no text has; take it out",
        ),
        (_nul(".arrow"), "text", r"a.arrow, row 2: NUL in the text"),
        (
            _long_word("a.txt"),
            "text",
            r"a.txt:2: a word of 100,001 characters, at most 100,000 are allowed; is this",
        ),
        (
            _long_word("a.jsonl"),
            "text",
            r"a.jsonl:2: a word of 100,001 characters, at most 100,000 are allowed",
        ),
        (
            _bytes("a.jsonl", b""),
            "text",
            "empty file; give a text file with one JSON object a line",
        ),
        (
            parquet_file,
            "body",
            "no field 'body' in it; it has id, text; name the field of the text",
        ),
        (parquet_file, "id", "the field 'id' holds int64, not text; name the field of the text"),
        (
            _bytes("a.parquet", b"PAR1 but not really PAR1"),
            "text",
            "no Parquet file, or a damaged one",
        ),
        (_bytes("a.arrow", b"no arrow" * 9), "text", "no Arrow file, or a damaged one"),
        (_name_of_bytes, "text", "no Arrow file, or a damaged one .*utf-8"),
        (lambda folder: folder, "text", "no dataset saved by save_to_disk .no state.json in it"),
        (
            _dataset(_data_files=[{"filename": "../absent.arrow"}]),
            "text",
            "dataset/absent.arrow: no such file",
        ),
        (_dataset(_data_files=3), "text", "state.json: damaged .*; save the dataset again"),
        (_dataset(), "text", "a dataset without rows; give one with text"),
        (
            _dataset(_data_files=[{"filename": "x"}], _indices_data_files=[1]),
            "text",
            "call flatten_indices.. before",
        ),
    ],
)
def test_what_is_no_text_is_told(
    write: Callable[[Path], Path], field: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path)
    with pytest.raises(UserError, match=message):
        list(texts_in(path, field))


@pytest.mark.parametrize("write", [parquet_file, dataset])
def test_a_changed_byte_is_told_or_harmless(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Every 61st byte of a file in turn: a text comes out of it, or one line of error, and no
    crash.
    """
    path = write(tmp_path)
    file = path if path.is_file() else next(path.glob("*-00000-*"))
    content = file.read_bytes()
    told = []
    for at in range(0, len(content), max(1, len(content) // 61)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            list(texts_in(path, "text"))
        except UserError as error:
            told.append(str(error))
    assert told
    assert not [line for line in told if "\n" in line]
