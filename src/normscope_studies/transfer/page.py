"""The tables, figures, conditions and data of the study of transfer."""

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.placement import named
from normscope.report.chart import Panel, Series
from normscope.report.words import counted

from ..engine.page import StudyFigure, StudyTable
from .config import AXES, TransferConfig
from .ladders import Key, Ladder
from .verdicts import Coordinates, Drift


def tables(config: TransferConfig, coordinates: Sequence[Drift], rates: Sequence[Drift]) -> list[StudyTable]:
    """One for the first updates along each axis, and one for the best rates."""
    made = [
        StudyTable(
            title=f"How the change of a model by its first updates grows with its {axis}: exponent and verdict",
            columns=("placement", "of", *(f"after {update}" for update in config.coordinate_updates)),
            rows=[
                (named(placement).title, of, *(_cell(drift) for drift in _of(coordinates, placement, axis, of)))
                for placement in config.placements
                for of in ("output", "logits")
            ],
        )
        for axis in AXES
    ]
    columns = [f"{axis}, {_words(warmup)}" for axis in AXES for warmup in config.warmups]
    made.append(
        StudyTable(
            title="How the best learning rate moves with width and depth: exponent and verdict",
            columns=("placement", *columns),
            rows=[
                (
                    named(placement).title,
                    *(_cell(drift) for axis in AXES for drift in _of(rates, placement, axis, "best rate")),
                )
                for placement in config.placements
            ],
        )
    )
    return made


def figures(config: TransferConfig, ladders: Mapping[Key, Ladder]) -> list[StudyFigure]:
    """For each axis and warm-up the loss over the rate, a panel a placement and a line a size."""
    return [
        StudyFigure.of_panels(
            name=f"rates_over_{axis}_{'warm' if warmup else 'cold'}",
            title=f"The loss over the rate at every {axis}, {_words(warmup)}",
            caption="Mean over seeds; a run that did not stay finite counts as its loss at initialisation.",
            panels=[_panel(config, placement, axis, warmup, ladders) for placement in config.placements],
            told=f"Last loss over the peak rate at every {axis}, {_words(warmup)}",
            wide=True,
        )
        for axis in AXES
        for warmup in config.warmups
    ]


def _panel(config: TransferConfig, placement: str, axis: str, warmup: int, ladders: Mapping[Key, Ladder]) -> Panel:
    series = [
        Series(
            label=f"{axis} {size}",
            kind="measured",
            hue=hue,
            x=list(config.peak_lrs),
            y=ladders[Key(placement, *place, warmup)].means,
        )
        for hue, (size, place) in enumerate(zip(config.along(axis), config.sizes(axis), strict=True))
    ]
    return Panel(
        title=named(placement).title, xlabel="peak rate", ylabel="last validation loss, nats", series=series, log_x=True
    )


def _of(drifts: Sequence[Drift], placement: str, axis: str, of: str) -> list[Drift]:
    return [drift for drift in drifts if (drift.placement, drift.axis, drift.of) == (placement, axis, of)]


def _cell(drift: Drift) -> str:
    ends = f"; best at the ladder's end at {counted(drift.at_an_end, 'size')}" if drift.at_an_end else ""
    return f"{drift.carries}: {with_interval(drift.found, 2)}{ends}"


def _words(warmup: int) -> str:
    return "with warm-up" if warmup else "without warm-up"


def data(
    coordinates: Coordinates,
    drifts: Sequence[Drift],
    ladders: Mapping[Key, Ladder],
    trained_by: Mapping[str, Any],
) -> dict[str, Any]:
    """Every change, loss and exponent."""
    return {
        "coordinates": [
            {"placement": placement, "width": width, "blocks": blocks, "seeds": [dict(one) for one in seeds]}
            for (placement, width, blocks), seeds in coordinates.items()
        ],
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
                **ladder.key._asdict(),
                "last_loss_nats": [[run.final_nats for run in row] for row in ladder.runs],
                "finite": [[run.finite for run in row] for row in ladder.runs],
                "best_lrs": ladder.best_lrs,
                "best_at_an_end": ladder.at_an_end,
            }
            for ladder in ladders.values()
        ],
        "runs": dict(trained_by),
    }


def conditions(config: TransferConfig, unigram_nats: float, trained_by: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How it was measured."""
    rates = ", ".join(f"{lr:g}" for lr in config.peak_lrs)
    return [
        ("loss", "negative log-likelihood per target token of the whole validation split, natural logarithm"),
        (
            "models",
            f"preset {config.preset}, heads of width {config.head_width}, feed-forward {config.ffn_ratio:g} times the "
            f"width; widths {', '.join(map(str, config.widths))} at {config.depths[0]} blocks, and "
            f"{', '.join(map(str, config.depths))} blocks at width {config.widths[0]}",
        ),
        (
            "weights",
            "N(0, 0.02²) at every size, times the gains of the placement: nothing is scaled by width",
        ),
        (
            "first updates",
            f"Adam at {config.coordinate_lr:g} at every size, without warm-up, a batch an update; root mean square of "
            "the change of the stack's output and of the logits on one batch since initialisation",
        ),
        (
            "training",
            f"{config.updates} updates of Adam, full rate to update {config.warmup_updates}, then in a straight line "
            f"to 0, and a warm-up of {config.warmup_updates} updates or none; rates {rates}; the best by the parabola "
            "through the lowest loss and its neighbours, seed by seed",
        ),
        (
            "text",
            f"{config.batch_sequences} sequences of {config.sequence_length} tokens a batch; unigram baseline "
            f"{unigram_nats:.3f}",
        ),
        (
            "verdict",
            f"transfers: the interval of the exponent lies within {config.coordinate_edge:g} of 0 (changes) or "
            f"{config.rate_edge:g} (rates); drifts: outside; else undecided, as is a rate of which a size has its best "
            "at the ladder's end",
        ),
        (
            "seeds",
            f"{config.seeds} for the first updates, {config.ladder_seeds} for the rates: weights and order; intervals "
            "of 95 %, Student's t: of the first updates over exponents seed by seed, of the best rates by the scatter "
            "of all sizes about the line",
        ),
        ("trained by", in_words(dict(trained_by))),
    ]
