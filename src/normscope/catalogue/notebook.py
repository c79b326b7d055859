"""Placements as the output of a notebook's cell: what `normscope placements` shows of them."""

from collections.abc import Iterator, Mapping, Sequence

from ..report import notebook
from . import words
from .details import Details
from .placement_page import diagram
from .rows import Row, Size


def list_html(rows: Sequence[Row], size: Size) -> str:
    """All of them, a row each."""
    heads = ("placement", "formula", "year", "source", "final norm", "norms per block", "cost", "× Pre-LN")
    table = [
        (
            row.name,
            "; ".join(words.brief_formula(row)),
            row.year,
            row.citation,
            _each(words.final_norm(facts) for facts in row.stacks.values()),
            _each(words.span(facts.norms) for facts in row.stacks.values()),
            _each(words.number(facts.last_block_cost.total) for facts in row.stacks.values()),
            _each(f"{facts.last_block_cost_ratio:.2f}" for facts in row.stacks.values()),
        )
        for row in rows
    ]
    said = notebook.paragraph(f"For {size}. {words.COUNTED}")
    return notebook.fragment([notebook.table(heads, table), said])


def details_html(shown: Mapping[str, Details], size: Size) -> str:
    """Each with its formula, wiring, initial weights and counts."""
    return notebook.fragment(piece for found in shown.values() for piece in _pieces(found, size))


def _pieces(found: Details, size: Size) -> Iterator[str]:
    row = found.row
    variant = f", a variant of {row.variant_of}" if row.variant_of else ""
    yield notebook.heading(f"{row.title} ({row.name}), {row.year}{variant}")
    yield notebook.paragraph(f"{row.citation}. Defined for {words.defined(row, size)}; numbers are for {size}.")
    yield notebook.preformatted("\n".join(words.formula(row)))
    for stack in found.wiring:
        yield notebook.image(diagram(found, stack), f"Wiring of {row.title}, {stack}: {'; '.join(words.formula(row))}")
    yield notebook.paragraph(" ".join(found.description.split()))
    yield notebook.paragraph(f"Initial weights: {found.scheme}, {found.scheme_source}. Standard deviations:")
    weights = [(weight, *cells) for weight, cells in words.weight_rows(found)]
    yield notebook.table(("weight", *words.weight_columns(found)), weights)
    facts = [*words.facts(found), *(f"Parameter {line}." for line in words.parameter_lines(found))]
    facts += [f"Cost, {kind}: {cost}." for kind, cost in words.costs(row).items()]
    yield from map(notebook.paragraph, facts)


def _each(cells: Iterator[str]) -> str:
    """Once where all stacks have the same."""
    return " / ".join(dict.fromkeys(cells)) or "–"
