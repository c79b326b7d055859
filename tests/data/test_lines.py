import gzip
import hashlib
import lzma
import os

import pytest
from hypothesis import given, strategies as st

from normscope.data.lines import file_sha256, read_lines
from normscope.errors import UserError


def pack(suffix, data):
    return {
        "": lambda: data,
        ".gz": lambda: gzip.compress(data),
        ".xz": lambda: lzma.compress(data),
    }[suffix]()


@pytest.fixture(params=["", ".gz", ".xz"])
def suffix(request):
    return request.param


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last_line_ends", [True, False])
def test_lines_and_their_numbers(tmp_path, suffix, ending, last_line_ends):
    path = tmp_path / f"text{suffix}"
    data = ending.join(["für".encode(), b"", "a\u2028b\u0085c\x0bd\re".encode(), b"end"])
    path.write_bytes(pack(suffix, data + (ending if last_line_ends else b"")))
    assert list(read_lines(path)) == [
        (1, "für"),
        (2, ""),
        (3, "a\u2028b\u0085c\x0bd\re"),
        (4, "end"),
    ]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\n\r\ufeff")),
        min_size=1,
    )
)
def test_any_text_comes_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert [line for _, line in read_lines(path)] == lines


def test_byte_order_mark_is_left_out_at_the_beginning_only(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\n\ufefftwo\n".encode())
    assert [line for _, line in read_lines(path)] == ["one", "\ufefftwo"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"good\nbad \xff here\n", ":2: byte 5 of the line \\(0xff\\) is not UTF-8"),
        (b"good\ngood\n\xc3", ":3: byte 1 of the line"),
        (b"good\na\0b\n", ":2: NUL byte"),
        ("text\n".encode("utf-16"), ":1: NUL byte"),
        (b"good\n" + b"x" * 10_000_000, ":2: line of .* bytes or more, at most 1000000"),
    ],
)
def test_bad_content_is_told_with_its_line(tmp_path, suffix, data, message):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(pack(suffix, data))
    with pytest.raises(UserError, match=message) as told:
        list(read_lines(path))
    assert str(told.value).startswith(str(path))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_the_limit_is_exact(tmp_path, ending):
    path = tmp_path / "text"
    path.write_bytes(b"x" * 10 + ending)
    assert list(read_lines(path, max_line_bytes=10)) == [(1, "x" * 10)]
    with pytest.raises(UserError, match=":1: line of 10 bytes or more, at most 9"):
        list(read_lines(path, max_line_bytes=9))


def test_a_long_line_is_not_read_whole(tmp_path):
    tracemalloc = pytest.importorskip("tracemalloc")
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"x" * 30_000_000))
    tracemalloc.start()
    with pytest.raises(UserError, match="line of"):
        list(read_lines(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8_000_000


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda packed: packed[:-20], "cut short|corrupt"),
        (lambda packed: b"plain text\n", "or a corrupt one"),
        (
            lambda packed: packed[:60] + bytes(b ^ 0xFF for b in packed[60:90]) + packed[90:],
            "corrupt|not UTF-8|NUL",
        ),
    ],
)
def test_damaged_archives_are_told(tmp_path, suffix, harm, message):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(harm(pack(suffix, b"".join(b"line %d\n" % (i * i) for i in range(2000)))))
    with pytest.raises(UserError, match=message):
        list(read_lines(path))


def test_what_is_not_a_file_is_told(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(UserError, match="is a folder"):
        list(read_lines(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not a regular file"):
        list(read_lines(tmp_path / "pipe"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="no such file"):
        file_sha256(tmp_path / "absent")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_no_permission_is_told(tmp_path):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(UserError, match="no permission"):
        list(read_lines(path))


def test_digest_is_of_the_bytes_on_the_disk(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"text\n"))
    assert file_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
