"""The places of boxes and lines in a wiring diagram: a box a row, streams straight down, branches
in lanes beside them.

The first stream runs down lane 0. What leaves it and comes back stands to its right, a skip that
must pass over later boxes of it to its left, and further streams stand to the right of all
branches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..placement.wiring import Wire, Wiring


@dataclass(frozen=True, slots=True)
class _Track:
    """A vertical line in a lane from row `top` to row `bottom`."""

    lane: int
    top: int
    bottom: int


@dataclass(frozen=True, slots=True)
class Crossbar:
    """A horizontal line from one lane to another: into the box of lane `end` in that row, or down
    its lane below.
    """

    row: int
    start: int
    end: int
    into_box: bool


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """`rows`: the boxes of each row; a row without one is for lines alone. Lanes are numbered from
    left to right.
    """

    rows: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    """The lane of every box."""
    lines: tuple[_Track, ...]
    crossbars: tuple[Crossbar, ...]

    def box_at(self, row: int, lane: int) -> int | None:
        """Returns the box that stands in this row of a lane."""
        return next((box for box in self.rows[row] if self.lanes[box] == lane), None)

    def widths(self, of_box: Callable[[int], float], empty: float) -> dict[int, float]:
        """Returns the width of the widest box of each lane, from left to right; `empty` for a lane
        without one.
        """
        used = sorted({*self.lanes, *(line.lane for line in self.lines)})
        widths = {}
        for lane in used:
            boxes = [box for box, at in enumerate(self.lanes) if at == lane]
            widths[lane] = max(map(of_box, boxes), default=empty)
        return widths

    def joins(self, bar: Crossbar) -> set[int]:
        """Returns the lanes that a crossbar passes and that enter the same box with it, in the same
        row.
        """
        beside = {
            one.start
            for one in self.crossbars
            if (one.row, one.end, one.into_box) == (bar.row, bar.end, True)
        }
        return {lane for lane in beside if min(bar.start, bar.end) < lane < max(bar.start, bar.end)}


def layout(section: Wiring) -> _Arrangement:
    """The same section always gives the same layout."""
    trunks = _trunks(section)
    order = _order(section, {box for trunk in trunks for box in trunk})
    return _Arranging(section, trunks, order).arranged()


def _sources(section: Wiring, box: int) -> list[Wire]:
    return [wire for wire in section.wires if wire.target == box]


def _trunks(section: Wiring) -> list[list[int]]:
    """For every output the boxes of its straight line, from an input where it can be.

    It passes through as few sub-layers as possible, nowhere as what is taken off, and then through
    as much as possible: what a residual stream does.
    """
    inputs = [i for i, box in enumerate(section.boxes) if box.kind == "input"]
    outputs = [i for i, box in enumerate(section.boxes) if box.kind == "output"]
    taken: set[int] = set()
    trunks = []
    for place, output in enumerate(outputs):
        own = inputs[place] if place < len(inputs) and len(inputs) == len(outputs) else inputs[0]
        best: dict[int, tuple[tuple[int, int, int], list[int]]] = {}
        for index, box in enumerate(section.boxes[: output + 1]):
            before = [
                best[w.source]
                for w in _sources(section, index)
                if not w.subtracted and w.source in best
            ]
            (f, starts, length), path = max(
                before, key=lambda found: found[0], default=((0, index == own, 0), [])
            )
            if index in taken:
                best[index] = ((0, 0, 0), [])
            else:
                best[index] = ((f - (box.kind == "sublayer"), starts, length + 1), [*path, index])
        trunks.append(best[output][1])
        taken |= set(best[output][1])
    return trunks


def _order(section: Wiring, straight: set[int]) -> list[int]:
    """Returns the boxes from top to bottom: branches as early as they can be, so that they leave a
    stream before it goes on.
    """
    level: list[int] = []
    for index in range(len(section.boxes)):
        level.append(1 + max((level[wire.source] for wire in _sources(section, index)), default=-1))
    waiting = {i for i, box in enumerate(section.boxes) if box.kind not in ("input", "output")}
    order: list[int] = []

    def is_ready(box: int) -> bool:
        return all(wire.source not in waiting for wire in _sources(section, box))

    while waiting:
        ready = [box for box in waiting if is_ready(box)]
        order.append(min(ready, key=lambda i: (i in straight, level[i], i)))
        waiting.remove(order[-1])
    return order


@dataclass(slots=True)
class _Chain:
    """Boxes below each other in one lane, from the row in which their line begins to the last that
    reads it.
    """

    boxes: list[int]
    first: int = 0
    last: int = 0
    lane: int = 0


@dataclass(slots=True)
class _Arranging:
    section: Wiring
    trunks: Sequence[list[int]]
    order: Sequence[int]
    follower: dict[int, int] = field(default_factory=dict)
    """Box -> the box below it in its lane."""
    rows: list[tuple[int, ...]] = field(default_factory=list)
    row_of: dict[int, int] = field(default_factory=dict)
    leaves: dict[Wire, int] = field(default_factory=dict)
    """Wire that begins a lane -> the row in which it leaves that of its source."""

    def arranged(self) -> _Arrangement:
        """Chains of boxes, then rows, then lanes."""
        chains = [_Chain(list(trunk)) for trunk in self.trunks if trunk]
        for trunk in self.trunks:
            self.follower |= dict(pairwise(trunk))
        streams = list(chains)
        straight = {box for chain in chains for box in chain.boxes}
        inputs = [i for i, box in enumerate(self.section.boxes) if box.kind == "input"]
        chain_of = {box: chain for chain in chains for box in chain.boxes}
        for box in [*inputs, *self.order]:
            if box in straight:
                continue
            free = (
                w.source
                for w in self._main_first(box)
                if w.source not in straight | self.follower.keys()
            )
            feed = next(free, None)
            if feed is None:
                chains.append(_Chain([box]))
                chain_of[box] = chains[-1]
            else:
                chain_of[box] = chain_of[feed]
                chain_of[feed].boxes.append(box)
                self.follower[feed] = box
        heads = {
            w: chain_of[w.target] for chain in chains for w in self._main_first(chain.boxes[0])[:1]
        }
        self._make_rows(inputs, heads)
        # Wires that need a lane of their own, as their source's lane goes on with something else
        # before they end.
        skips = {
            w: _Chain([], row, self.row_of[w.target])
            for w, row in self.leaves.items()
            if w not in heads
        }
        for chain in chains:
            begun = [self.leaves[wire] for wire, headed in heads.items() if headed is chain]
            chain.first = min(self.row_of[chain.boxes[0]], *begun, 9**9)
            chain.last = max(self._end(box) for box in chain.boxes)
        self._choose_lanes(streams, [c for c in chains if c not in streams], skips, chain_of)
        return self._drawn(chains, heads, skips, chain_of)

    def _main_first(self, box: int) -> list[Wire]:
        return sorted(_sources(self.section, box), key=lambda wire: wire.subtracted)

    def _make_rows(self, inputs: list[int], heads: dict[Wire, _Chain]) -> None:
        """Inputs in one row, outputs in one, every other box in a row of its own, and one where a
        line turns off.
        """
        outputs = [i for i, box in enumerate(self.section.boxes) if box.kind == "output"]
        place = {box: number for number, box in enumerate([*self.order, *outputs])}
        early: dict[int, list[Wire]] = {}
        for wire in self.section.wires:
            follower = self.follower.get(wire.source)
            if (
                follower is not None
                and follower != wire.target
                and place[follower] < place[wire.target]
            ):
                early.setdefault(follower, []).append(wire)
        self.rows.append(tuple(inputs))
        for boxes in [*((box,) for box in self.order), tuple(outputs)]:
            turning = [wire for box in boxes for wire in early.get(box, [])]
            turning += [
                w for w in heads if w.target in boxes and w not in self.leaves and w not in turning
            ]
            if boxes and boxes[0] in outputs:
                # The farthest stream first, so that no line crosses one that has begun.
                turning.reverse()
            for wire in turning:
                self.leaves[wire] = len(self.rows)
                self.rows.append(())
            self.rows.append(boxes)
        self.row_of = {box: number for number, boxes in enumerate(self.rows) for box in boxes}

    def _end(self, box: int) -> int:
        """Returns the last row in which something leaves the line below a box."""
        wires = [wire for wire in self.section.wires if wire.source == box]
        return max(
            (self.leaves.get(wire, self.row_of[wire.target]) for wire in wires),
            default=self.row_of[box],
        )

    def _choose_lanes(
        self,
        streams: list[_Chain],
        branches: list[_Chain],
        skips: dict[Wire, _Chain],
        chain_of: dict[int, _Chain],
    ) -> None:
        left = [skip for wire, skip in skips.items() if chain_of[wire.source] is streams[0]]
        right = branches + [skip for skip in skips.values() if skip not in left]
        for chains, step in ((left, -1), (right, 1)):
            placed: list[_Chain] = []
            for chain in sorted(chains, key=lambda c: c.first):
                chain.lane = step
                while any(
                    c.lane == chain.lane and c.first <= chain.last and chain.first <= c.last
                    for c in placed
                ):
                    chain.lane += step
                placed.append(chain)
        widest = max((chain.lane for chain in right), default=0)
        for number, stream in enumerate(streams[1:], 1):
            stream.lane = widest + number

    def _drawn(
        self,
        chains: list[_Chain],
        heads: dict[Wire, _Chain],
        skips: dict[Wire, _Chain],
        chain_of: dict[int, _Chain],
    ) -> _Arrangement:
        lines = [
            _Track(chain.lane, self.row_of[box], self._end(box))
            for chain in chains
            for box in chain.boxes
        ]
        crossbars = []
        for wire in self.section.wires:
            if self.follower.get(wire.source) == wire.target:
                continue
            lane = chain_of[wire.source].lane
            target = chain_of[wire.target].lane
            row = self.row_of[wire.target]
            if (turned := heads.get(wire) or skips.get(wire)) is not None:
                crossbars.append(Crossbar(self.leaves[wire], lane, turned.lane, into_box=False))
                lines.append(_Track(turned.lane, self.leaves[wire], row))
                lane = turned.lane
            if wire not in heads:
                crossbars.append(Crossbar(row, lane, target, into_box=True))
        return _Arrangement(
            rows=tuple(self.rows),
            lanes=tuple(chain_of[i].lane for i in range(len(self.section.boxes))),
            lines=tuple(dict.fromkeys(line for line in lines if line.bottom > line.top)),
            crossbars=tuple(crossbars),
        )
