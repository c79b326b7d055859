"""How densely the source is packed: what makes a line do the work of several.

`python tests/packing.py` prints the counts of every kind, by 1,000 lines of code; `--places KIND`
prints where one stands. No count of comprehensions, conditional expressions or nodes is a goal;
what `FORBIDDEN` names was written for a limit of lines once, and `test_packing.py` holds it to
none.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anatomy

Finder = Callable[[ast.Module], Iterator[ast.AST]]

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LITERALS = (ast.List, ast.Set, ast.Tuple, ast.Dict)
_MOST_PARALLEL = 2
"""Names that one statement may assign side by side."""
_RELATIVE = re.compile(
    "(What|Of|Whether|How|By|As|Where|In|Those|None|Which|Who|Whose|Why|That)(?!\\w)"
)
"""Words with which a relative clause begins; a docstring begins with a subject and a verb."""


def nested_comprehensions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields comprehensions that stand inside another one."""
    for outer in ast.walk(tree):
        if isinstance(outer, _COMPREHENSIONS):
            for inner in ast.walk(outer):
                if inner is not outer and isinstance(inner, _COMPREHENSIONS):
                    yield outer
                    break


def split_literals(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields literals that are unpacked into a literal or joined with one: `[*(1, 2), 3]`,
    `{**{"a": 1}}`, `{1} | {2}`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Starred(value=ast.List() | ast.Set() | ast.Tuple()):
                yield node
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None and isinstance(value, ast.Dict):
                        yield value
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                if isinstance(left, (ast.Set, ast.Dict)) and isinstance(right, type(left)):
                    yield node


def texts_times_truths(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields texts that are multiplied by whether something holds: `", at last" * late`.

    A text without a letter may be repeated: `" " * indent`, `"-" * width`.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for text, factor in ((node.left, node.right), (node.right, node.left)):
            if _is_text(text) and (_has_letters(text) or _is_truth(factor)):
                yield node
                break


def _is_text(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr)


def _has_letters(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or bool(re.search(r"[A-Za-z]{2}", ast.unparse(node)))


def _is_truth(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Call(func=ast.Name(id="bool" | "isinstance" | "any" | "all")):
            return True
    return False


def parallel_assignments(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields statements that assign three values or more to as many names side by side."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and len(target.elts) > _MOST_PARALLEL:
                    yield node


def records_by_position(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the types of tables whose rows are tuples of different types: a row has no names.

    `tuple[tuple[str, int, float], ...]`, `list[tuple[str, int, float]]`; a pair needs no name.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript) or not _is_named(node.value, "tuple", "list"):
            continue
        inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        if not isinstance(inner, ast.Subscript) or not _is_named(inner.value, "tuple"):
            continue
        fields = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        kinds = {ast.unparse(field) for field in fields}
        if len(fields) > _MOST_PARALLEL and len(kinds) > 1 and "..." not in kinds:
            yield node


def _is_named(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def comprehensions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields every comprehension."""
    return (node for node in ast.walk(tree) if isinstance(node, _COMPREHENSIONS))


def conditional_expressions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields every `a if b else c`."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.IfExp))


def relative_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields docstrings that begin with a relative clause."""
    for text in anatomy.docstring_nodes(tree):
        if _RELATIVE.match(str(text.value)):
            yield text


def docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields every docstring."""
    return anatomy.docstring_nodes(tree)


FORBIDDEN: dict[str, Finder] = {
    "comprehensions inside comprehensions": nested_comprehensions,
    "literals that are split": split_literals,
    "texts times truths": texts_times_truths,
    "three or more parallel assignments": parallel_assignments,
    "records read by position": records_by_position,
}
COUNTED: dict[str, Finder] = {
    "comprehensions": comprehensions,
    "conditional expressions": conditional_expressions,
    "docstrings": docstrings,
    "docstrings that begin with a relative clause": relative_docstrings,
}


def places(finder: Finder, files: list[Path]) -> Iterator[str]:
    """Yields `FILE:LINE` of everything that a finder yields."""
    for file in files:
        for node in finder(anatomy.parsed(file)):
            line = getattr(node, "lineno", 0)
            yield f"{file.relative_to(anatomy.SOURCE)}:{line}"


def main() -> None:
    files = anatomy.files()
    kinds = FORBIDDEN | COUNTED
    if sys.argv[1:2] == ["--places"]:
        print("\n".join(places(kinds[" ".join(sys.argv[2:])], files)))
        return
    size = anatomy.size_of(files)
    for name, finder in kinds.items():
        count = sum(1 for _ in places(finder, files))
        print(f"{name:46}{count:7,}{1000 * count / size.code_lines:9.2f}")
    comments = sum(1 for file in files for line in anatomy.lines(file) if re.match(r"\s*#", line))
    print(f"{'lines of comment':46}{comments:7,}{1000 * comments / size.code_lines:9.2f}")
    print(f"{'nodes a line of code':46}{size.nodes_a_line:7.2f}")


if __name__ == "__main__":
    main()
