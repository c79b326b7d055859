"""A comparison as one HTML file that needs nothing else, and as the output of a notebook's cell.

`write` puts the pictures of the page beside it as files: every chart that its readers explore, and
where every run ended, a row a placement.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...files import make_folders, write_over
from ...limits import kinds
from ...limits.ours import refuse_other
from .. import notebook
from ..chart import Panel
from ..chart_panels import chart_panels, too_many
from ..chart_svg import VARIANTS, chart_svg
from ..explorer import environment, scripted
from ..svg import HUES, INK, house_style, inlined, to_svg
from ..words import MISSING, NON_FINITE, counted, learning_rate, number, significant, span
from .contents import ComparedConfiguration, ComparisonPage, GradientProfile, Status
from .explore import explorer
from .targets import loss_words

PAGE = "report.html"
_ENDINGS = {
    Status.FINISHED: "finished",
    Status.NON_FINITE: "stopped at a non-finite value",
    Status.DECIDED: "stopped early",
    Status.RUNNING: "still running",
    Status.UNFINISHED: "unfinished",
    Status.FAILED: "failed",
    Status.MISSING: "missing",
}


def write(comparison: ComparisonPage, folder: Path) -> Path:
    """Write `report.html` and the pictures into `folder`, each complete or not at all. Returns the
    page's path.

    The same comparison gives the same bytes. Raises UserError where another's file has a name,
    before any is written.
    """
    make_folders(folder)
    explored = explorer(comparison)
    drawn = pictures(comparison, explored)
    page = folder / PAGE
    refuse_other(page, kinds.PAGE)
    for name in drawn:
        refuse_other(folder / f"{name}.svg", kinds.CHART)
    for name, svg in drawn.items():
        write_over(folder / f"{name}.svg", svg, kinds.CHART)
    write_over(page, _page(comparison, explored, drawn), kinds.PAGE)
    return page


def _page(
    comparison: ComparisonPage, explored: Mapping[str, Sequence[Panel]], drawn: dict[str, str]
) -> str:
    jinja = environment()
    seeds = [seed for row in comparison.configurations for seed in row.seeds]
    jinja.filters |= {
        "number": number,
        "significant": significant,
        "rate": learning_rate,
        "spread": spread,
        "growth": growth,
        "scored": lambda runs, name: [run.scores.get(name) for run in runs],
    }
    return jinja.get_template("comparison.html.j2").render(
        c=comparison,
        pictures={
            name: inlined(svg, f"p{number}") for number, (name, svg) in enumerate(drawn.items(), 1)
        },
        scripted=scripted(explored),
        runs=tally(comparison.configurations),
        guess=_guess(comparison),
        **loss_words(comparison.words),
        scores=sorted({name for seed in seeds for name in seed.scores}),
        several_seeds=any(len(row.seeds) > 1 for row in comparison.configurations),
        two_decimals=lambda value: number(value, 2),
        significant=significant,
    )


def _guess(comparison: ComparisonPage) -> str:
    """What reaches a loss without the input, in a sentence; "" where that is not known."""
    words, level = comparison.words, comparison.unigram_loss_nats
    if level is None:
        return ""
    if words.short == "token":
        return (
            f"The {words.baseline} is {number(level)} nats, a perplexity of "
            f"{significant(math.exp(level))}."
        )
    guesses = f" Right without looking: {words.guesses}." if words.is_classification else ""
    return f"The {words.baseline} has a loss of {number(level)}.{guesses}"


def spread(values: Iterable[float | None], written: Callable[[float], str] = number) -> list[str]:
    """Returns the mean of the finite values and, each for a line below it, what it hides: their
    range, "4.19 to 4.24", and the count where some are absent.
    """
    every = list(values)
    finite = [value for value in every if value is not None and math.isfinite(value)]
    if not finite:
        return [NON_FINITE if any(value is not None for value in every) else MISSING]
    mean, low, high = (
        written(value) for value in (math.fsum(finite) / len(finite), min(finite), max(finite))
    )
    ranged = [f"{low} to {high}"] if low != high else []
    return [
        mean,
        *ranged,
        *([f"{len(finite)} of {len(every)} seeds"] if len(finite) < len(every) else []),
    ]


class StackGrowth(NamedTuple):
    """The growth of a stack's gradients from its first block to its last."""

    stack: str
    first: float
    """Mean norm of the first block's."""
    last: float
    ratio: float
    """Last over first, NaN where the first is 0."""


def growth(profile: GradientProfile) -> list[StackGrowth]:
    """Returns the growth of each stack's gradient norms."""
    means = [math.fsum(column) / len(column) for column in zip(*profile.seeds_norms, strict=True)]
    rows = []
    named = zip(profile.blocks, means, strict=False)  # no seeds, no means: no rows
    for stack, part in groupby(named, key=lambda pair: pair[0].stack):
        norms = [mean for _, mean in part]
        ratio = norms[-1] / norms[0] if norms[0] else math.nan
        rows.append(StackGrowth(stack, norms[0], norms[-1], ratio))
    return rows


