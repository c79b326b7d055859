"""Wiring diagrams: exact pictures of small ones, and what must hold of the layout of any."""

import random
import re
from xml.etree import ElementTree

import pytest

from normscope.catalogue.wiring_lanes import layout
from normscope.catalogue.wiring_svg import wiring_svg
from normscope.catalogue.wiring_text import wiring_text
from normscope.placement.wiring import Box, Wire, Wiring

POST = Wiring(
    "every block",
    (
        Box("input", "x"),
        Box("sublayer", "F", ("inside",)),
        Box("sum", "+"),
        Box("norm", "norm"),
        Box("output", "x"),
    ),
    (Wire(0, 1), Wire(0, 2), Wire(1, 2), Wire(2, 3), Wire(3, 4)),
)
TWO_STREAMS = Wiring(
    "every block",
    (
        *(
            Box("input", "x"),
            Box("input", "r"),
            Box("sublayer", "F"),
            Box("sum", "+"),
            Box("output", "x"),
        ),
        *(Box("sum", "+"), Box("output", "r")),
    ),
    (Wire(0, 2), Wire(0, 3), Wire(2, 3), Wire(3, 4), Wire(1, 5), Wire(2, 5), Wire(5, 6)),
)
LONG_SKIP = Wiring(
    "every block",
    (
        Box("input", "x"),
        Box("sublayer", "F"),
        Box("sum", "+"),
        Box("norm", "norm"),
        Box("sum", "-"),
        Box("output", "x"),
    ),
    (Wire(0, 1), Wire(0, 2), Wire(1, 2), Wire(2, 3), Wire(3, 4), Wire(0, 4, True), Wire(4, 5)),
)


def lines(picture: str) -> str:
    return picture.strip("\n")


def test_a_branch_leaves_the_stream_and_comes_back():
    assert wiring_text([POST]) == lines(
        """
    x
    ├────────────╮
    │       ╭────┴───╮
    │       │   F    │
    │       │ inside │
    │       ╰────┬───╯
    ⊕◄───────────╯
╭───┴──╮
│ norm │
╰───┬──╯
    x
"""
    )


def test_one_branch_for_two_streams():
    assert wiring_text([TWO_STREAMS]) == lines(
        """
x             r
├──────╮      │
│    ╭─┴─╮    │
│    │ F │    │
│    ╰─┬─╯    │
⊕◄─────┤      │
│      ╰─────►⊕
│             │
x             r
"""
    )


def test_a_skip_over_later_boxes_passes_on_the_left():
    assert wiring_text([LONG_SKIP]) == lines(
        """
         x
         ├─────────╮
         │       ╭─┴─╮
         │       │ F │
         │       ╰─┬─╯
╭────────┤         │
│        ⊕◄────────╯
│    ╭───┴──╮
│    │ norm │
│    ╰───┬──╯
╰───────►⊖
         │
         x

⊖ takes off what enters from the side.
"""
    )


def test_several_sections_have_titles():
    text = wiring_text(
        [POST, Wiring("output", (Box("input", "x"), Box("output", "y")), (Wire(0, 1),))]
    )
    assert text.startswith("every block\n\n")
    assert text.endswith("output\n\nx\n│\ny")


