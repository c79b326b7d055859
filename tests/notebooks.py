"""Notebooks of the manual, executed without a kernel: cells in order in one namespace, the last
expression shown.

    python tests/notebooks.py docs/gallery.ipynb

writes a notebook anew with the outputs that its code gives now. Jupyter shows a last expression by
its `_repr_html_` and `__repr__`, and so does this; what a cell prints comes before it. A cell with
the tag `varies` has numbers that another processor may round otherwise; one with the tag `trained`
shows runs, which a test makes shorter.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Cell = dict[str, Any]
Output = dict[str, Any]


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with new outputs; its code runs in `folder`."""
    names: dict[str, object] = {"__name__": "__main__"}
    count, cells = 0, []
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                outputs = list(_outputs("".join(cell["source"]), names, count))
                cell = {**cell, "execution_count": count, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, object], count: int) -> Iterator[Output]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value: Any = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    if text := printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": value._repr_html_().splitlines(keepends=True), **data}
        yield {
            "data": data,
            "execution_count": count,
            "metadata": {},
            "output_type": "execute_result",
        }


def told(cell: Cell) -> list[str]:
    """What a cell's outputs say, line by line, markup and the strokes of pictures apart.

    Pictures are described in words, which stay; of a cell that varies the numbers go too.
    """
    lines = []
    for output in cell["outputs"]:
        for text in (output.get("text"), *output.get("data", {}).values()):
            words = "".join(text or "")
            words = re.sub(r"(?s)</desc>.*?</svg>|<img [^>]*>", "", words)
            words = re.sub(r"<[^>]*>", "\n", words)
            if "varies" in cell["metadata"].get("tags", ()):
                words = re.sub(r"[−-]?\d[\d,.]*(e[−-]?\d+)?", "#", words)
            lines += [line.strip() for line in words.splitlines() if line.strip()]
    return lines


def load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = executed(load(file), Path(folder))
    file.write_text(
        json.dumps(done, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    print(
        f"{file}: {sum(cell['cell_type'] == 'code' for cell in done['cells'])} cells",
        file=sys.stderr,
    )


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main(Path(sys.argv[1]).resolve())
