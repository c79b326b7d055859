"""One noun has one meaning, and the house can be measured; the whole has no limit."""

import sys
from pathlib import Path

import anatomy


def test_a_noun_has_one_meaning():
    found = anatomy.homonyms()
    assert len(found) <= anatomy.MOST_HOMONYMS, (
        f"several modules define these; rename the newest: {list(found)}"
    )


def test_sizes_are_printed(capsys, monkeypatch):
    """They are there to be looked at: nothing in the house stays away for a number of lines."""
    monkeypatch.setattr(sys, "argv", ["anatomy.py"])
    anatomy.main()
    printed = capsys.readouterr().out
    print(printed)
    assert [
        line.split()[0] for line in printed.splitlines() if line.startswith(("norm", "both"))
    ] == [
        "normscope",
        "normscope_studies",
        "both",
    ]


def test_nouns_are_classes_and_aliases_for_others(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text(
        "Item = TypeVar('Item')\n"
        "Pair = tuple[int, int]\n"
        "Number = int | float\n"
        "LIMIT = 3\n"
        "made = dict[str, int]\n"
        "class Stack: ...\n"
        "class _Hidden: ...\n"
        "_Key = tuple[int, str]\n"
        "Known = frozen()\n"
    )
    assert [noun.name for noun in anatomy.nouns(file)] == ["Item", "Pair", "Number", "Stack"]


def test_a_file_is_measured_by_what_it_says(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text(
        '"""Says\n'
        'what."""\n'
        "\n"
        "# Why.\n"
        "LIMIT = 3\n"
        '"""Of what."""\n'
        "\n"
        "\n"
        "def f(x):\n"
        "    return x + LIMIT\n"
    )
    size = anatomy.size_of([file])
    assert (size.files, size.lines, size.code_lines) == (1, 10, 3)
    assert sorted(size.docstrings) == [8, 10]
    # The module, two docstrings of two nodes, an assignment of four, and a function of ten.
    assert size.nodes == 19


def test_long_functions_are_found(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(anatomy, "SOURCE", tmp_path)
    (tmp_path / "module.py").write_text(
        "def f():\n    x = 1\n    return x\n\n\ndef g():\n    return 1\n"
    )
    assert anatomy.long_functions(most=2) == {"module.py:1 f": 3}
    assert anatomy.long_files(most=6) == {"module.py": 7}


def test_options_that_a_docstring_lists_make_no_function_long(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(anatomy, "SOURCE", tmp_path)
    (tmp_path / "module.py").write_text(
        "def f(x, y):\n"
        '    """Does.\n'
        "\n"
        "    Of it:\n"
        "        x: one.\n"
        "        y: two,\n"
        "            or three.\n"
        "\n"
        "    Such as::\n"
        "\n"
        "        f(1, 2)\n"
        '    """\n'
    )
    assert anatomy.long_functions(most=8) == {"module.py:1 f": 9}
