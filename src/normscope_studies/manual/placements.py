"""The manual's pages of placements: their list, and for each its formula, predicted curves and
measured results.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from normscope.catalogue import words
from normscope.catalogue.details import Details, details
from normscope.catalogue.rows import PlacementRow, Size, rows, sized
from normscope.catalogue.wiring_svg import diagram
from normscope.placement import Placement, registered
from normscope.report.words import significant
from normscope.theory.predict import ModelSetting, StackPrediction, predict_or_refuse

from ..engine.page import table_lines
from .curves import DepthCurve, DepthPanel, curves_svg
from .measured import PlacementResults, measured

BLOCKS = 24
COMPARED = ("pre-ln", "post-ln")
"""The placements whose curves are drawn beside each other one."""
GRADIENT_OF = "ffn_out"
_STREAM, _GRADIENT = "hidden state, E‖x‖² / d", "gradient norm of W2"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PredictedFigure:
    """`picture` is "" where theory does not follow the placement, and `told` says why."""

    command: str
    told: list[str]
    picture: str = ""


def predictions(placements: Mapping[str, type[Placement]]) -> dict[str, _PredictedFigure]:
    """Predicts each placement, in an encoder where it is defined for one."""
    found: dict[str, _PredictedFigure] = {}
    for stack in ("encoder", "encoder-decoder"):
        names = [name for name, placement in placements.items() if _stack(placement) == stack]
        model = ModelSetting(stack=stack, blocks=BLOCKS)
        curves, refused = predict_or_refuse(
            [*names, *(n for n in COMPARED if n not in names)], model
        )
        for name in names:
            others = [other for other in COMPARED if other != name]
            command = _command(name, others, stack)
            if name in refused:
                found[name] = _PredictedFigure(
                    command=command, told=[f"Theory does not follow it: {refused[name]}."]
                )
                continue
            drawn = {other: curves[other] for other in (name, *others)}
            title = {other: placements[other].title for other in drawn}
            picture = curves_svg(
                _panels(drawn, title),
                title=f"{title[name]} over depth at initialisation, predicted",
            )
            found[name] = _PredictedFigure(
                command=command, told=list(_told(curves[name])), picture=picture
            )
    return found


def _stack(placement: type[Placement]) -> Literal["encoder", "encoder-decoder"]:
    return "encoder" if "encoder-only" in placement.models else "encoder-decoder"


def _command(name: str, others: Sequence[str], stack: str) -> str:
    where = "" if stack == "encoder" else f" --stack {stack}"
    return f"normscope predict {' '.join([name, *others])} --blocks {BLOCKS}{where}"


def _panels(
    drawn: Mapping[str, Mapping[str, StackPrediction]], titles: Mapping[str, str]
) -> list[DepthPanel]:
    streams, gradients = [], []
    for number, (name, stacks) in enumerate(drawn.items()):
        for part, (stack, prediction) in enumerate(stacks.items()):
            label = f"{titles[name]}, {stack}" if len(stacks) > 1 else titles[name]
            if number and part:
                continue  # what it is compared with is one line each
            look = min(part, 1) if number == 0 else COMPARED.index(name) + 2
            gradient = prediction.gradient_norm[GRADIENT_OF].tolist()
            gradients.append(DepthCurve(label=label, look=look, first=1, values=gradient))
            for place, (stream, curve) in enumerate(prediction.streams.items()):
                of = label if place == 0 else f"{label}: {stream}"
                streams.append(
                    DepthCurve(
                        label=of, look=look or min(place, 1), first=0, values=curve.q.tolist()
                    )
                )
    return [
        DepthPanel("completed blocks", _STREAM, streams),
        DepthPanel("block", _GRADIENT, gradients),
    ]


def _told(stacks: Mapping[str, StackPrediction]) -> Iterator[str]:
    """The ends of the curves in words."""
    for stack, prediction in stacks.items():
        of = f" of the {stack}" if len(stacks) > 1 else ""
        first, last = (significant(float(prediction.q[place]), 3) for place in (0, -1))
        yield f"The mean square of the hidden state{of}, E‖x‖² / d, goes from {first} to {last}."
        first, last = (
            significant(float(prediction.gradient_norm[GRADIENT_OF][place]), 3) for place in (0, -1)
        )
        yield f"The {_GRADIENT}{of} goes from {first} in the first block to {last} in the last."


_WRITTEN = (
    "<!-- Written by `python -m normscope_studies.manual docs`; change the placement or the "
    "results, not this page. -->"
)


def placement_page(
    found: Details,
    predicted: _PredictedFigure,
    measured: PlacementResults,
    variants: Sequence[str],
    size: str,
) -> str:
    """docs/placements/NAME.md; links are relative to it. size: of the model that weights and costs
    are stated for.
    """
    parts = [
        *_source(found, variants),
        *_depth(found, predicted),
        *_weights(found, size),
        *_results(measured),
    ]
    return "\n".join(parts)


def _source(found: Details, variants: Sequence[str]) -> Iterator[str]:
    row = found.row
    yield f"# {row.title}\n\n{_WRITTEN}\n"
    variant = f" A variant of [{row.variant_of}]({row.variant_of}.md)." if row.variant_of else ""
    others = ", ".join(f"[{name}]({name}.md)" for name in variants)
    varied = f" Another reading of it: {others}." if others else ""
    yield (
        f"`{row.name}`, {row.year}. {row.citation}.{variant}{varied} [All "
        "placements](../placements.md).\n"
    )
    yield "```text\n" + "\n".join(words.formula(row)) + "\n```\n"
    yield f"{found.description}\n"
    yield f"![Wiring of {row.title}]({row.name}.svg)\n"


def _depth(found: Details, predicted: _PredictedFigure) -> Iterator[str]:
    row = found.row
    yield f"## Over depth\n\nPredicted at initialisation for {BLOCKS} blocks:\n"
    yield f"```console\n$ {predicted.command}\n```\n"
    if predicted.picture:
        yield f"![Hidden state and gradient of {row.title} over depth]({row.name}-depth.svg)\n"
    yield " ".join(predicted.told) + "\n"
    yield (
        "[Predicting](../predicting.md) explains both curves, and how far they were found to "
        "hold.\n"
    )


def _weights(found: Details, size: str) -> Iterator[str]:
    yield (
        "## Weights and cost\n"
        "\n"
        f"For {size}. Initial weights: `{found.scheme}`, {found.scheme_source}.\n"
    )
    columns = ["standard deviation of", *words.weight_columns(found)]
    yield from table_lines(
        columns, ([weight, *cells] for weight, cells in words.weight_rows(found))
    )
    yield ""
    yield from (f"- {statement}" for statement in words.statements(found))
    yield ""


def _results(measured: PlacementResults) -> Iterator[str]:
    yield "## Results\n"
    if measured.rows:
        yield (
            "Each result says what it was measured with; a loss is the mean over seeds, with its "
            "range.\n"
        )
        yield "| result | measured | found |\n| --- | --- | --- |"
        for (title, folder), rows in measured.rows.items():
            for number, (what, told) in enumerate(rows):
                link = "" if number else f"[{title}](../../results/{folder}/README.md) (`{folder}`)"
                yield f"| {link} | {what} | {told} |"
        yield ""
    mentioned = ", ".join(
        f"[{title}](../../results/{folder}/README.md)" for title, folder in measured.mentioned
    )
    if mentioned:
        yield f"{'It has numbers as well' if measured.rows else 'It has numbers'} in {mentioned}.\n"
    if not measured.rows and not mentioned:
        yield "None of the committed results has numbers of it.\n"


_COLUMNS = (
    "placement",
    "formula",
    "year",
    "defined for",
    "final norm",
    "norms per block",
    "extra parameters per block",
    "cost",
    "× Pre-LN",
)


def pages(results: Path) -> dict[str, str]:
    """Returns the pages and their pictures: path below the folder of the manual -> text. The same
    code gives the same bytes.

    Numbers are for a model of the size that `normscope placements` takes by default; a placement
    that is not defined for such a model is shown for the first kind that it has. results: the
    folder of results; it may be missing.
    """
    size = Size()
    table = rows(size)
    known = registered()
    predicted, found = predictions(known), measured(results, known)
    written = {"placements.md": page(table, size)}
    for row in table:
        name = row.name
        shown = details(known[name], _fitting(row, size))
        variants = [other.name for other in table if other.variant_of == name]
        written[f"placements/{name}.md"] = placement_page(
            shown, predicted[name], found[name], variants, str(size)
        )
        written[f"placements/{name}.svg"] = diagram(shown, next(iter(shown.wiring)))
        if predicted[name].picture:
            written[f"placements/{name}-depth.svg"] = predicted[name].picture
    return written


def page(table: Sequence[PlacementRow], size: Size) -> str:
    """docs/placements.md."""
    whole = Path(__file__).with_name("placements.md").read_text(encoding="utf-8")
    return whole.replace("@TABLE@", "\n".join(_overview(table, size)))


def _fitting(row: PlacementRow, size: Size) -> Size:
    if row.stacks:
        return size
    blocks = str(max(size.encoder_blocks, size.decoder_blocks))
    return sized(row.models[0], blocks, size.width, size.ffn_width, size.heads)


def _overview(table: Sequence[PlacementRow], size: Size) -> Iterator[str]:
    yield (
        "## All of them\n"
        "\n"
        f"Numbers are for {size}; of two, the first is the encoder's and the second the decoder's."
    )
    yield f"{words.EXTRA} {words.COUNTED}\n"
    rows = []
    for row in table:
        name = f"[{row.name}](placements/{row.name}.md)"
        formula = "<br>".join(f"`{line}`" for line in words.formula(row, brief=True))
        defined = words.defined(row, size)
        rows.append(
            [
                f"*{name}*" if row.variant_of else name,
                formula,
                str(row.year),
                defined,
                *words.counts(row).values(),
            ]
        )
    yield from table_lines(_COLUMNS, rows)
    yield "\nNames in italics are variants: another reading of the placement above them.\n"
