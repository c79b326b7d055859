"""Options as docstrings list them: one a line, below a heading that says what they are of.

    What is measured:
        scale: How large: smoke, cpu or paper.
        settings, imports

    Where it runs:
        processes: How many trainings at a time; 0 for as many as there is
            room for.

A line that is indented further goes on with the option above it. Names without words stand where
they are to be shown, and have their words elsewhere. All else is told in paragraphs, the errors
that are raised among it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc

_INDENT = " " * 4
_FURTHER = " " * 8


@dataclass(frozen=True, slots=True)
class ListedOption:
    """An option as a docstring's list describes it."""

    group: str
    """The heading that it stands below."""
    words: str
    """Empty where they stand elsewhere."""


def listed_options(docstring: str) -> Mapping[str, ListedOption]:
    """Returns every option that is listed, by its name, in the order of the lists. Raises
    ValueError for one that is listed twice.
    """
    found: dict[str, ListedOption] = {}
    for paragraph in _paragraphs(docstring):
        if not _is_list(paragraph):
            continue
        heading, *lines = paragraph.splitlines()
        for names, words in _items(lines):
            for name in names.split(", "):
                if name in found:
                    raise ValueError(f"{name} is listed twice")
                found[name] = ListedOption(heading.removesuffix(":"), words)
    return found


def without_lists(docstring: str) -> str:
    """Returns the paragraphs that list no options."""
    return "\n\n".join(one for one in _paragraphs(docstring) if not _is_list(one))


def _paragraphs(docstring: str) -> list[str]:
    return cleandoc(docstring).split("\n\n")


def _is_list(paragraph: str) -> bool:
    heading, *lines = paragraph.splitlines() or [""]
    is_heading = heading.endswith(":") and not heading.startswith(" ")
    return is_heading and bool(lines) and all(line.startswith(_INDENT) for line in lines)


def _items(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the names of each item, with its words as one line."""
    item: list[str] = []
    for line in lines:
        if item and not line.startswith(_FURTHER):
            yield _names_and_words(item)
            item = []
        item.append(line.strip())
    yield _names_and_words(item)


def _names_and_words(item: list[str]) -> tuple[str, str]:
    names, _, words = " ".join(item).partition(":")
    return names, words.strip()