def any_section(dice: random.Random) -> Wiring:
    """A formula nobody wrote: boxes fed by any one or two before them, one to three streams."""
    streams = dice.randint(1, 3)
    boxes = [Box("input", f"s{i}") for i in range(streams)]
    wires: list[Wire] = []
    for _ in range(dice.randint(1, 12)):
        kind = dice.choice(["sublayer", "norm", "scale", "sum", "sum", "product"])
        feeds = dice.sample(
            range(len(boxes)), min(len(boxes), 2 if kind in ("sum", "product") else 1)
        )
        wires += [
            Wire(feed, len(boxes), kind == "sum" and place == 1) for place, feed in enumerate(feeds)
        ]
        boxes.append(Box(kind, "+" if kind == "sum" else kind))
    inner = len(boxes)
    # What nothing reads is an output, as the wiring of a formula has no box that leads nowhere.
    ends = [i for i in range(inner) if all(wire.source != i for wire in wires)]
    for end in ends:
        wires.append(Wire(end, len(boxes)))
        boxes.append(Box("output", f"o{end}"))
    return Wiring("any", tuple(boxes), tuple(wires))


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("seed", range(200))
def test_lines_join_what_is_wired_and_run_through_nothing_else(seed):
    section = any_section(random.Random(seed))
    found = layout(section)
    row = {box: number for number, boxes in enumerate(found.rows) for box in boxes}
    assert sorted(row) == list(range(len(section.boxes)))
    at = {(row[box], found.lanes[box]): box for box in row}
    assert len(at) == len(section.boxes)
    for line in found.lines:
        assert not [
            box for (y, lane), box in at.items() if lane == line.lane and line.top < y < line.bottom
        ]
    for bar in found.crossbars:
        low, high = sorted((bar.start, bar.end))
        assert not [box for (y, lane), box in at.items() if y == bar.row and low < lane < high]
    for one in found.lines:
        for other in found.lines:
            if one != other and one.lane == other.lane:
                assert one.top == other.top or one.bottom <= other.top or other.bottom <= one.top
    assert wired(section, found, at) == {(wire.source, wire.target) for wire in section.wires}


def wired(section, found, at) -> set[tuple[int, int]]:
    """Who feeds whom, read from the drawing alone: go up from every box along its lines to the box
    above.
    """
    pairs = set()
    for (y, lane), box in at.items():
        if section.boxes[box].kind == "input":
            continue
        starts = [
            (bar.row, bar.start)
            for bar in found.crossbars
            if bar.into_box and (bar.row, bar.end) == (y, lane)
        ]
        starts += (
            [(y, lane)]
            if any(line.lane == lane and line.bottom == y for line in found.lines)
            else []
        )
        for start in starts:
            pairs.add((_above(start, found, at), box))
    return pairs


def _above(place: tuple[int, int], found, at) -> int:
    """The box whose value a lane carries down to a row."""
    y, lane = place
    line = min(
        (line for line in found.lines if line.lane == lane and line.top < y <= line.bottom),
        key=lambda one: -one.top,
    )
    if (line.top, lane) in at:
        return at[line.top, lane]
    (bar,) = {b for b in found.crossbars if not b.into_box and (b.row, b.end) == (line.top, lane)}
    return _above((bar.row, bar.start), found, at)


def test_svg_is_a_picture_of_its_own():
    svg = wiring_svg([POST, TWO_STREAMS], title="Wiring <of> F", desc="x ← norm(x + F(x)) & more")
    assert svg == wiring_svg(
        [POST, TWO_STREAMS], title="Wiring <of> F", desc="x ← norm(x + F(x)) & more"
    )
    root = ElementTree.fromstring(svg)
    name = {"s": "http://www.w3.org/2000/svg"}
    assert root.findtext("s:title", namespaces=name) == "Wiring <of> F"
    assert root.findtext("s:desc", namespaces=name) == "x ← norm(x + F(x)) & more"
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words == [
        "every block",
        "x",
        "F",
        "inside",
        "norm",
        "x",
        "every block",
        "x",
        "r",
        "F",
        "x",
        "r",
    ]
    assert "prefers-color-scheme: dark" in svg
    # No address but the name of the format: nothing is fetched.
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert 200 < width < 600
    assert 150 < height < 400


def test_a_value_that_is_handed_on_as_several_streams_crosses_none_of_them():
    copies = Wiring(
        "embedding",
        (Box("input", "x"), *(Box("output", f"x{n}") for n in range(1, 5))),
        tuple(Wire(0, n) for n in range(1, 5)),
    )
    assert "┼" not in wiring_text([copies])


def test_streams_that_enter_a_box_together_meet_there_and_do_not_cross():
    read = Wiring(
        "output",
        (
            *(Box("input", f"x{n}") for n in range(1, 4)),
            Box("mix", "weighted sum"),
            Box("output", "y"),
        ),
        (*(Wire(n, 3) for n in range(3)), Wire(3, 4)),
    )
    assert "┼" not in wiring_text([read])
    assert "●" in wiring_text([read])
    assert wiring_svg([read], title="t", desc="d").count("<circle") == 1
