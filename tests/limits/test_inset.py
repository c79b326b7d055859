"""A card inside a file of the user's: what stands between its two lines is written anew, and no
other byte.
"""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from normscope.errors import UserError
from normscope.limits.inset import CARD

FIRST, LAST = CARD.first.encode(), CARD.last.encode()
LINES = st.lists(st.sampled_from([b"# Mine", b"", b"| a |", b"\xff\x00", b"`" + FIRST + b"`"]))
ENDS = st.sampled_from([b"\n", b"\r\n"])
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(before=LINES, inner=LINES, after=LINES, end=ENDS, closed=st.booleans())
@in_one_folder
def test_the_rest_of_the_file_keeps_every_byte(
    before: list[bytes],
    inner: list[bytes],
    after: list[bytes],
    end: bytes,
    closed: bool,
    tmp_path: Path,
) -> None:
    file = tmp_path / "README.md"
    head = b"".join(line + end for line in before)
    tail = end + b"".join(line + end for line in after) if after or closed else b""
    file.write_bytes(head + end.join([FIRST, *inner, LAST]) + tail)
    made = CARD.set_into(file, "a card\n\n- of **mine**")
    assert made == head + FIRST + b"\na card\n\n- of **mine**\n" + LAST + tail
    file.write_bytes(made)
    assert CARD.set_into(file, "a card\n\n- of **mine**") == made
    assert CARD.kind.bears(made)


@given(lines=st.lists(st.sampled_from([FIRST, LAST, b"mine", b" " + FIRST, LAST + b" "])))
@in_one_folder
def test_a_file_without_one_place_for_it_is_refused(lines: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    content = b"\n".join([b"# Mine", *lines])
    file.write_bytes(content)
    marks = b"".join(line for line in lines if line in (FIRST, LAST))
    if marks == FIRST + LAST:
        assert re.search(
            re.escape(FIRST) + b"\nnew\n" + re.escape(LAST), CARD.set_into(file, "new")
        )
    else:
        with pytest.raises(UserError, match="has no place for a card, and stays: put the line"):
            CARD.set_into(file, "new")
    assert file.read_bytes() == content
    assert bool(CARD.kind.bears(content)) == (marks == FIRST + LAST)


@pytest.mark.parametrize("there", [None, b""])
def test_where_there_is_no_file_the_card_is_one(there: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "card.md"
    if there is not None:
        file.write_bytes(there)
    assert CARD.set_into(file, "new") == FIRST + b"\nnew\n" + LAST + b"\n"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_bytes(FIRST + b"\n" + LAST + b"\n")
    (tmp_path / "link.md").symlink_to("mine.md")
    with pytest.raises(UserError, match=r"link\.md is a link, and stays"):
        CARD.set_into(tmp_path / "link.md", "new")
    with pytest.raises(UserError, match="is a folder, and stays"):
        CARD.set_into(tmp_path, "new")
