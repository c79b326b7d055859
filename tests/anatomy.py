"""The house in numbers: its size in syntax nodes, lines and files, its docstrings and its nouns.

`python tests/anatomy.py` prints them, `--rooms` a row a room, `--homonyms` the nouns that several
modules define. The whole has no limit; a file and a function have one. What a test holds stands in
`test_anatomy.py` and `test_architecture.py`.
"""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST_HOMONYMS = 10
"""One noun has one meaning; so many there may be that several modules define."""
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60


@dataclass(frozen=True, slots=True)
class Noun:
    """A class or a type alias that a module defines for others."""

    name: str
    file: Path
    line: int


@dataclass(frozen=True, slots=True)
class Size:
    """How large some files are together."""

    files: int
    lines: int
    code_lines: int
    """Lines that are neither empty nor a comment nor part of a docstring."""
    nodes: int
    """Nodes of the syntax tree: what is there to be read, however it is laid out."""
    docstrings: tuple[int, ...]
    """Letters of every docstring."""

    @property
    def nodes_a_line(self) -> float:
        return self.nodes / max(1, self.code_lines)

    @property
    def median_docstring(self) -> float:
        return statistics.median(self.docstrings) if self.docstrings else 0.0


def files(package: str = "") -> list[Path]:
    """Returns the Python files of a package of `src`, or of all."""
    return sorted((SOURCE / package).rglob("*.py"))


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yields every docstring of a module, those that stand under fields and constants among
    them.
    """
    for node in ast.walk(tree):
        # A lambda has a body too, which is no list.
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    yield text


def size_of(found: list[Path]) -> Size:
    """Measures files together."""
    all_lines = 0
    code_lines = 0
    nodes = 0
    docstrings = []
    for file in found:
        tree = parsed(file)
        text = lines(file)
        described = set()
        for docstring in docstring_nodes(tree):
            docstrings.append(len(docstring.value))
            described.update(
                range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
            )
        all_lines += len(text)
        nodes += sum(1 for _ in ast.walk(tree))
        for number, line in enumerate(text, start=1):
            if line.strip() and not line.lstrip().startswith("#") and number not in described:
                code_lines += 1
    return Size(len(found), all_lines, code_lines, nodes, tuple(docstrings))


def nouns(file: Path) -> Iterator[Noun]:
    """Yields public classes and type aliases at a module's top: names in CapWords that stand for a
    type.
    """
    for node in parsed(file).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if names_a_type(name, value):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield Noun(name, file, node.lineno)


def names_a_type(name: str, value: ast.expr) -> bool:
    """Tells whether `name = value` makes a type alias: a name in CapWords for an expression of
    types, or a new type.
    """
    if name.isupper() or not name[:1].isupper():
        return False
    made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    new_type = made and value.func.id in ("TypeVar", "NewType", "ParamSpec")  # type: ignore[attr-defined]
    return new_type or isinstance(value, ast.Subscript | ast.BinOp | ast.Attribute | ast.Name)


def homonyms() -> dict[str, list[Noun]]:
    """Returns nouns by name, where several modules define one."""
    by_name = defaultdict(list)
    for file in files():
        for noun in nouns(file):
            by_name[noun.name].append(noun)
    return {name: found for name, found in sorted(by_name.items()) if len(found) > 1}


def long_files(most: int = MOST_LINES_OF_A_FILE) -> dict[str, int]:
    """Returns the files of `src` that are longer, with their lines."""
    counts = {file.relative_to(SOURCE).as_posix(): len(lines(file)) for file in files()}
    return {name: count for name, count in counts.items() if count > most}


def long_functions(most: int = MOST_LINES_OF_A_FUNCTION) -> dict[str, int]:
    """Returns the functions of `src` that are longer, `file:line name`, with their lines.

    The options that a docstring lists, a line each, are looked up rather than read through, and
    count for nothing.
    """
    found = {}
    for file in files():
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            count = (node.end_lineno or node.lineno) - node.lineno + 1 - listed_lines(node)
            if count > most:
                found[f"{file.relative_to(SOURCE).as_posix()}:{node.lineno} {node.name}"] = count
    return found


def listed_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Counts the lines of a docstring that stand below a heading, indented further than it."""
    count = 0
    for paragraph in (ast.get_docstring(function) or "").split("\n\n"):
        heading, *listed = paragraph.splitlines() or [""]
        if heading.endswith(":") and all(line.startswith("    ") for line in listed):
            count += len(listed)
    return count


def rooms() -> dict[str, Size]:
    """Returns the size of every folder that holds Python files, by its name."""
    folders = sorted({file.parent for file in files()})
    return {
        folder.relative_to(SOURCE).as_posix(): size_of(sorted(folder.glob("*.py")))
        for folder in folders
    }


def _row(name: str, size: Size) -> str:
    return (
        f"{name:45}{size.files:6}{size.lines:9,}{size.nodes:11,}{size.nodes_a_line:9.1f}"
        f"{size.median_docstring:11.0f}"
    )


def main() -> None:
    if "--homonyms" in sys.argv:
        for name, found in homonyms().items():
            print(name, *(f"{noun.file.relative_to(SOURCE)}:{noun.line}" for noun in found))
        return
    print(f"{'':45}{'files':>6}{'lines':>9}{'nodes':>11}{'a line':>9}{'docstring':>11}")
    if "--rooms" in sys.argv:
        for name, size in rooms().items():
            print(_row(name, size))
        return
    for package in ("normscope", "normscope_studies", ""):
        print(_row(package or "both", size_of(files(package))))
    print()
    print(f"homonyms             {len(homonyms())}, at most {MOST_HOMONYMS}")
    print(
        f"files too long       {len(long_files())}, over {MOST_LINES_OF_A_FILE} lines: "
        f"{long_files()}"
    )
    print(
        f"functions too long   {len(long_functions())}, over {MOST_LINES_OF_A_FUNCTION} lines: "
        f"{long_functions()}"
    )


if __name__ == "__main__":
    main()