def tally(configurations: Sequence[ComparedConfiguration]) -> str:
    """Says how the runs ended: "4 configurations, 12 runs: 11 finished, 1 stopped at a non-finite
    value."
    """
    endings = [seed.status for configuration in configurations for seed in configuration.seeds]
    parts = [
        f"{endings.count(status)} {words}"
        for status, words in _ENDINGS.items()
        if status in endings
    ]
    counts = f"{counted(len(configurations), 'configuration')}, {counted(len(endings), 'run')}"
    return f"{counts}: {', '.join(parts)}." if parts else f"{counts}."


_WIDTH_INCHES = 5.6
_ROW_INCHES = 0.3
_LEGEND_ROW_INCHES = 0.24
_LEGEND_COLUMNS, _LEGEND_ROWS = 2, 2
"""Rows of the legend that the usual height has room for."""
_LABEL_CHARACTERS = 28
_ENDS_CEILING = 1.3
"""Losses above so many times the unigram baseline, and runs that stopped at a non-finite value,
stand at the edge.
"""
_BASELINE_DASH = (0, (7, 4))
_MOST_ENDINGS = 80
"""Configurations of a picture that shows where each ended."""


def pictures(comparison: ComparisonPage, explored: Mapping[str, Sequence[Panel]]) -> dict[str, str]:
    """Name to SVG text, those over rates where there are rates; a configuration has one hue in all
    of them.

    What readers explore by a slider has no picture.
    """
    drawn = {}
    for figure, panels in explored.items():
        chart = next(panel for panel in panels if not panel.frames)
        if chart.series or not chart.log_x:
            drawn[figure.replace("-", "_")] = chart_svg(chart)
    return drawn | {"final_loss": endings_svg(comparison)}


