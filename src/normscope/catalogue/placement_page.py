"""The page of one placement: formula, source, wiring, initial weights, curves over depth and measured results."""

from collections.abc import Iterator, Sequence

from ..report.wiring.svg import wiring_svg
from . import words
from .details import Details
from .measured import Measured
from .predicted import BLOCKS, Predicted
from .rows import StackKind

_WRITTEN = (
    "<!-- Written by `normscope placements --write-docs docs`; change the placement or the results, not this page. -->"
)


def placement_page(found: Details, predicted: Predicted, measured: Measured, variants: Sequence[str], size: str) -> str:
    """docs/placements/NAME.md; links are relative to it. size: of the model that weights and costs are stated for."""
    parts = [*_source(found, variants), *_depth(found, predicted), *_weights(found, size), *_results(measured)]
    return "\n".join(parts)


def diagram(found: Details, stack: StackKind) -> str:
    """The wiring of one stack as SVG."""
    title = f"Wiring of {found.row.title}, {stack}"
    return wiring_svg(found.wiring[stack], title=title, desc="; ".join(words.formula(found.row)))


def _source(found: Details, variants: Sequence[str]) -> Iterator[str]:
    row = found.row
    yield f"# {row.title}\n\n{_WRITTEN}\n"
    variant = f" A variant of [{row.variant_of}]({row.variant_of}.md)." if row.variant_of else ""
    others = ", ".join(f"[{name}]({name}.md)" for name in variants)
    varied = f" Another reading of it: {others}." if others else ""
    yield f"`{row.name}`, {row.year}. {row.citation}.{variant}{varied} [All placements](../placements.md).\n"
    yield "```text\n" + "\n".join(words.formula(row)) + "\n```\n"
    yield f"{found.description}\n"
    yield f"![Wiring of {row.title}]({row.name}.svg)\n"


def _depth(found: Details, predicted: Predicted) -> Iterator[str]:
    row = found.row
    yield f"## Over depth\n\nPredicted at initialisation for {BLOCKS} blocks:\n"
    yield f"```console\n$ {predicted.command}\n```\n"
    if predicted.picture:
        yield f"![Hidden state and gradient of {row.title} over depth]({row.name}-depth.svg)\n"
    yield " ".join(predicted.told) + "\n"
    yield "[Predicting](../predicting.md) explains both curves, and how far they were found to hold.\n"


def _weights(found: Details, size: str) -> Iterator[str]:
    yield f"## Weights and cost\n\nFor {size}. Initial weights: `{found.scheme}`, {found.scheme_source}.\n"
    yield f"| standard deviation of | {' | '.join(words.weight_columns(found))} |"
    yield f"| --- |{' --- |' * len(words.weight_columns(found))}"
    for weight, cells in words.weight_rows(found):
        yield f"| {weight} | {' | '.join(cells)} |"
    yield ""
    yield from (f"- {fact}" for fact in words.facts(found))
    yield from (f"- Parameter {parameter}." for parameter in words.parameter_lines(found))
    yield from (f"- Cost, {kind}: {cost}." for kind, cost in words.costs(found.row).items())
    yield ""


def _results(measured: Measured) -> Iterator[str]:
    yield "## Results\n"
    if measured.rows:
        yield "Each result says what it was measured with; a loss is the mean over seeds, with its range.\n"
        yield "| result | measured | found |\n| --- | --- | --- |"
        for (title, folder), rows in measured.rows.items():
            for number, row in enumerate(rows):
                link = "" if number else f"[{title}](../../results/{folder}/README.md) (`{folder}`)"
                yield f"| {link} | {row.what} | {row.found} |"
        yield ""
    mentioned = ", ".join(f"[{title}](../../results/{folder}/README.md)" for title, folder in measured.mentioned)
    if mentioned:
        yield f"{'It has numbers as well' if measured.rows else 'It has numbers'} in {mentioned}.\n"
    if not measured.rows and not mentioned:
        yield "None of the committed results has numbers of it.\n"
