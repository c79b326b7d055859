"""The scheme by which a stack's weights were drawn: a law of width for all matrices, and a law of
depth for some.

A law of width gives a matrix's deviation from its fans. A law of depth divides it, for the matrices
whose products join the stream: by √(2L) in GPT-2, for L blocks of two sub-layers.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...report.words import kind_name
from ..record import Stack
from .initial_weights import WeightMatrix, matrices_of
from .patient import Patient
from .structure import in_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAlike:
    """The matrices of one purpose, one or more a block."""

    purpose: str
    """The purpose in words, such as "attention outputs"."""
    joins: bool
    """True where its product joins the stream."""
    names: tuple[str, ...]
    blocks: tuple[int, ...]
    sizes: tuple[float, ...]
    """The size of each: the root mean square of its entries."""
    fan_in: int
    fan_outs: tuple[int, ...]
    """More than one where they are parts of a packed matrix, which may have been drawn as a
    whole.
    """
    entries: int
    """The number of entries of one of them."""

    @property
    def projects(self) -> bool:
        """True where it makes queries, keys or values."""
        return self.purpose.endswith("projections")

    @property
    def size(self) -> float:
        """The size of all of them together."""
        return math.sqrt(math.fsum(size * size for size in self.sizes) / len(self.sizes))

    def near(self, size: float, wanted: float, *, of_all: bool = True) -> bool:
        """Tells whether a size is that of a draw at the wanted deviation: the mean square of n
        entries strays by √(2/n).
        """
        strays = 4 / math.sqrt(2 * self.entries * (len(self.sizes) if of_all else 1))
        return wanted > 0 and abs(size / wanted - 1) < 0.02 + strays

    def at(self, wanted: float) -> bool:
        """Tells whether each block's matrix is a draw at one deviation."""
        return all(self.near(size, wanted, of_all=False) for size in self.sizes) and self.near(
            self.size, wanted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthLaw:
    """A scheme's deviation, as a function of a matrix's fans."""

    title: str
    deviation: Callable[[int, int, int], float]
    """The deviation for fan in, fan out and the stream's width."""

    def wanted(self, group: DrawnAlike, width: int) -> list[float]:
        return [self.deviation(group.fan_in, fan_out, width) for fan_out in group.fan_outs]

    def ratio(self, group: DrawnAlike, width: int) -> float:
        """Returns a group's size in multiples of the law's."""
        return group.size / self.wanted(group, width)[0]

    def fits(self, group: DrawnAlike, width: int) -> bool:
        return any(group.at(wanted) for wanted in self.wanted(group, width))


USUAL = 0.02
WIDTH_LAWS = (
    WidthLaw(title=f"N(0, {USUAL}²)", deviation=lambda fan_in, fan_out, width: USUAL),
    WidthLaw(
        title="1/√(fan in), as T5 and LeCun have it",
        deviation=lambda fan_in, fan_out, width: fan_in**-0.5,
    ),
    WidthLaw(
        title="torch's default for nn.Linear, U(±1/√(fan in))",
        deviation=lambda fan_in, fan_out, width: (3 * fan_in) ** -0.5,
    ),
    WidthLaw(
        title="Glorot's √(2/(fan in + fan out))",
        deviation=lambda fan_in, fan_out, width: math.sqrt(2 / (fan_in + fan_out)),
    ),
    WidthLaw(
        title="small-init, √(2/(5 · width))",
        deviation=lambda fan_in, fan_out, width: math.sqrt(0.4 / width),
    ),
    WidthLaw(
        title="He's √(2/(fan in))", deviation=lambda fan_in, fan_out, width: math.sqrt(2 / fan_in)
    ),
)
"""The laws in use, the commonest first."""


def drawn_alike(patient: Patient, stack: Stack) -> list[DrawnAlike]:
    """Returns the stack's matrices by purpose; none where the purpose of half of its sub-layers' is
    not known.
    """
    found: defaultdict[tuple[str, bool, int], list[tuple[int, WeightMatrix]]] = defaultdict(list)
    outs: dict[tuple[str, bool, int], int] = {}
    inside = in_blocks(stack)
    matrices = [matrices_of(patient, sublayer, stack.width) for sublayer in inside]
    if 2 * sum(map(bool, matrices)) <= len(inside):
        return []
    for sublayer, own in zip(inside, matrices, strict=True):
        for purpose, joins, matrix, parts in _purposes(own, sublayer.kind):
            key = (purpose, joins, matrix.outputs * matrix.inputs)
            found[key].append((sublayer.block, matrix))
            outs[key] = parts
    groups = []
    for (purpose, joins, entries), some in found.items():
        # The names say which dimension is which no more than the shapes do, but one of them is the
        # stream's width.
        other, parts = entries // stack.width, outs[purpose, joins, entries]
        fan_in, fan_out = (other, stack.width) if joins else (stack.width, other)
        group = DrawnAlike(
            purpose=purpose,
            joins=joins,
            names=tuple(matrix.parameter for _, matrix in some),
            blocks=tuple(block for block, _ in some),
            sizes=tuple(matrix.deviation for _, matrix in some),
            fan_in=fan_in,
            fan_outs=tuple(dict.fromkeys((fan_out, fan_out * parts))),
            entries=entries,
        )
        # Matrices of zeros are branches that start closed.
        groups += [group] if all(size > 0 for size in group.sizes) else []
    return groups


def _purposes(
    matrices: Sequence[WeightMatrix], kind: str
) -> Iterator[tuple[str, bool, WeightMatrix, int]]:
    """For each matrix what it is for, whether its product joins the stream, and of how many parts
    it is one.
    """
    of, packed = kind_name(kind), [one.parameter for one in matrices[:-1]]
    for number, matrix in enumerate(matrices[:-1]):
        if kind == "feed_forward":
            yield f"{_ORDINALS[min(number, 3)]} {of} matrices", False, matrix, 1
        else:
            yield (
                f"{_ORDINALS[number]} {of} projections",
                False,
                matrix,
                packed.count(matrix.parameter),
            )
    for matrix in matrices[-1:]:
        yield f"{of} outputs", True, matrix, 1


_ORDINALS = ("first", "second", "third", "further")


def width_law(inner: Sequence[DrawnAlike], width: int) -> WidthLaw | None:
    """Returns the law by which the matrices that read the stream were drawn; one deviation for all
    is one too. None without.

    One of them may be smaller: T5's queries are, by the root of a head's width.
    """
    for law in WIDTH_LAWS:
        if sum(law.fits(group, width) for group in inner) >= max(1, len(inner) - 1) and all(
            law.fits(group, width) or (law.ratio(group, width) < 1 and group.projects)
            for group in inner
        ):
            return law
    if not inner:
        return None
    size = inner[0].size
    if all(group.at(size) for group in inner):
        return WidthLaw(title=f"N(0, {size:.3g}²)", deviation=lambda fan_in, fan_out, width: size)
    return None


def depth_factor(group: DrawnAlike, law: WidthLaw, stack: Stack) -> str:
    """Returns the law of depth by which a group was drawn, as what the law of width is divided by;
    "" for none that is known.

    "1" where depth does not divide it.
    """
    wanted = law.wanted(group, stack.width)[0]
    # Small matrices fit many laws, and one that divides nothing is the likeliest.
    if any(one.fits(group, stack.width) for one in (law, *WIDTH_LAWS)):
        return "1"
    blocks, sublayers = stack.blocks, sum(sublayer.block > 0 for sublayer in stack.sublayers)
    for said, times in (
        (f"√(2 · {blocks})", 2 * blocks),
        (f"√{sublayers}", sublayers),
        (f"√{blocks}", blocks),
    ):
        if group.at(wanted / math.sqrt(times)):
            return said
    for said, times in (("√(2l)", 2), ("√l", 1)):
        if all(
            group.near(size, wanted / math.sqrt(times * block), of_all=False)
            for size, block in zip(group.sizes, group.blocks, strict=True)
        ):
            return said
    return ""


def split_in_two(group: DrawnAlike) -> tuple[list[int], list[int]]:
    """Returns the places of the smaller and the larger ones where a group's sizes are of two kinds,
    two of each or more; else none.

    Two kinds are each of one size, at least 1.3 times apart, and no law of depth: that has more
    sizes than two.
    """
    order = sorted(range(len(group.sizes)), key=lambda place: group.sizes[place])
    sizes = [group.sizes[place] for place in order]
    gap, cut = max(((after / before, n) for n, (before, after) in enumerate(pairwise(sizes), 1)))
    low, high = order[:cut], order[cut:]
    alike = all(
        group.near(group.sizes[one], group.sizes[some[0]], of_all=False)
        for some in (low, high)
        for one in some
    )
    return (
        (sorted(low), sorted(high))
        if gap > 1.3 and alike and min(len(low), len(high)) > 1
        else ([], [])
    )
