"""Embeddings beside what they are scaled by and added to, before the first block reads the sum."""

import math
from collections import defaultdict
from collections.abc import Iterator

from ...record import Table
from ...result import Severity
from ..patient import Patient, at_initialisation, initial_weights
from ..rule import Fault, rule

_LEAST_WIDTH = 8
"""Below it, the width is a number that a factor may be by chance."""


@rule(
    "embedding-scaled-twice",
    Severity.WARNING,
    title="an embedding multiplied twice by √width",
    why="Rows drawn at 1/√width have deviation 1 after one factor √width. After two they are √width times larger than "
    "any branch: blocks are lost beside them, positions too.",
    reference="Vaswani et al. 2017, arXiv:1706.03762, section 3.4, for one factor √width; "
    "github.com/TensorAuto/OpenTau/issues/179",
    needs=(initial_weights,),
)
def embedding_scaled_twice(patient: Patient) -> Iterator[Fault]:
    """Rows that are multiplied by the width, where its root is usual, or that were drawn at 1 for that root."""
    if not at_initialisation(patient):
        return
    for table in {table.name: table for table in patient.observed.tables if table.width >= _LEAST_WIDTH}.values():
        root = math.sqrt(table.width)
        twice = abs(table.factor / table.width - 1) < 0.02 and table.rows_size > 2
        if twice:
            yield Fault(
                where=table.name,
                message=f"rows of {table.name}, of deviation {table.size:.3g}, are multiplied by {table.factor:.4g}, "
                f"the width, and enter the stream at {table.rows_size:.3g}; multiplied once by √{table.width} = "
                f"{root:.3g} they would have {table.size * root:.3g}",
                fix="leave one of the two factors √width out",
            )
        elif abs(table.factor / root - 1) < 0.02 and abs(table.size - 1) < 0.1 and table.rows_size > 2:
            yield Fault(
                severity=Severity.INFO,
                where=table.name,
                message=f"rows of {table.name} are drawn at deviation {table.size:.3g} and multiplied by "
                f"√{table.width} = {root:.3g}: they enter the stream at {table.rows_size:.3g}, where "
                f"the factor is meant for rows of 1/√{table.width}",
                fix="draw the table at 1/√width, or leave the factor out",
            )


_APART = 5.0
"""Factor between tables beyond which a sum shows one of them alone: the smaller is 4 % of its square."""
_LOST = 20.0
"""The same of tokens over positions, which large tokens often are in models that learn positions in time."""


@rule(
    "unequal-tables",
    Severity.WARNING,
    title="embeddings that are added and differ much in size",
    why="A norm sees their sum. Where one is five times smaller, it makes 4 % of the sum's square: the first block "
    "reads positions and no tokens, or tokens in no order, until training has evened them out.",
    reference="Devlin et al. 2019, arXiv:1810.04805, and Radford et al. 2019 draw tokens and positions at one "
    "deviation, 0.02; torch.nn.Embedding draws 1",
    needs=(initial_weights,),
)
def unequal_tables(patient: Patient) -> Iterator[Fault]:
    """Tokens drowned by what is added to their rows, or the other way round."""
    if not at_initialisation(patient):
        return
    sums: defaultdict[int, dict[str, Table]] = defaultdict(dict)
    for table in patient.observed.tables:
        # What starts at 0 takes part as soon as it has moved.
        if table.joined_at >= 0 and table.rows_size > 0:
            sums[table.joined_at].setdefault(table.name, table)
    told: set[tuple[str, ...]] = set()
    for some in sums.values():
        if len(some) > 1 and tuple(some) not in told:
            told.add(tuple(some))
            yield from _compared(patient, list(some.values()))


def _compared(patient: Patient, tables: list[Table]) -> Iterator[Fault]:
    rows = {name: weights.shape[0] for name, weights in patient.model.named_parameters() if weights.ndim}
    looked_up = [table for table in tables if not table.by_place]
    if not looked_up:
        return
    tokens = max(looked_up, key=lambda table: rows.get(table.name, 0))
    for other in (table for table in tables if table is not tokens):
        ratio = other.rows_size / tokens.rows_size
        if 1 / _APART <= ratio <= _APART:
            continue
        drowned, over = (tokens, other) if ratio > 1 else (other, tokens)
        # Vaswani et al.'s factor makes tokens larger on purpose, at a real width as large as sinusoids.
        lost = (ratio > 1 or ratio < 1 / _LOST) if tokens.factor == 1 else ratio > 1 and not _is_sinusoid(other)
        yield Fault(
            severity=Severity.WARNING if lost else Severity.INFO,
            where=drowned.name,
            message=f"rows of {drowned.name} have deviation {drowned.rows_size:.3g}{_times(drowned)}, and "
            f"{max(ratio, 1 / ratio):.3g} times larger ones of {over.name} are added to them, of {over.rows_size:.3g}"
            f"{_times(over)}: of the sum's square they make {100 / (1 + max(ratio, 1 / ratio) ** 2):.2g} %",
            fix="draw both at one deviation, such as 0.02",
        )


def _is_sinusoid(table: Table) -> bool:
    return math.isclose(table.rows_size, math.sqrt(0.5), rel_tol=1e-3)


def _times(table: Table) -> str:
    return "" if table.factor == 1 else f" with the factor {table.factor:.3g}"
