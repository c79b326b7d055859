"""Docstrings as the source writes them, made into the lists of parameters and errors that Sphinx
shows.
"""

import re
from collections.abc import Iterator, Sequence

_ERRORS = re.compile(r"(?:^|(?<=[.;] ))Raises (?=[A-Z]\w+)")
_OPTION = re.compile(r"    (\w+(?:, \w+)*):? ?(.*)")


def as_fields(lines: Sequence[str]) -> list[str]:
    """Returns a docstring's lines with ":param x:" for each "x: …" in a list of options, below the
    list's heading, and ":raises:" for errors.
    """
    made: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        heading, *rest = paragraph.splitlines() or [""]
        if rest and heading.endswith(":") and all(line.startswith("    ") for line in rest):
            made += [f"**{heading.removesuffix(':')}**", "", *_parameters(rest), ""]
        else:
            made += _with_errors(paragraph)
    return made


def _parameters(lines: Sequence[str]) -> list[str]:
    """Returns a field for each option, in which a line that is indented further goes on."""
    said: list[tuple[str, list[str]]] = []
    for line in lines:
        option = _OPTION.match(line)
        if option is None:
            said[-1][1].append(line.strip())
        else:
            said.append((option[1], [option[2]]))
    made = []
    for names, words in said:
        made += [f":param {name}: {' '.join(words)}" for name in names.split(", ")]
    return made


def _with_errors(paragraph: str) -> Iterator[str]:
    """Yields a paragraph's text, and a field for each error that it names."""
    found = list(_ERRORS.finditer(paragraph))
    told = paragraph[: found[0].start()] if found else paragraph
    if told.strip():
        yield from (*told.splitlines(), "")
    ends = [one.start() for one in found[1:]] + [len(paragraph)]
    for one, end in zip(found, ends, strict=bool(found)):
        error, _, said = " ".join(paragraph[one.end() : end].split()).partition(" ")
        yield f":raises {error.strip('.,')}: {said}"
    if found:
        yield ""
