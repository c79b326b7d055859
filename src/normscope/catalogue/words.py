"""The wording of the catalogue's numbers and lists, the same in the terminal and in the manual."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from ..placement.base import Initial
from .rows import PlacementRow, Size, StackName, in_order, row as row_of

if TYPE_CHECKING:  # it imports torch, which the list does without
    from .details import Details

COUNTED = (
    "Cost: passes over one vector of the model's width, for one token in the last block, beside F: "
    "additions, scalings, norms, and the vectors that attention over depth and weighted sums read. "
    "A wider or narrower vector counts as its share."
)
EXTRA = (
    "Extra parameters: trainable numbers of the formula, beside F's matrices and what its norms "
    "own."
)


def short_lines(size: Size, width: int) -> Iterator[str]:
    """A line each: name, year, and what sets it apart or its formula; a user's own may take more of
    `width` columns.
    """
    found = in_order()
    named = max(len(placement.name) for placement in found)
    for placement in found:
        head = f"{placement.name:{named}}  {placement.year}  "
        said = vars(placement).get("gist") or "; ".join(
            formula(row_of(placement, size), brief=True)
        )
        yield from wrap(said, width, initial_indent=head, subsequent_indent=" " * len(head))
    yield ""
    more = (
        "`normscope placements show NAME` prints formula, wiring and initial weights; `--long` "
        "adds source and cost."
    )
    yield from wrap(more, width)


def span(counts: Sequence[int]) -> str:
    """ "4", or "4 to 5" where blocks differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def number(value: float) -> str:
    """Writes a number with its three significant digits."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def counts_by_stack(row: PlacementRow) -> dict[str, list[str]]:
    """Returns the counts of a placement, by the heading of their column, for each stack."""
    stacks = row.stacks.values()
    return {
        "final norm": ["yes" if f.final_norm else "none" for f in stacks],
        "norms per block": [span(f.norms) for f in stacks],
        "extra parameters per block": [span(f.extra_parameters) for f in stacks],
        "cost": [number(f.last_block_cost.total) for f in stacks],
        "× Pre-LN": [f"{f.last_block_cost_ratio:.2f}" for f in stacks],
    }


def counts(row: PlacementRow) -> dict[str, str]:
    """The same, once where all stacks have the same."""
    return {
        name: " / ".join(dict.fromkeys(each)) or "–" for name, each in counts_by_stack(row).items()
    }


def formula(row: PlacementRow, *, brief: bool = False) -> list[str]:
    """Returns the formula of the first stack, and what differs in the other one; brief: in a few
    lines, for a list of many.
    """
    if not row.stacks:
        return row.general_formula
    (_, first), *others = (
        (kind, f.brief_formula if brief else f.formula) for kind, f in row.stacks.items()
    )
    return first + [
        f"{kind}: {line}" for kind, found in others for line in found if line not in first
    ]


def defined(row: PlacementRow, size: Size) -> str:
    """Returns where the placement is defined, and whether that includes the model asked for."""
    where = " and ".join(row.models) if len(row.models) < 3 else "every model"
    return where if row.stacks else f"{where} (not {size.model})"


def weight_rows(found: "Details") -> list[tuple[str, list[str]]]:
    """(weight, standard deviation in the first and last block of every stack); the embedding at the
    end.

    Cross-attention is left out where it is drawn as the decoder's attention is.
    """
    kinds: list[StackName] = list(found.wiring)
    attention = {row.weight: row for row in found.weights if row.sublayer == "attention"}
    table = []
    for row in found.weights:
        like = attention.get(row.weight)
        crossing = row.sublayer == "cross_attention"
        if (
            crossing
            and like
            and all((row.first[k], row.last[k]) == (like.first[k], like.last[k]) for k in row.first)
        ):
            continue
        cells = [
            str(drawn[kind]) if kind in drawn else ""
            for kind in kinds
            for drawn in (row.first, row.last)
        ]
        table.append((f"cross {row.weight}" if crossing else row.weight, cells))
    return [*table, ("embedding", [str(found.embedding[kind]) for kind in kinds for _ in (1, 2)])]


def weight_columns(found: "Details") -> list[str]:
    """Returns the columns of `weight_rows`."""
    return [f"{kind}, {which} block" for kind in found.wiring for which in ("first", "last")]


def facts(found: "Details") -> list[str]:
    """Returns further facts, a sentence a line."""
    said = [f"Norm: {found.norm}, epsilon {found.norm_epsilon:g}."]
    said.append(
        f"An embedding row E enters as {found.embedding_rows}; the logits are products with "
        f"{found.output_rows}."
    )
    for where, constants in found.constants.items():
        listed = ", ".join(f"{name} = {value:.4g}" for name, value in constants.items())
        said.append(f"Constants{'' if where == 'class' else f' of the {where}'}: {listed}.")
    if found.unit_vectors:
        said.append(
            f"Every update puts back to length 1 the vectors of {', '.join(found.unit_vectors)}."
        )
    if found.profiled:
        said.append("Initial values of its parameters are set from one batch before training.")
    for name, initial in found.schedules.items():
        said.append(
            f"{name} follows a schedule over updates (`[adaptive]`), {initial:g} before the first."
        )
    return said


def statements(found: "Details") -> list[str]:
    """Returns everything of a placement that no table has: facts, its parameters, its costs."""
    parameters = [f"Parameter {line}." for line in parameter_lines(found)]
    return [
        *facts(found),
        *parameters,
        *(f"Cost, {kind}: {cost}." for kind, cost in costs(found.row).items()),
    ]


def parameter_lines(found: "Details") -> list[str]:
    """Returns the formula's trainable numbers, once where all stacks have the same."""
    by_text: dict[str, list[str]] = {}
    for p in found.parameters:
        shape = " × ".join(map(str, p.shape)) or "one number"
        drawn = f" + N(0, {p.std:.4g}²)" if p.std else ""
        by_text.setdefault(
            f"{p.name} ({shape}), {_numbers(p.initial)}{drawn} at first: {p.where}", []
        ).append(p.stack)
    everywhere = len(found.wiring)
    return [
        text if len(stacks) == everywhere else f"{text} of the {stacks[0]}"
        for text, stacks in by_text.items()
    ]


def _numbers(initial: Initial) -> str:
    """Returns a number, or one for each entry, rows in brackets."""
    return (
        f"({', '.join(map(_numbers, initial))})" if isinstance(initial, tuple) else f"{initial:.4g}"
    )


def costs(row: PlacementRow) -> Mapping[StackName, str]:
    """Returns, by stack, what the last block computes beside F."""
    said: dict[StackName, str] = {}
    for kind, f in row.stacks.items():
        cost = f.last_block_cost
        parts = {
            "additions": cost.additions,
            "scalings": cost.scalings,
            "norms": cost.norms,
            "vectors mixed": cost.mixed,
        }
        listed = (
            ", ".join(f"{number(count)} {name}" for name, count in parts.items() if count)
            or "nothing"
        )
        said[kind] = f"{listed}: {number(cost.total)}, {f.last_block_cost_ratio:.2f} × Pre-LN"
    return said
