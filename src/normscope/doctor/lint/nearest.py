"""The registered placement nearest to formulas that none has: by the fewest edits of them, and what
these are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from ...placement import Placement, StackShape, registered
from ...placement.symbol import number
from ...report.words import kind_name
from ..find.formulas import Formula
from ..find.segments import Segment
from ..find.terms import Term
from ..identify.candidates import candidate
from ..record import Stack, Sublayer
from ..trace.graph import Factor
from .structure import in_blocks, kinds_of

_LARGEST = 24
"""Steps of a formula that is compared; one without edits of less than that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FormulaEdits:
    """The differences between an observed formula and the one that a placement has at its place."""

    kind: str
    observed: Formula
    expected: Formula
    edits: tuple[str, ...]
    """The edits of the expected formula, in words: "without the norm on the sum"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NearestPlacement:
    """A placement and what of it is other in a stack; formulas that are alike are not among
    `differences`.
    """

    placement: type[Placement]
    differences: tuple[_FormulaEdits, ...]
    """Each kind of sub-layer and formula once."""


def nearest(stack: Stack, shape: StackShape) -> _NearestPlacement | None:
    """Returns the placement with the fewest edits over all sub-layers, of equals the one that is
    known longest.

    None where formulas are too large, or no placement has as many sub-layers in as many pieces.
    """
    inside = [sublayer for sublayer in in_blocks(stack) if not sublayer.formula.over_depth]
    found: list[tuple[int, bool, int, str, _NearestPlacement]] = []
    for placement in registered().values():
        if shape.model not in placement.models or stack.streams > 1 or len(placement.streams) > 1:
            continue
        made = candidate(placement, shape, kinds_of(stack))
        expected = {
            branch.branch: segment for segment in made.blocks for branch in segment.branches
        }
        differences = _differences(inside, expected)
        if differences:
            cost = sum(len(one.edits) * times for one, times in differences)
            own = _NearestPlacement(
                placement=placement, differences=tuple(one for one, _ in differences if one.edits)
            )
            found.append(
                (cost, placement.name != stack.placement, placement.year, placement.name, own)
            )
    return min(found, key=lambda one: one[:4])[4] if found else None


def compared(near: _NearestPlacement) -> str:
    """Describes the nearest placement, as in "Nearest is Pre-LN, but ...", with both formulas of
    the first difference.
    """
    first = near.differences[0]
    words = "; ".join(
        f"{kind_name(one.kind)} {', '.join(dict.fromkeys(one.edits))}"
        for one in near.differences[:2]
    )
    title = near.placement.title
    return f"Nearest is {title}, but {words}. Here {first.observed}, in {title} {first.expected}"


def _differences(
    inside: Sequence[Sublayer], expected: dict[int, Segment]
) -> list[tuple[_FormulaEdits, int]]:
    """Returns each pair of formulas once, with how often it comes; empty where one cannot be
    compared.
    """
    pairs: Counter[tuple[str, str, str]] = Counter()
    shown: dict[tuple[str, str, str], _FormulaEdits] = {}
    for sublayer in inside:
        branch = sublayer.formula.branch
        segment = expected.get(branch.branch)
        if segment is None:
            return []
        own = next(term for term in segment.branches if term.branch == branch.branch)
        wanted = Formula(segment, own)
        key = sublayer.kind, str(sublayer.formula), str(wanted)
        pairs[key] += 1
        if key not in shown:
            observed_tree = _tree(sublayer.formula.segment)
            expected_tree = _tree(segment)
            if observed_tree is None or expected_tree is None:
                return []
            shown[key] = _FormulaEdits(
                kind=sublayer.kind,
                observed=sublayer.formula,
                expected=wanted,
                edits=_edits(observed_tree, expected_tree, "the sum"),
            )
    return [(shown[key], times) for key, times in pairs.items()]


@dataclass(frozen=True, slots=True)
class _Tree:
    """A formula with its sums laid flat: x, F, norm, a factor in its print, or what else it is."""

    kind: str
    parts: "tuple[_Tree, ...]" = ()

    @property
    def with_branch(self) -> bool:
        return self.kind.startswith("F") or any(part.with_branch for part in self.parts)


def _tree(segment: Segment) -> _Tree | None:
    """Returns the segment's end as a tree; None where that has more than `_LARGEST` nodes.

    A value that is read twice stands twice in a tree: two streams that read each other double it
    with every sub-layer, so that nodes are counted before they are made.
    """
    made = {id(segment.start): _Tree("x")}
    sizes = {id(segment.start): 1}
    for term in segment.terms:
        arguments = [id(argument) for argument in term.arguments if id(argument) in made]
        sizes[id(term)] = 1 + sum(sizes[argument] for argument in arguments)
        if sizes[id(term)] > _LARGEST:
            return None
        parts = tuple(made[argument] for argument in arguments)
        made[id(term)] = _node(term, parts, segment.branches[0].branch)
    return made[id(segment.end)]


def _size(tree: _Tree) -> int:
    return 1 + sum(map(_size, tree.parts))


def _node(term: Term, parts: tuple[_Tree, ...], first: int) -> _Tree:
    if term.kind == "branch":
        return _Tree(f"F{term.branch - first}", parts)
    if term.kind == "sum":
        flat = [
            inner for part in parts for inner in (part.parts if part.kind == "sum" else (part,))
        ]
        return _Tree("sum", tuple(sorted(flat, key=repr)))
    if term.kind == "scale" and term.factor is not None:
        return _Tree(f"factor {_factor(term.factor)}", parts)
    return _Tree(term.kind, parts)


def _factor(factor: Factor) -> str:
    if factor.is_constant:
        return str(number(factor.value))
    return {"TRAINABLE": "trained", "DATA": "token"}.get(factor.origin.name, "constant")


def _edits(observed: _Tree, expected: _Tree, role: str) -> tuple[str, ...]:
    """Returns the fewest edits that make the observed tree of the expected one, in words."""
    if observed == expected:
        return ()
    options: list[tuple[str, ...]] = []
    if len(observed.parts) == 1 and observed.kind[0] in "nf":
        options.append(
            (
                f"with {_named(observed)} on {_role(observed.parts[0], role)}",
                *_edits(observed.parts[0], expected, role),
            )
        )
    if len(expected.parts) == 1 and expected.kind[0] in "nf":
        options.append(
            (
                f"without {_named(expected)} on {_role(expected.parts[0], role)}",
                *_edits(observed, expected.parts[0], role),
            )
        )
    if observed.kind == expected.kind == "sum":
        options += _pairings(observed.parts, expected.parts)
    elif len(observed.parts) == len(expected.parts) == 1 and observed.kind[0] == expected.kind[0]:
        inner = "what F reads" if observed.kind.startswith("F") else role
        own = (
            ()
            if observed.kind == expected.kind
            else (f"with {_named(observed)} for {_named(expected)} on {role}",)
        )
        options.append((*own, *_edits(observed.parts[0], expected.parts[0], inner)))
    elif observed.kind == "sum":
        options += [
            (
                f"with {_addends(observed.parts, part)} added to {role}",
                *_edits(part, expected, role),
            )
            for part in observed.parts
        ]
    elif expected.kind == "sum":
        options += [
            (f"without {_addends(expected.parts, part)} in {role}", *_edits(observed, part, role))
            for part in expected.parts
        ]
    if not options:
        options.append(
            tuple(f"with another {role}" for _ in range(max(_size(observed), _size(expected))))
        )
    return min(options, key=len)


def _pairings(observed: Sequence[_Tree], expected: Sequence[_Tree]) -> Iterator[tuple[str, ...]]:
    """Edits under every assignment of addends, those that are too many on one side said as such."""
    few, many = sorted((observed, expected), key=len)
    word = "with a further" if many is observed else "without the"
    for some in permutations(range(len(many)), len(few)) if len(many) <= 4 else []:
        pairs = [
            (few[n], many[at]) if few is observed else (many[at], few[n])
            for n, at in enumerate(some)
        ]
        spare = [many[n] for n in range(len(many)) if n not in some]
        made = [edit for a, b in pairs for edit in _edits(a, b, _role(b, "the sum"))]
        yield (*made, *(f"{word} {_role(part, 'x').removeprefix('the ')}" for part in spare))


def _role(tree: _Tree, otherwise: str) -> str:
    if tree.kind == "sum":
        return "the sum"
    if otherwise == "what F reads":
        return otherwise
    return "the branch" if tree.with_branch else "the skip"


def _named(tree: _Tree) -> str:
    return "a norm" if tree.kind == "norm" else f"the {tree.kind}"


def _addends(parts: Sequence[_Tree], but: _Tree) -> str:
    return " and ".join(_role(part, "x") for part in parts if part is not but) or "the same again"
