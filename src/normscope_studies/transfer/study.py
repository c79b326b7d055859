"""Coordinate checks and ladders of rates over width and depth: what carries over, and the page."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.placement import named
from normscope.report.chart import Panel, Series
from normscope.report.words import counted
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.claims import judged, listed
from ..engine.ladders import mean_nats, trained_by
from ..engine.models import LOSS
from ..engine.page import Claim, StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .config import AXES, PROMISED, SCALES, TransferConfig
from .drifts import (
    Changes,
    Drift,
    SizedModel,
    SizePairs,
    at_an_end,
    best_lrs,
    coordinate_drifts,
    measured,
    rate_drifts,
    run_config,
    sized,
    trained,
)
from .measure import WHAT


def run(config: TransferConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    changes, pairs = measured(config, pieces), trained(config, pieces)
    checks, rates = coordinate_drifts(config, changes), rate_drifts(config, pairs)
    runs = trained_by(pairs.values())
    base = run_config(config, *sized(config)[0])
    unigram_nats = LANGUAGE_MODEL.chance_nats(LANGUAGE_MODEL.open(base))
    return Findings(
        conditions=conditions(config, unigram_nats, runs),
        claims=claims(config, checks, rates),
        figures=figures(config, pairs),
        tables=tables(config, checks, rates),
        data=data(changes, [*checks, *rates], pairs) | {"runs": runs},
    )


def claims(config: TransferConfig, coordinates: Sequence[Drift], rates: Sequence[Drift]) -> list[Claim]:
    """Of the promised placements, that the change of a model and the best rate carry over."""
    last = [drift for drift in coordinates if drift.at == config.coordinate_updates[-1]]
    made = []
    for placement, axis, source in PROMISED:
        title = named(placement).title
        for name, what, drifts in (
            ("the first updates", "the change of a model", last),
            ("the best rate", "the best rate", rates),
        ):
            own = {
                f"{drift.of} at {drift.at}": drift
                for drift in drifts
                if (drift.placement, drift.axis) == (placement, axis)
            }
            if own:
                found = listed({words: one.found for words, one in own.items()}, partial(with_interval, decimals=2))
                made.append(
                    judged(
                        name=f"{title}: {name}",
                        statement=f"{title}: {what} is the same at every {axis}, an exponent of 0 within "
                        f"{drifts[0].edge:g}.",
                        source=source,
                        found=f"exponents over {axis}: {found}",
                        holds={words: one.holds for words, one in own.items()},
                    )
                )
    return made


def tables(config: TransferConfig, coordinates: Sequence[Drift], rates: Sequence[Drift]) -> list[StudyTable]:
    """One for the first updates along each axis, and one for the best rates."""

    def cells(drifts: Sequence[Drift], placement: str, axis: str, of: str) -> list[str]:
        return [_cell(one) for one in drifts if (one.placement, one.axis, one.of) == (placement, axis, of)]

    made = [
        StudyTable(
            title=f"How the change of a model by its first updates grows with its {axis}: exponent and verdict",
            columns=("placement", "of", *(f"after {update}" for update in config.coordinate_updates)),
            rows=[
                (named(placement).title, of, *cells(coordinates, placement, axis, of))
                for placement in config.placements
                for of in WHAT
            ],
        )
        for axis in AXES
    ]
    made.append(
        StudyTable(
            title="How the best learning rate moves with width and depth: exponent and verdict",
            columns=("placement", *(f"{axis}, {_words(warmup)}" for axis in AXES for warmup in config.warmups)),
            rows=[
                (
                    named(placement).title,
                    *(cell for axis in AXES for cell in cells(rates, placement, axis, "best rate")),
                )
                for placement in config.placements
            ],
        )
    )
    return made


def figures(config: TransferConfig, pairs: SizePairs) -> list[StudyFigure]:
    """For each axis and warm-up the loss over the rate, a panel a placement and a line a size."""
    return [
        StudyFigure.of_panels(
            name=f"rates_over_{axis}_{'warm' if warmup else 'cold'}",
            title=f"The loss over the rate at every {axis}, {_words(warmup)}",
            caption="Mean over seeds; a run that did not stay finite counts as its loss at initialisation.",
            panels=[_panel(config, placement, axis, warmup, pairs) for placement in config.placements],
            told=f"Last loss over the peak rate at every {axis}, {_words(warmup)}",
            wide=True,
        )
        for axis in AXES
        for warmup in config.warmups
    ]


def _panel(config: TransferConfig, placement: str, axis: str, warmup: int, pairs: SizePairs) -> Panel:
    along = [pairs[SizedModel(placement, *size)] for size in config.sizes(axis)]
    ladders = [pair.warm if warmup else pair.without for pair in along]
    series = [
        Series(
            label=f"{axis} {size}",
            kind="measured",
            hue=hue,
            x=list(config.peak_lrs),
            y=[mean_nats(column) for column in zip(*ladder.runs, strict=True)],
        )
        for hue, (size, ladder) in enumerate(zip(config.along(axis), ladders, strict=True))
    ]
    return Panel(
        title=named(placement).title, xlabel="peak rate", ylabel="last validation loss, nats", series=series, log_x=True
    )


def _cell(drift: Drift) -> str:
    ends = f"; best at the ladder's end at {counted(drift.at_an_end, 'size')}" if drift.at_an_end else ""
    return f"{drift.carries}: {with_interval(drift.found, 2)}{ends}"


def _words(warmup: int) -> str:
    return "with warm-up" if warmup else "without warm-up"


def data(changes: Changes, drifts: Sequence[Drift], pairs: SizePairs) -> dict[str, Any]:
    """Every change, loss and exponent."""
    return {
        "coordinates": [{**model._asdict(), "seeds": [dict(one) for one in seeds]} for model, seeds in changes.items()],
        "exponents": [
            {
                "placement": drift.placement,
                "axis": drift.axis,
                "of": drift.of,
                "at": drift.at,
                "exponent": plain_estimate(drift.found),
                "sizes_with_the_best_rate_at_an_end": drift.at_an_end,
                "verdict": str(drift.carries),
            }
            for drift in drifts
        ],
        "ladders": [
            {
                **model._asdict(),
                "warmup_updates": ladder.warmup_updates,
                "last_loss_nats": ladder.nats,
                "finite": [[run.finite for run in row] for row in ladder.runs],
                "best_lrs": best_lrs(ladder),
                "best_at_an_end": at_an_end(ladder),
            }
            for model, pair in pairs.items()
            for ladder in (pair.without, pair.warm)
        ],
    }


def conditions(config: TransferConfig, unigram_nats: float, trained_by: Mapping[str, Any]) -> dict[str, str]:
    """How it was measured."""
    rates = ", ".join(f"{lr:g}" for lr in config.peak_lrs)
    return {
        **LOSS,
        "models": f"preset {config.preset}, heads of width {config.head_width}, feed-forward {config.ffn_ratio:g} "
        f"times the width; widths {', '.join(map(str, config.widths))} at {config.depths[0]} blocks, and "
        f"{', '.join(map(str, config.depths))} blocks at width {config.widths[0]}",
        "weights": "N(0, 0.02²) at every size, times the gains of the placement: nothing is scaled by width",
        "first updates": f"Adam at {config.coordinate_lr:g} at every size, without warm-up, a batch an update; root "
        "mean square of the change of the stack's output and of the logits on one batch since initialisation",
        "training": f"{config.updates} updates of Adam, full rate to update {config.warmup_updates}, then in a "
        f"straight line to 0, and a warm-up of {config.warmup_updates} updates or none; rates {rates}; the best by the "
        "parabola through the lowest loss and its neighbours, seed by seed",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens a batch; unigram baseline "
        f"{unigram_nats:.3f}",
        "verdict": f"transfers: the interval of the exponent lies within {config.coordinate_edge:g} of 0 (changes) or "
        f"{config.rate_edge:g} (rates); drifts: outside; else undecided, as is a rate of which a size has its best at "
        "the ladder's end",
        "seeds": f"{config.seeds} for the first updates, {config.ladder_seeds} for the rates: weights and order; "
        "intervals of 95 %, Student's t: of the first updates over exponents seed by seed, of the best rates by the "
        "scatter of all sizes about the line",
        "trained by": in_words(dict(trained_by)),
    }


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
