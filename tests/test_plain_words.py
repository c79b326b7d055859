"""Words that a reader had to read twice stand in no message, on no page and in nothing of the
manual.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "src" / "normscope"
_NAME = re.compile(r"[\w.-]+")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_ROW = re.compile(r"^\| (.+?) \| .+ \|$", re.MULTILINE)


def former() -> list[str]:
    """What CONTRIBUTING.md lists below **Words**."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("**Words**")[2]
    return _ROW.findall(table.partition("**Commits**")[0])[2:]


def said(file: Path) -> str:
    """What a Python file can print: its strings, without docstrings and without names such as the
    keys of a JSON file; the command line prints its docstrings too.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        is_unread = id(node) in alone and file.parent.name != "cli"
        if not is_unread and not _NAME.fullmatch(node.value):
            strings.append(node.value)
    return "\n".join(strings)


def prose(text: str) -> str:
    """What Markdown says in words: without code, which has the names that programs read."""
    return _CODE.sub("", text)


def stands_in(word: str, text: str) -> bool:
    """Whether these words stand there by themselves, and in no name such as an option's."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def read() -> Iterator[tuple[str, str]]:
    """Everything that somebody reads, by its file."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        yield str(file.relative_to(ROOT)), prose(file.read_text(encoding="utf-8"))
    for file in sorted(TOOL.rglob("*")):
        if file.suffix == ".py":
            yield str(file.relative_to(ROOT)), said(file)
        elif file.suffix == ".j2" or file.name in ("rules.toml", "terms.toml", "SKILL.md"):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def test_no_word_that_was_replaced_is_read_anywhere() -> None:
    words = former()
    assert len(words) >= 40
    found = []
    for file, text in read():
        in_one_line = " ".join(text.split())
        found += [f"{file}: {word}" for word in words if stands_in(word, in_one_line)]
    assert found == []


def test_what_is_printed_is_seen_and_docstrings_are_not(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""A ladder of rates."""\nX = f"un-normed {1}"\n"""surer"""\n')
    assert said(file) == "un-normed "
    (tmp_path / "cli").mkdir()
    shown = tmp_path / "cli" / "some.py"
    shown.write_text('"""A ladder of rates."""\n')
    assert said(shown) == "A ladder of rates."


def test_names_that_programs_read_are_no_words(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('X = {"ladders": "two ladders"}\n')
    assert said(file) == "two ladders"
    assert prose("the key `ladders` counts\n```\nladders\n```\n") == "the key  counts\n\n"
    assert not stands_in("normed", "RMS-normed, normed_sums")
    assert stands_in("normed", "a normed sum")
