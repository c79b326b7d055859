"""A tokenizer.json that makes text grow without bound, or looks for a pattern without end, is refused when opened."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..limits.reading import parse_json, shown

MOST_GROWTH = 64
"""Times as long as a line may become by replacements, all of them together; those in use make spaces of three bytes."""
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_REPETITION = re.compile(r"[*+]|\{\d*,\}")


def refuse_growth(text: str) -> None:
    """Raise ValueError, naming the part, for a tokenizer.json that is no JSON or whose work has no bound.

    Replacements multiply: forty that double a blank make a terabyte of it. A pattern with a repetition inside a
    repeated group, such as (a+)+b, takes a time that is exponential in the length of a line.
    """
    table = parse_json(text, infinite=True)
    if not isinstance(table, Mapping):
        raise ValueError("it is not a table")
    for name in _PARTS:
        growth = 1.0
        for step in _steps(table.get(name)):
            pattern = step.get("pattern")
            kind, sought = next(iter(pattern.items())) if isinstance(pattern, Mapping) and pattern else ("", "")
            if kind == "Regex" and isinstance(sought, str) and _repeats_repetitions(sought):
                raise ValueError(f"the pattern {shown(sought)} of its {name} repeats a repetition; give one without")
            growth *= _growth(step, kind, sought)
            if growth > MOST_GROWTH:
                raise ValueError(f"the replacements of its {name} can make a line over {MOST_GROWTH} times as long")


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part, those of sequences inside one another too, in order."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if not isinstance(step, Mapping):
            continue
        inner = [inner for value in step.values() if isinstance(value, list) for inner in value]
        waiting += reversed(inner)
        yield step


def _growth(step: Mapping[str, Any], kind: str, sought: Any) -> float:
    """How many times as long a step can make a line."""
    content = step.get("content")
    if step.get("type") != "Replace" or not isinstance(content, str) or not isinstance(sought, str):
        # Something put before a line makes one character as many as it has; it is no product of the line's length.
        return 1.0
    # A pattern may match one character, or the place between two.
    length = len(sought) if kind == "String" else 1
    return max(1.0, len(content) / max(1, length)) if length and content else 1.0 + len(content)


def _repeats_repetitions(pattern: str) -> bool:
    """Whether a group that is repeated without bound holds a repetition without bound."""
    repeats: list[bool] = []
    place = 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 1
        elif sign == "[":
            place = _end_of_class(pattern, place)
        elif sign == "(":
            repeats.append(False)
        elif sign == ")" and repeats:
            inside = repeats.pop()
            if inside and _REPETITION.match(pattern, place + 1):
                return True
            if inside and repeats:
                repeats[-1] = True
        elif repeats and _REPETITION.match(pattern, place):
            repeats[-1] = True
        place += 1
    return False


def _end_of_class(pattern: str, place: int) -> int:
    end = place + 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end
