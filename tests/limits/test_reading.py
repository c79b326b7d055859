"""What JSON, TOML and headers of tensors are refused for, before anything is built of them."""

import json
import tomllib
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from normscope.limits.reading import MOST_DEPTH, parse_json, parse_toml, read_text, shown

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def is_finite(value):
    try:
        return bool(json.dumps(value, allow_nan=False))
    except ValueError:
        return False


@settings(max_examples=30)
@given(VALUES)
@example({"Infinity": None})
def test_ordinary_json_is_read_as_python_reads_it(value):
    text = json.dumps(value)
    if not is_finite(value):
        with pytest.raises(ValueError, match="no number of JSON"):
            parse_json(text)
    assert parse_json(text, infinite=True) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**6, "nested more than 64 deep"),
        ('{"a":' * (MOST_DEPTH + 1), "nested more than 64 deep"),
        ('{"a": 1, "a": 1}', "the key 'a' stands twice in one object"),
        ("[NaN]", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("[1e999]", "'1e999' is beyond the numbers of 64 bits"),
        ("18446744073709551616", "integer beyond 64 bits"),
        ("9" * 5000, "integer beyond 64 bits"),
        ('["\\ud800"]', "surrogates not allowed"),
        ('{"\\ud800": 1}', "surrogates not allowed"),
        ('"' + '\\"' * 10**6, "Unterminated string"),
    ],
)
def test_json_that_means_nothing_certain(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_brackets_inside_strings_and_comments_are_none():
    inside = "[{" * 100
    assert parse_json(json.dumps([inside, inside + '"'])) == [inside, inside + '"']
    text = (
        f'a = "{inside}"  # {inside}\n'
        f"b = '{inside}'\n"
        'c = """\n'
        f'{inside}"\n'
        '"""\n'
        f"d = '''{inside}'''\n"
        "e = [1.5]"
    )
    assert parse_toml(text) == tomllib.loads(text)
    numbers = "x = [" + "1.0, " * 1000 + "]"
    assert len(parse_toml(numbers)["x"]) == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 10**5, "nested more than 64 deep"),
        ("a." * 10**5 + "b = 1", "nested more than 64 deep"),
        ("[" + "a." * 10**5 + "b]", "nested more than 64 deep"),
        ("[" + "a." * 50 + "b]\n" + "c." * 50 + "d = 1", "nested more than 64 deep"),
        ("x = [" + "{a.b.c=" * 40 + "1" + "}" * 40 + "]", "nested more than 64 deep"),
        ("x = 18446744073709551616", "integer beyond 64 bits"),
        ("x = [", "Invalid value"),
    ],
)
def test_toml_beyond_the_limits(text, message):
    with pytest.raises(ValueError, match=message):
        parse_toml(text)


def test_a_file_without_an_end_is_read_no_further_than_allowed():
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        read_text(Path("/dev/zero"), most_bytes=1000)


def test_what_came_is_shown_in_a_line_whatever_it_is():
    assert shown("word") == "'word'"
    assert shown(12) == "12"
    assert shown(10**5000) == "an integer of 16,610 bits"
    assert all(len(shown(value)) <= 80 for value in ("a" * 10**6, ["a"] * 10**4, b"a" * 10**6))


def test_a_short_file_is_read_in_the_memory_of_a_short_file(tmp_path):
    file = tmp_path / "short.json"
    file.write_text("x" * 1000)
    tracemalloc.start()
    try:
        assert len(read_text(file)) == 1000
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match="more than 999 bytes"):
        read_text(file, most_bytes=999)
    assert len(read_text(file, most_bytes=1000)) == 1000
