"""Docstrings as the source writes them, made into the lists of parameters and errors that Sphinx
shows.
"""

import re
from collections.abc import Collection, Iterator, Sequence

_ERRORS = re.compile(r"(?:^|(?<=[.;] ))Raises (?=[A-Z]\w+)")


def as_fields(lines: Sequence[str], parameters: Collection[str]) -> list[str]:
    """Returns a docstring's lines with ":param x:" where one explains the parameter x as "x: …",
    and ":raises:" for errors.

    Explanations may follow one another in a paragraph, and end with it.
    """
    text, fields = [], []
    for paragraph in "\n".join(lines).split("\n\n"):
        told, explained = _split(paragraph, parameters)
        text += [*told.splitlines(), ""] if told.strip() else []
        fields += explained
    return [*text, *fields, ""]


def _split(paragraph: str, parameters: Collection[str]) -> tuple[str, list[str]]:
    starts = [(found.start(), found.end(), "raises", "") for found in _ERRORS.finditer(paragraph)]
    for found in re.finditer(r"(?:^|(?<=[.;)] )|(?<=\n))(\w+(?:, \w+)*):\s", paragraph):
        names = found[1].split(", ")
        if parameters and set(names) <= set(parameters):
            starts.append((found.start(), found.end(), "param", found[1]))
    if not starts:
        return paragraph, []
    starts.sort()
    ends = [start for start, *_ in starts[1:]] + [len(paragraph)]
    return paragraph[: starts[0][0]], list(_fields(paragraph, starts, ends))


def _fields(
    paragraph: str, starts: Sequence[tuple[int, int, str, str]], ends: Sequence[int]
) -> Iterator[str]:
    for (_, start, kind, names), end in zip(starts, ends, strict=True):
        said = " ".join(paragraph[start:end].split())
        if kind == "raises":
            error, _, said = said.partition(" ")
            yield f":raises {error.strip('.,')}: {said}"
        else:
            yield from (f":param {name}: {said}" for name in names.split(", "))
