"""All that is known of one placement at one size: its row, wiring, initial weights, constants and
parameters.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..placement import Placement, Site, SublayerKind
from ..placement.base import Initial
from ..placement.reading import read, read_head
from ..placement.schemes import SCHEMES, embedding_std, weight_std, weights_of
from ..placement.symbol import Symbol, SymbolEnd, SymbolSublayer
from ..placement.wiring import Wiring, wirings
from ..report.words import significant
from .rows import PlacementRow, Size, StackName, row

VOCABULARY = 10_000
"""Rows of the output projection that shapes are stated for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WeightDraw:
    """The initial distribution of one weight matrix of a block."""

    gain: float
    std: float

    def __str__(self) -> str:
        """Returns the standard deviation, with the placement's gain in it where that is not 1."""
        return significant(self.std, 3) + ("" if self.gain == 1 else f" (gain {self.gain:.3g})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _WeightRow:
    """A weight matrix of a sub-layer, in the first and the last block of every stack that has
    it.
    """

    sublayer: SublayerKind
    weight: str
    first: dict[StackName, _WeightDraw]
    last: dict[StackName, _WeightDraw]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParameterRow:
    """A trainable number, or a tensor of them, that the formula asks for in some place of a
    stack.
    """

    stack: StackName
    where: str
    name: str
    shape: list[int]
    initial: Initial
    """A number for all entries, or one for each in nested tuples."""
    std: float = 0.0
    """The standard deviation of the normal distribution about it that first values are drawn
    from.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """`constants`: numbers that depend on the stack by stack, and under `class` those that do
    not.
    """

    row: PlacementRow
    description: str
    norm: str
    norm_epsilon: float
    embedding_rows: str
    output_rows: str
    scheme: str
    scheme_source: str
    weights: list[_WeightRow]
    embedding: dict[StackName, _WeightDraw]
    unit_vectors: list[str]
    """Weights whose vectors every update puts back to length 1."""
    constants: dict[str, dict[str, float]]
    parameters: list[_ParameterRow]
    profiled: bool
    """True where initial values of the parameters are set from one batch before training."""
    schedules: dict[str, float]
    wiring: dict[StackName, list[Wiring]] = field(default_factory=dict)


def details(placement: type[Placement], size: Size) -> Details:
    """Returns all that is known of a placement at one size. Raises ValueError where it is not
    defined for such a model.
    """
    stacks = {kind: placement(shape) for kind, shape in size.shapes.items()}
    last = list(stacks.values())[-1]  # the one whose output is projected on the vocabulary
    rows_of_embedding = Symbol("E", (), size.width)
    scheme = SCHEMES[placement.initialisation]
    return Details(
        row=row(placement, size),
        description=inspect.cleandoc(placement.__doc__ or ""),
        norm=placement.default_norm,
        norm_epsilon=placement.norm_epsilon,
        embedding_rows=str(last.input_rows(rows_of_embedding)),
        output_rows=str(last.output_rows(rows_of_embedding, SymbolEnd(), VOCABULARY)),
        scheme=placement.initialisation,
        scheme_source=scheme.source,
        weights=list(_weights(stacks)),
        embedding={
            k: _WeightDraw(gain=p.embedding_gain(), std=embedding_std(p)) for k, p in stacks.items()
        },
        unit_vectors=list(placement.unit_vectors),
        constants=_constants(stacks),
        parameters=list(_parameters(stacks, last)),
        profiled=placement.is_profiled(),
        schedules={
            name: initial for p in stacks.values() for name, initial in read(p).schedules.items()
        },
        wiring={kind: wirings(p) for kind, p in stacks.items()},
    )


def _weights(stacks: dict[StackName, Placement]) -> Iterator[_WeightRow]:
    kinds = dict.fromkeys(kind for placement in stacks.values() for kind in placement.stack.kinds)
    for kind in sorted(kinds, key=("attention", "cross_attention", "feed_forward").index):
        having = {
            name: placement for name, placement in stacks.items() if kind in placement.stack.kinds
        }
        for weight in weights_of(kind):
            yield _WeightRow(
                sublayer=kind,
                weight=weight,
                first={name: _drawn(p, weight, kind, 1) for name, p in having.items()},
                last={name: _drawn(p, weight, kind, p.stack.blocks) for name, p in having.items()},
            )


def _drawn(placement: Placement, weight: str, kind: SublayerKind, block: int) -> _WeightDraw:
    site = Site(kind=kind, block=block, stack=placement.stack)
    return _WeightDraw(gain=placement.gain(weight, site), std=weight_std(placement, weight, site))


def _constants(stacks: dict[StackName, Placement]) -> dict[str, dict[str, float]]:
    """Returns the numbers that the placement's class or its instances hold beside what every
    placement has.
    """
    every = set(vars(Placement)) | {"year"}
    classes = [
        c for c in inspect.getmro(type(next(iter(stacks.values())))) if issubclass(c, Placement)
    ]
    fixed = {
        n: v
        for c in reversed(classes)
        for n, v in vars(c).items()
        if n not in every and _is_number(v)
    }
    found = {"class": fixed} if fixed else {}
    for kind, placement in stacks.items():
        own = {name: value for name, value in vars(placement).items() if _is_number(value)}
        if own:
            found[kind] = own
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parameters(stacks: dict[StackName, Placement], last: Placement) -> Iterator[_ParameterRow]:
    for kind, placement in stacks.items():
        reading = read(placement)
        asked: list[tuple[str, SymbolEnd | SymbolSublayer]] = [("embedding", reading.start)]
        # All blocks ask for the same in most placements; where they do not, the last one shows it.
        asked += [(f"every {s.site.kind}".replace("_", "-"), s) for s in reading.blocks[-1]]
        asked.append(("output", reading.finish))
        if placement is last:
            asked.append(("output projection", read_head(placement, VOCABULARY)))
        seen: set[str] = set()
        for place, by in asked:
            for name, spec in by.parameters.items():
                if spec.shared_by_block and name in seen:
                    continue
                seen.add(name)
                where = "every block, shared by its sub-layers" if spec.shared_by_block else place
                shape, initial = list(spec.shape), spec.initial
                yield _ParameterRow(
                    stack=kind, where=where, name=name, shape=shape, initial=initial, std=spec.std
                )
