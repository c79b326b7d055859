"""Draws functions of the package by a seed, to be read one by one with their file alone at hand.

`python tests/read_aloud.py SEED [COUNT] [ROOM ...]` prints so many, forty of theory, transplant,
api and cli by default. A function whose job cannot be said in a sentence after one reading is
opened, renamed or documented.
"""

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import anatomy

ROOMS = ("theory", "transplant", "api", "cli")
FEWEST_LINES = 4
"""Shorter functions have nothing to be lost in."""


def functions(rooms: tuple[str, ...]) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Yields the functions of these rooms that have a body to be read."""
    for room in rooms:
        for file in anatomy.files(f"normscope/{room}"):
            for node in ast.walk(anatomy.parsed(file)):
                if isinstance(node, ast.FunctionDef):
                    lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                    if lines >= FEWEST_LINES:
                        yield file, node


def drawn(seed: int, count: int, rooms: tuple[str, ...]) -> list[tuple[Path, ast.FunctionDef]]:
    """Returns so many of them, in the order of the files."""
    every = list(functions(rooms))
    chosen = random.Random(seed).sample(range(len(every)), min(count, len(every)))
    return [every[index] for index in sorted(chosen)]


def main() -> None:
    seed, *rest = sys.argv[1:] or ["0"]
    count = int(rest[0]) if rest else 40
    for file, node in drawn(int(seed), count, tuple(rest[1:]) or ROOMS):
        print(f"\n=== {file.relative_to(anatomy.SOURCE)}:{node.lineno}")
        print("\n".join(anatomy.lines(file)[node.lineno - 1 : node.end_lineno]))


if __name__ == "__main__":
    main()
