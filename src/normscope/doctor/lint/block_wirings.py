"""The wiring of each block, in the names of its own modules, and the one block that is wired unlike
all others.

A block is what parameters of one number in their names belong to. Its norms and sub-layers keep
their places in it wherever the formula is cut, so that a norm that feeds the skip too is the fault
of the block that it stands in.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ...report.words import kind_name
from ..find.terms import Term
from ..record import Stack, Sublayer
from ..trace.operations import walked
from .patient import listed
from .rule import Fault
from .structure import in_blocks


@dataclass(slots=True, kw_only=True)
class _Block:
    sublayers: list[Sublayer] = field(default_factory=list)
    reads: list[Term] = field(default_factory=list)
    """Values of other blocks that it starts from."""
    steps: list[str] = field(default_factory=list)


def unlike_all(stack: Stack, weights: Mapping[str, Tensor]) -> Fault | None:
    """Returns the one block of at least three that is wired otherwise, with matrices of the same
    names and shapes.

    None where several are, or where blocks read several values of others, as of the first one.

    weights: the model's parameters, by name.
    """
    place = _places([name for one in in_blocks(stack) for name in one.measured.matrices[:1]])
    if place is None or stack.streams > 1:
        return None
    blocks = _written(stack, place)
    if blocks is None or len(blocks) < 3:
        return None
    ways = Counter(tuple(block.steps) for block in blocks)
    usual, count = ways.most_common(1)[0]
    odd = [number for number, block in enumerate(blocks) if tuple(block.steps) != usual]
    if len(odd) != 1 or count < 2 or not _built_alike(blocks, odd[0], place, weights):
        return None
    (number,) = odd
    own = tuple(blocks[number].steps)
    if number == 0 and own[1:] == usual[1:] and own[0].endswith("(x)"):
        # What comes out of the embedding, or of its norm, may need no further one.
        return None
    if number == 0 and _without_kinds(own) == _without_kinds(usual):
        # What opens a stage may look at what stood before it, as pooled queries do.
        return None
    if number == len(blocks) - 1 and _ends_in_own_norm(stack, place, blocks[number], usual[-1]):
        return None
    steps = tuple(step for step in own if step not in usual) or own
    others = tuple(step for step in usual if step not in own) or usual
    return Fault(
        where=listed(sublayer.name for sublayer in blocks[number].sublayers),
        message=(
            f"block {number + 1} of {len(blocks)} is wired unlike all others, with matrices of the "
            f"same names and shapes: {'; '.join(steps)}, where the others have {'; '.join(others)}"
        ),
        fix=f"wire block {number + 1} as the others; where it is meant to differ, silence the rule",
    )


def _without_kinds(steps: tuple[str, ...]) -> list[str]:
    """Steps with one word for all that mixes tokens."""
    return [_MIXING.sub("mixing", step) for step in steps]


_MIXING = re.compile("|".join(map(kind_name, ("cross_attention", "attention", "mixer"))))


def _ends_in_own_norm(stack: Stack, place: int, last: _Block, usual_end: str) -> bool:
    """Tells whether all that the last block lacks is a norm of its own around its end, which counts
    as the final one.
    """
    norm, _, rest = usual_end.removeprefix("x ← ").partition("(")
    own, _ = _split(last.sublayers[0].measured.matrices[0], place)
    uses = [_split(use.parameters[0], place) for use in stack.norm_uses if use.parameters]
    return last.steps[-1] == f"x ← {rest[:-1]}" and any(
        key == own and _shown(name) == norm for key, name in uses
    )


def _places(names: Sequence[str]) -> int | None:
    """Finds the place, among the numbers in names, of the block's number: the one with most values.
    None where names have no number.
    """
    numbers = [[int(part) for part in name.split(".") if part.isdecimal()] for name in names]
    shortest = min(map(len, numbers), default=0)
    if not shortest:
        return None
    return max(range(shortest), key=lambda at: len({some[at] for some in numbers}))


def _split(name: str, place: int) -> tuple[tuple[int, ...], str]:
    """Returns the numbers of a name up to the block's, and the name without them; () where it is of
    no block.
    """
    parts = name.split(".")
    numbers: list[int] = []
    for at, part in enumerate(parts):
        if part.isdecimal() and len(numbers) <= place:
            numbers.append(int(part))
            parts[at] = "#"
    return (tuple(numbers), ".".join(parts)) if len(numbers) > place else ((), name)


def _written(stack: Stack, place: int) -> list[_Block] | None:
    """Returns every block with its steps, in the order of depth; None where one of them is not
    understood.
    """
    blocks: dict[tuple[int, ...], _Block] = {}
    owner: dict[int, tuple[int, ...]] = {}
    words: dict[int, str] = {}
    for sublayer in in_blocks(stack):
        if not sublayer.measured.matrices:
            return None
        key, _ = _split(sublayer.measured.matrices[0], place)
        if not key:
            return None
        blocks.setdefault(key, _Block()).sublayers.append(sublayer)
        owner[id(sublayer.formula.branch)] = key
        words[id(sublayer.formula.branch)] = kind_name(sublayer.kind)
    norms = {use.at: _split(use.parameters[0], place) for use in stack.norm_uses if use.parameters}
    several = Counter(name for _, name in set(norms.values()))
    pieces = [one.formula.segment for one in in_blocks(stack)]
    for term in {
        id(term): term for piece in pieces for term in (*piece.terms, piece.start)
    }.values():
        if term.kind == "norm" and term.at in norms:
            key, name = norms[term.at]
            # A number that comes once is none of a block, as that of a norm in front of them.
            owner[id(term)] = key if several[name] > 1 else ()
            words[id(term)] = _shown(name)
    for key, block in blocks.items():
        matrices = [name for sublayer in block.sublayers for name in sublayer.measured.matrices]
        if len(set(matrices)) < len(matrices):
            return None
        writer = _Writer(key, owner, words, block.reads)
        block.steps = [
            f"{words[id(branch)]}({', '.join(map(writer.text, branch.arguments))})"
            for branch in (sublayer.formula.branch for sublayer in block.sublayers)
        ]
    ordered = list(blocks.values())
    ends = [block.reads for block in ordered[1:]]
    if any(len(reads) != 1 for reads in (*ends, ordered[0].reads)):
        return None
    last = ordered[-1].sublayers[-1].formula.segment.end
    # A norm behind the blocks is none of the last one's.
    while last.kind == "norm" and owner.get(id(last)) != list(blocks)[-1]:
        (last,) = last.arguments
    for (key, block), end in zip(
        blocks.items(), [*(reads[0] for reads in ends), last], strict=True
    ):
        # What multiplies all that a block hands on may be the next one's.
        while end.kind == "scale":
            (end,) = end.arguments
        writer = _Writer(key, owner, words, list(block.reads))
        block.steps.append(f"x ← {writer.text(end)}")
        if len(writer.reads) > 1:
            return None
    return ordered


def _shown(name: str) -> str:
    """Returns a norm's name within its block, of its first parameter's."""
    module = name.rpartition(".")[0]
    return (module if not module.endswith("#") else name).removesuffix(".#").rpartition("#.")[2]


_READS_X = re.compile(r"\bx\b")


class _Writer:
    """The values of one block as text, those of others as x."""

    def __init__(
        self,
        key: tuple[int, ...],
        owner: Mapping[int, tuple[int, ...]],
        words: Mapping[int, str],
        reads: list[Term],
    ) -> None:
        self._key, self._owner, self._words, self.reads = key, owner, words, reads
        self._foreign: dict[int, bool] = {}

    def text(self, term: Term) -> str:
        # What multiplies the skip of a block's first sum is its own; a constant may as well be read
        # through.
        constant = term.kind == "scale" and term.factor is not None and term.factor.is_constant
        if self._is_foreign(term) and not constant:
            if not any(term is other for other in self.reads):
                self.reads.append(term)
            return "x"
        if term.kind == "branch":
            return self._words[id(term)]
        if term.kind == "sum":
            addends = sorted(
                self._addends(term),
                key=lambda text: (text.startswith("-"), not _READS_X.search(text), text),
            )
            return " + ".join(addends).replace("+ -", "- ")
        inner = ", ".join(map(self.text, term.arguments))
        if term.kind == "scale" and term.arguments[0].kind == "sum":
            inner = f"({inner})" if " " in inner else inner
        if term.kind == "norm":
            return f"{self._words.get(id(term), 'norm')}({inner})"
        if term.kind == "scale" and term.factor is not None:
            # Constants may follow depth, and have a rule of their own.
            if term.factor.is_constant:
                return inner if term.factor.value > 0 else f"-{inner}"
            return f"{term.factor.origin.name.lower()} · {inner}"
        return f"{term.kind}({inner})"

    def _addends(self, term: Term) -> list[str]:
        """Returns the addends of a sum, and of the sums in it that are no values of other
        blocks.
        """
        found = []
        for argument in term.arguments:
            if argument.kind == "sum" and not self._is_foreign(argument):
                found += self._addends(argument)
            else:
                found.append(self.text(argument))
        return found

    def _is_foreign(self, end: Term) -> bool:
        """Tells whether nothing of this block goes into a value."""
        if id(end) not in self._foreign:
            made_of = walked(end, lambda term: () if term.kind == "branch" else term.arguments)
            self._foreign[id(end)] = all(self._owner.get(id(term)) != self._key for term in made_of)
        return self._foreign[id(end)]


def _built_alike(
    blocks: Sequence[_Block], odd: int, place: int, weights: Mapping[str, Tensor]
) -> bool:
    """Tells whether a block has matrices of the same names and shapes as another block."""

    def built(block: _Block) -> list[tuple[str, tuple[int, ...]]]:
        names = {name for sublayer in block.sublayers for name in sublayer.measured.matrices}
        return sorted(
            (_split(name, place)[1], tuple(weights[name].shape))
            for name in names
            if name in weights
        )

    return built(blocks[odd]) in [
        built(block) for number, block in enumerate(blocks) if number != odd
    ]