@house_style()
def endings_svg(comparison: ComparisonPage) -> str:
    """Draw the last validation loss of each configuration: a large mark for the mean of its seeds,
    small ones for them.

    The loss of the unigram baseline is a dashed line.
    """
    configurations, baseline = comparison.drawn, comparison.unigram_loss_nats
    hues = list(
        dict.fromkeys(configuration.name.group for configuration in comparison.configurations)
    )
    by_group: dict[str, list[ComparedConfiguration]] = {}
    for configuration in configurations:
        by_group.setdefault(configuration.name.group, []).append(configuration)
    groups = sorted(by_group, key=lambda group: min(map(_ending, by_group[group])))
    variants = list(dict.fromkeys(configuration.name.variant for configuration in configurations))
    place_of = {variant: place for place, variant in enumerate(variants)}
    # Beside the variants there may stand the baseline and what lies beyond the edge.
    more = max(0, -(-(len(variants) + 2) // _LEGEND_COLUMNS) - _LEGEND_ROWS)
    height = 1.3 + _ROW_INCHES * len(groups) + _LEGEND_ROW_INCHES * more
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    axes = figure.add_subplot()
    finite = [
        loss
        for configuration in configurations
        for loss in _losses(configuration)
        if math.isfinite(loss)
    ]
    edge = max(finite, default=1.0)
    if baseline is not None and math.isfinite(baseline):
        edge = min(edge, _ENDS_CEILING * baseline)
        axes.axvline(baseline, color=INK, lw=1.2, ls=_BASELINE_DASH, zorder=1.5)
    for row, group in enumerate(groups):
        for configuration in by_group[group]:
            place = place_of[configuration.name.variant]
            # Variants side by side: where they end at the same loss both can be seen.
            y = row + 0.18 * (place - (len(variants) - 1) / 2) / max(1, len(variants) - 1)
            color = INK if too_many(hues) else HUES[hues.index(group)]
            _mark(axes, configuration, y, edge, (color, VARIANTS[place % len(VARIANTS)][1]))
    words = comparison.words
    unit = f"cross-entropy ({words.unit})" if words.short == "token" else words.unit
    _label(axes, groups, unit, empty=not finite)
    beyond = any(
        not loss <= edge for configuration in configurations for loss in _losses(configuration)
    )
    _legend(figure, variants, words.baseline, drawn=_is_drawn(baseline), beyond=beyond)
    described = ". ".join(
        f"{one.name}: {', '.join(map(significant, _losses(one))) or 'no value'}"
        for one in configurations
    )
    return to_svg(figure, title="Validation loss at the end", desc=described)


def _is_drawn(baseline: float | None) -> bool:
    return baseline is not None and math.isfinite(baseline)


def _label(axes: Axes, groups: Sequence[str], unit: str, *, empty: bool) -> None:
    most = 2 * _LABEL_CHARACTERS  # at most two lines, which leave the axes room
    short = (group if len(group) <= most else f"{group[: most - 1]}…" for group in groups)
    labels = [textwrap.fill(group, _LABEL_CHARACTERS) for group in short]
    for label in axes.set_yticks(range(len(groups)), labels=labels):
        label.label1.set_parse_math(False)  # a label may hold a dollar sign
    axes.set_ylim(max(1, len(groups)) - 0.5, -0.5)
    # Long names leave narrow axes: in their middle the label would run off the picture.
    axes.set_xlabel(unit, loc="right")
    axes.grid(axis="y", visible=False)
    if empty:
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes)


def _legend(
    figure: Figure, variants: Sequence[str], baseline: str, *, drawn: bool, beyond: bool
) -> None:
    """One entry a variant. Its marks have the hues of their rows, and so the entry has none."""
    handles = [
        Line2D(
            [],
            [],
            ls="",
            marker=VARIANTS[place % len(VARIANTS)][1],
            ms=7,
            color=INK,
            label=variant or "runs",
        )
        for place, variant in enumerate(variants)
    ]
    if drawn:
        handles.append(Line2D([], [], color=INK, lw=1.2, ls=_BASELINE_DASH, label=baseline))
    if beyond:
        handles.append(
            Line2D([], [], ls="", marker="x", ms=8, mew=2, color=INK, label="beyond the edge")
        )
    if handles:
        legend = figure.legend(
            handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS, columnspacing=1.6
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign


def _mark(
    axes: Axes,
    configuration: ComparedConfiguration,
    y: float,
    edge: float,
    color_and_marker: tuple[str, str],
) -> None:
    color, marker = color_and_marker
    losses = _losses(configuration)
    inside = [loss for loss in losses if loss <= edge]
    axes.plot(inside, [y] * len(inside), ls="", marker=marker, ms=3.5, color=color, alpha=0.55)
    if inside:
        mean = math.fsum(inside) / len(inside)
        axes.plot([mean], [y], ls="", marker=marker, ms=7, color=color, zorder=3)
    if len(inside) < len(losses):
        axes.plot([edge], [y], ls="", marker="x", ms=8, mew=2, color=color, zorder=4, clip_on=False)


def _losses(configuration: ComparedConfiguration) -> list[float]:
    return [
        seed.valid_loss_nats for seed in configuration.seeds if seed.valid_loss_nats is not None
    ]


def _ending(configuration: ComparedConfiguration) -> float:
    """Returns the mean over seeds by which groups are put in order; infinite where a seed did not
    get there.
    """
    losses = _losses(configuration)
    return (
        math.fsum(losses) / len(losses) if losses and all(map(math.isfinite, losses)) else math.inf
    )


def summary_lines(page: ComparisonPage, where: str) -> list[str]:
    """Returns the conclusion as a terminal shows it, then every configuration, and the place of the
    page.
    """
    blocks = (
        page.conclusion,
        [f"{row.verdict.text} – {row.summary}" for row in page.configurations],
        [f"{curve.name}: {curve.summary}" for curve in page.rate_curves],
    )
    lines = [line for block in blocks if block for line in [*block, ""]]
    for row in page.configurations:
        for run in row.seeds:
            if run.status == "decided":
                lines.append(
                    f"stopped early: {row.name}, seed {run.seed}, after update {run.updates}: "
                    f"{run.message}"
                )
    return [*lines, f"report: {where}"]


def comparison_html(page: ComparisonPage, where: str) -> str:
    """where: the report, which holds everything else."""
    return notebook.fragment(_notebook_pieces(page, where))


def _notebook_pieces(page: ComparisonPage, where: str) -> Iterator[str]:
    yield notebook.heading(page.title)
    yield from map(notebook.paragraph, page.conclusion)
    heads = (
        "configuration",
        "optimiser",
        "rate",
        "warm-up",
        "seeds",
        "validation loss (nats per token)" if page.words.short == "token" else "validation loss",
        "verdict",
    )
    yield notebook.table(heads, [_notebook_row(one) for one in page.configurations])
    for curve in page.rate_curves:
        yield notebook.paragraph(f"{curve.name}: {curve.summary}")
    yield notebook.paragraph(f"Everything else: {where}")
    yield from _notebook_pictures(page)


def _notebook_pictures(page: ComparisonPage) -> Iterator[str]:
    """Curves where hues tell them apart, of more placements where each ended, and of very many the
    table alone.
    """
    charts = {figure: panels[0] for figure, panels in explorer(page).items() if panels[0].series}
    few = {figure: panel for figure, panel in charts.items() if len(chart_panels(panel)) == 1}
    if "valid-loss" in few:
        yield notebook.picture(chart_svg(few["valid-loss"]))
    elif "valid-loss" in charts and len(page.configurations) <= _MOST_ENDINGS:
        yield notebook.picture(endings_svg(page))
    if "loss-by-rate" in few:
        yield notebook.picture(chart_svg(few["loss-by-rate"]))


def _notebook_row(one: ComparedConfiguration) -> tuple[object, ...]:
    losses = _losses(one)
    loss = "–" if not losses else number(sum(losses) / len(losses))
    if len(losses) > 1:
        loss += f" ({span(losses)})"
    rate, warmup = learning_rate(one.peak_lr), one.warmup_updates or "none"
    return (one.name, one.optimizer, rate, warmup, len(one.seeds), loss, one.verdict.text)
