"""Words that a reader had to read twice stand in no message, on no page and in nothing of the
manual.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "src" / "normscope"
_ROW = re.compile(r"^\| (.+?) \| .+ \|$", re.MULTILINE)


def former() -> list[str]:
    """What CONTRIBUTING.md lists below **Words**."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("**Words**")[2]
    return _ROW.findall(table.partition("**Commits**")[0])[2:]


def said(file: Path) -> str:
    """What a Python file can print: its strings, without docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]
    return "\n".join(strings)


def read() -> Iterator[tuple[str, str]]:
    """Everything that somebody reads, by its file."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for file in sorted(TOOL.rglob("*")):
        if file.suffix == ".py":
            yield str(file.relative_to(ROOT)), said(file)
        elif file.suffix == ".j2" or file.name in ("rules.toml", "terms.toml", "SKILL.md"):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def test_no_word_that_was_replaced_is_read_anywhere() -> None:
    words = former()
    assert len(words) > 10
    found = []
    for file, text in read():
        in_one_line = " ".join(text.split())
        found += [f"{file}: {word}" for word in words if word in in_one_line]
    assert found == []


def test_what_is_printed_is_seen_and_docstrings_are_not(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""A ladder of rates."""\nX = f"un-normed {1}"\n"""surer"""\n')
    assert said(file) == "un-normed "
