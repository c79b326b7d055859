"""A comparison as the output of a notebook's cell: what the terminal says of it, and the curves."""

from collections.abc import Iterator

from .. import notebook
from ..lines import too_many
from ..numbers import learning_rate, number, span
from .contents import Comparison, Configuration
from .endings import endings_svg
from .plots import curves_svg
from .rates import rates_svg

_MOST_ENDINGS = 80
"""Configurations of a picture that shows where each ended."""


def comparison_html(page: Comparison, where: str) -> str:
    """where: the report, which holds everything else."""
    return notebook.fragment(_pieces(page, where))


def _pieces(page: Comparison, where: str) -> Iterator[str]:
    yield notebook.heading(page.title)
    yield notebook.paragraph(page.conclusion.found)
    yield notebook.paragraph(page.conclusion.paper)
    heads = ("configuration", "optimiser", "rate", "warm-up", "seeds", "validation loss (nats per token)", "verdict")
    yield notebook.table(heads, [_row(one) for one in page.configurations])
    for curve in page.rate_curves:
        yield notebook.paragraph(f"{curve.name}: {curve.summary}")
    yield notebook.paragraph(f"Everything else: {where}")
    yield from _pictures(page)


def _pictures(page: Comparison) -> Iterator[str]:
    """Curves where hues tell them apart, of more placements where each ended, and of very many the table alone."""
    baseline = page.unigram_loss_nats
    if not too_many(curve.name for curve in page.valid_curves):
        title = "Validation loss over updates"
        curves = curves_svg(page.valid_curves, ylabel="nats per target token", title=title, baseline=baseline)
        yield notebook.picture(curves)
    elif len(page.configurations) <= _MOST_ENDINGS:
        yield notebook.picture(endings_svg(page.configurations, baseline=baseline))
    if page.rate_curves and not too_many(curve.name for curve in page.rate_curves):
        yield notebook.picture(rates_svg(page.rate_curves, baseline=baseline))


def _row(one: Configuration) -> tuple[object, ...]:
    losses = [seed.valid_loss_nats for seed in one.seeds if seed.valid_loss_nats is not None]
    loss = "–" if not losses else number(sum(losses) / len(losses))
    if len(losses) > 1:
        loss += f" ({span(losses)})"
    rate, warmup = learning_rate(one.peak_lr), one.warmup_updates or "none"
    return (one.name, one.optimizer, rate, warmup, len(one.seeds), loss, one.verdict.text)
