"""The manifest: what the fingerprint depends on, and the width of stored ids."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from normscope.data.folder import (
    array_digest,
    fingerprint,
    mapped,
    open_manifest,
    token_dtype,
    write_manifest,
)
from normscope.errors import UserError

FORM = {"format_name": "normscope-test", "version": 3}


def write(folder: Path, **files: bytes) -> str:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return write_manifest(folder, **FORM, splits=["train"], preparation={"key": "k"})


def read(folder: Path) -> str:
    return open_manifest(folder, **FORM, made_by="nobody")[1]


def test_what_is_written_is_opened(tmp_path: Path) -> None:
    noted = write(
        tmp_path / "a",
        train_tokens=b"12",
        train_offsets=b"3",
        tokenizer_json=b"{}",
        train_txt=b"raw",
    )
    opened = open_manifest(tmp_path / "a", **FORM, made_by="nobody")
    assert opened == (["train"], noted, {"key": "k"})


def test_the_fingerprint_is_of_what_training_reads(tmp_path: Path) -> None:
    base = {"train_tokens": b"12", "tokenizer_json": b"{}", "train_txt": b"raw"}
    first = write(tmp_path / "a", **base)
    assert write(tmp_path / "b", **{**base, "train_txt": b"other"}) == first
    assert write(tmp_path / "c", **{**base, "train_tokens": b"13"}) != first
    assert (
        write(tmp_path / "d", valid_tokens=b"12", tokenizer_json=b"{}") != first
    )  # another split's
    digests = {
        "train.tokens": hashlib.sha256(b"12").hexdigest(),
        "tokenizer.json": hashlib.sha256(b"{}").hexdigest(),
    }
    assert fingerprint(digests) == first == fingerprint(dict(reversed(digests.items())))


def test_a_changed_missing_or_foreign_file_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a", train_tokens=b"12")
    (tmp_path / "a/train.tokens").write_bytes(b"13")
    with pytest.raises(UserError, match=r"train.tokens: damaged \(its SHA-256 has changed\)"):
        read(tmp_path / "a")
    (tmp_path / "a/train.tokens").unlink()
    with pytest.raises(UserError, match=r"train.tokens: no such file"):
        read(tmp_path / "a")
    with pytest.raises(
        UserError,
        match=r"of format .normscope-test., not a normscope-other file; `a command` makes one",
    ):
        open_manifest(
            tmp_path / "a", format_name="normscope-other", version=3, made_by="`a command`"
        )
    with pytest.raises(UserError, match="absent: no such folder; prepare a corpus there first"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(("size", "bytes_each"), [(2, 2), (65_535, 2), (65_536, 4), (100_000, 4)])
def test_the_largest_id_fits(size: int, bytes_each: int) -> None:
    dtype = token_dtype(size)
    assert dtype.itemsize == bytes_each
    assert np.array([size - 1]).astype(dtype).tolist() == [size - 1]


def test_an_array_s_digest_is_that_of_its_file(tmp_path: Path) -> None:
    array = np.arange(20)[::2]
    (tmp_path / "file").write_bytes(array.astype("<u2").tobytes())
    assert (
        array_digest(array, "<u2") == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()
    )
    assert mapped(tmp_path / "file", "<u2").tolist() == array.tolist()
    with pytest.raises(UserError, match="absent: missing or damaged"):
        mapped(tmp_path / "absent", "<u2")
