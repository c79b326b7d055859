"""A comparison as one HTML file that needs nothing else, and as the output of a notebook's cell.

`write` puts the pictures of the page beside it as files.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ...files import make_folders, write_over
from ...limits.ours import refuse_other
from .. import notebook
from ..chart import Panel
from ..chart_panels import chart_panels
from ..chart_svg import chart_svg
from ..explorer import environment, scripted
from ..svg import inlined
from ..words import MISSING, NON_FINITE, counted, learning_rate, number, significant, span
from .contents import ComparedConfiguration, ComparisonPage, GradientProfile, Status
from .explore import explorer
from .pictures import endings_svg, pictures

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


def render(comparison: ComparisonPage) -> str:
    """Return the page as text; the same comparison gives the same bytes."""
    explored = explorer(comparison)
    return _page(comparison, explored, pictures(comparison, explored))


def write(comparison: ComparisonPage, folder: Path) -> Path:
    """Write `report.html` and the pictures into `folder`, each complete or not at all. Returns the page's path.

    Raises UserError where a file of another's has one of their names, before any is written.
    """
    make_folders(folder)
    explored = explorer(comparison)
    drawn = pictures(comparison, explored)
    page = folder / PAGE
    for file in (page, *(folder / f"{name}.svg" for name in drawn)):
        refuse_other(file)
    for name, svg in drawn.items():
        write_over(folder / f"{name}.svg", svg)
    write_over(page, _page(comparison, explored, drawn))
    return page


def _page(comparison: ComparisonPage, explored: Mapping[str, Sequence[Panel]], drawn: dict[str, str]) -> str:
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
        pictures={name: inlined(svg, f"p{number}") for number, (name, svg) in enumerate(drawn.items(), 1)},
        scripted=scripted(explored),
        runs=tally(comparison.configurations),
        perplexity=None if comparison.unigram_loss_nats is None else math.exp(comparison.unigram_loss_nats),
        scores=sorted({name for seed in seeds for name in seed.scores}),
        several_seeds=any(len(row.seeds) > 1 for row in comparison.configurations),
        two_decimals=lambda value: number(value, 2),
        significant=significant,
    )


def spread(values: Iterable[float | None], written: Callable[[float], str] = number) -> list[str]:
    """Mean of the finite values and, each for a line below it, what it hides: their range, "4.19 to 4.24", and the
    count where some are absent."""
    every = list(values)
    finite = [value for value in every if value is not None and math.isfinite(value)]
    if not finite:
        return [NON_FINITE if any(value is not None for value in every) else MISSING]
    mean, low, high = (written(value) for value in (math.fsum(finite) / len(finite), min(finite), max(finite)))
    ranged = [f"{low} to {high}"] if low != high else []
    return [mean, *ranged, *([f"{len(finite)} of {len(every)} seeds"] if len(finite) < len(every) else [])]


def growth(profile: GradientProfile) -> list[tuple[str, float, float, float]]:
    """Rows of a table, one a stack: its name, the mean norm of its first and its last block, and last over first."""
    means = [math.fsum(column) / len(column) for column in zip(*profile.seeds_norms, strict=True)]
    rows = []
    named = zip(profile.blocks, means, strict=False)  # no seeds, no means: no rows
    for stack, part in groupby(named, key=lambda pair: pair[0].stack):
        norms = [mean for _, mean in part]
        rows.append((stack, norms[0], norms[-1], norms[-1] / norms[0] if norms[0] else math.nan))
    return rows


def tally(configurations: Sequence[ComparedConfiguration]) -> str:
    """How the runs ended: "4 configurations, 12 runs: 11 finished, 1 stopped at a non-finite value." """
    endings = [seed.status for configuration in configurations for seed in configuration.seeds]
    parts = [f"{endings.count(status)} {words}" for status, words in _ENDINGS.items() if status in endings]
    counts = f"{counted(len(configurations), 'configuration')}, {counted(len(endings), 'run')}"
    return f"{counts}: {', '.join(parts)}." if parts else f"{counts}."


_MOST_ENDINGS = 80
"""Configurations of a picture that shows where each ended."""


def summary_lines(page: ComparisonPage, where: str) -> list[str]:
    """What all of it comes to, as a terminal says it, then every configuration, and where the page is."""
    blocks = (
        page.conclusion,
        [f"{row.verdict.text} – {row.summary}" for row in page.configurations],
        [f"{curve.name}: {curve.summary}" for curve in page.rate_curves],
    )
    lines = [line for block in blocks if block for line in [*block, ""]]
    for row in page.configurations:
        for run in row.seeds:
            if run.status == "decided":
                lines.append(f"stopped early: {row.name}, seed {run.seed}, after update {run.updates}: {run.message}")
    return [*lines, f"report: {where}"]


def comparison_html(page: ComparisonPage, where: str) -> str:
    """where: the report, which holds everything else."""
    return notebook.fragment(_notebook_pieces(page, where))


def _notebook_pieces(page: ComparisonPage, where: str) -> Iterator[str]:
    yield notebook.heading(page.title)
    yield from map(notebook.paragraph, page.conclusion)
    heads = ("configuration", "optimiser", "rate", "warm-up", "seeds", "validation loss (nats per token)", "verdict")
    yield notebook.table(heads, [_notebook_row(one) for one in page.configurations])
    for curve in page.rate_curves:
        yield notebook.paragraph(f"{curve.name}: {curve.summary}")
    yield notebook.paragraph(f"Everything else: {where}")
    yield from _notebook_pictures(page)


def _notebook_pictures(page: ComparisonPage) -> Iterator[str]:
    """Curves where hues tell them apart, of more placements where each ended, and of very many the table alone."""
    charts = {figure: panels[0] for figure, panels in explorer(page).items() if panels[0].series}
    few = {figure: panel for figure, panel in charts.items() if len(chart_panels(panel)) == 1}
    if "valid-loss" in few:
        yield notebook.picture(chart_svg(few["valid-loss"]))
    elif "valid-loss" in charts and len(page.configurations) <= _MOST_ENDINGS:
        yield notebook.picture(endings_svg(page))
    if "loss-by-rate" in few:
        yield notebook.picture(chart_svg(few["loss-by-rate"]))


def _notebook_row(one: ComparedConfiguration) -> tuple[object, ...]:
    losses = [seed.valid_loss_nats for seed in one.seeds if seed.valid_loss_nats is not None]
    loss = "–" if not losses else number(sum(losses) / len(losses))
    if len(losses) > 1:
        loss += f" ({span(losses)})"
    rate, warmup = learning_rate(one.peak_lr), one.warmup_updates or "none"
    return (one.name, one.optimizer, rate, warmup, len(one.seeds), loss, one.verdict.text)
