"""The source says one thing a line: nothing is packed for the sake of its length."""

import ast
from collections.abc import Callable

import pytest

import anatomy
import packing

EXCEPTED = {
    "normscope": (
        "normscope/doctor/lint",
        "normscope/doctor/observe",
        "normscope/doctor/find",
        "normscope/doctor/identify",
        "normscope/train/together",
    ),
    "normscope_studies": (),
}
"""Rooms of each package whose comprehensions may still stand inside one another; the list only ever
gets shorter. Nothing else is packed anywhere.
"""
STILL_PACKED = "comprehensions inside comprehensions"

PACKED = {
    "comprehensions inside comprehensions": (
        "[[x for x in row] for row in rows]",
        "{name: sum(one.size for one in some) for name, some in groups.items()}",
        "[row for row in rows if all(x for x in row)]",
        "low, high = ([f(x) for x in rows] for f in (min, max))",
    ),
    "literals that are split": (
        "[*(1, 2), 3]",
        "{*{1}, 2}",
        "{**{'a': 1}, 'b': 2}",
        "{'a'} | {'b'}",
        "{'a': 1} | {'b': 2}",
        "f(*('a', 'b'))",
    ),
    "texts times truths": (
        "', at last' * late",
        "f' of {count}' * several",
        "late * 'at last'",
        "'.' * bool(left)",
        "' ' * (width > 3)",
        "',' * (not left)",
    ),
    "three or more parallel assignments": (
        "a, b, c = 1, 2, 3",
        "a, b, c, d = x.a, x.b, x.c, x.d",
    ),
    "records read by position": (
        "rows: tuple[tuple[str, int, float], ...]",
        "rows: list[tuple[str, str, int]]",
    ),
}
LOOSE = {
    "comprehensions inside comprehensions": (
        "[x for row in rows for x in row]",
        "[f(x) for x in sorted(rows)]",
        "several = [x for x in rows], [y for y in rows]",
    ),
    "literals that are split": (
        "[*given, 3]",
        "{**given, 'b': 2}",
        "given | {'b'}",
        "f(*given, **{'a': 1})",
        "flags = READ | WRITE",
    ),
    "texts times truths": (
        "' ' * indent",
        "'-' * (width - 2)",
        "'=' * len(title)",
        "2 * (left > 3)",
    ),
    "three or more parallel assignments": (
        "a, b = 1, 2",
        "a, b, c = found",
        "a, b, c = (f(x) for x in given)",
        "a = b = c = 0",
    ),
    "records read by position": (
        "rows: tuple[tuple[str, int], ...]",
        "rows: list[tuple[float, float, float]]",
        "rows: tuple[tuple[str, ...], ...]",
        "row: tuple[str, int, float]",
        "rows: dict[str, tuple[str, int, float]]",
    ),
}


def found_in(kind: str, text: str) -> list[ast.AST]:
    return list(packing.FORBIDDEN[kind](ast.parse(text)))


def each(examples: dict[str, tuple[str, ...]]) -> Callable[[Callable[..., None]], object]:
    pairs = [(kind, text) for kind, texts in examples.items() for text in texts]
    return pytest.mark.parametrize(("kind", "text"), pairs)


def test_every_kind_has_examples():
    assert PACKED.keys() == LOOSE.keys() == packing.FORBIDDEN.keys()


@each(PACKED)
def test_what_is_packed_is_found(kind, text):
    assert found_in(kind, text)


@each(LOOSE)
def test_what_is_loose_is_not_found(kind, text):
    assert not found_in(kind, text)


@pytest.mark.parametrize("package", EXCEPTED)
@pytest.mark.parametrize("kind", packing.FORBIDDEN)
def test_nothing_is_packed(kind, package):
    excepted = EXCEPTED[package] if kind == STILL_PACKED else ()
    rooms = tuple(f"{room}/" for room in excepted)
    places = packing.places(packing.FORBIDDEN[kind], anatomy.files(package))
    packed = [place for place in places if not place.startswith(rooms)]
    assert not packed, f"{kind}: open them, one idea a line"


@pytest.mark.parametrize("room", [room for rooms in EXCEPTED.values() for room in rooms])
def test_an_excepted_room_is_there(room):
    assert anatomy.files(room)
