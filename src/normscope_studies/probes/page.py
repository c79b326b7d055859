"""Figures and tables of the study of probes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate, plain_estimate
from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure, StudyTable
from .claims import PlacementReading, TextReadings, less, norm_effect, over_blocks
from .texts import BASE, ProbesConfig


def figures(found: Sequence[TextReadings]) -> list[StudyFigure]:
    made = []
    for one in found:
        title = f"What probes read after every block: {one.text}"
        made.append(
            StudyFigure.of_panels(
                name=f"probes_{one.text}",
                title=title,
                caption="Accuracy on held-out tokens after the norm, mean over seeds in the range of the seeds; dots "
                "are the share of the commonest class. 0 completed blocks: the embedding.",
                panels=[_probe_panel(one, name) for name in one.majority],
                told=title,
                wide=True,
            )
        )
        title = f"Selectivity of the probes: {one.text}"
        made.append(
            StudyFigure.of_panels(
                name=f"selectivity_{one.text}",
                title=title,
                caption="Accuracy less that on a control task whose labels the word alone decides, at random.",
                panels=[
                    _panel(one, name, "selectivity", lambda r, n=name: r.selectivity(n)[:, :, 1])
                    for name in one.majority
                ],
                told=title,
                wide=True,
            )
        )
        title = f"The blocks among themselves: {one.text}"
        made.append(
            StudyFigure.of_panels(
                name=f"blocks_{one.text}",
                title=title,
                caption="Mean over seeds in the range of the seeds. The logit lens reads the output from the stream "
                "after so many blocks; a block left out is replaced by nothing.",
                panels=[
                    _panel(one, "Logit lens", "loss, nats", lambda r: r.of("lens_nats")),
                    _panel(
                        one, "Without one block", "rise of the loss, nats", lambda r: r.of("left_out_nats"), first=1
                    ),
                    _panel(one, "Anisotropy", "mean cosine of two tokens", lambda r: r.of("anisotropy")),
                    _panel(one, "Likeness to the embedding", "linear CKA", lambda r: r.of("cka")[:, 0]),
                ],
                told=title,
                wide=True,
            )
        )
    return made


def _probe_panel(one: TextReadings, name: str) -> Panel:
    panel = _panel(one, name, "accuracy", lambda reading: reading.accuracy(name)[:, :, 1])
    x = panel.series[0].x
    majority = Series(label="commonest class", kind="claimed", hue=-1, x=x, y=[one.majority[name]] * len(x))
    return Panel(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel, series=[*panel.series, majority])


def _panel(one: TextReadings, title: str, ylabel: str, of: Any, first: int = 0) -> Panel:
    return Panel(
        title=title[0].upper() + title[1:],
        xlabel="block" if first else "completed blocks",
        ylabel=ylabel,
        series=[_series(reading.title, hue, of(reading), first) for hue, reading in enumerate(one.readings.values())],
    )


def _series(label: str, hue: int, values_SL: Floats, first: int) -> Series:
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=[float(first + depth) for depth in range(values_SL.shape[1])],
        y=values_SL.mean(0).tolist(),
        low=values_SL.min(0).tolist(),
        high=values_SL.max(0).tolist(),
    )


def tables(found: Sequence[TextReadings]) -> list[StudyTable]:
    made = []
    for one in found:
        made += [_trained(one), _accuracies(one), _norms(one)]
    return made


def _trained(one: TextReadings) -> StudyTable:
    return StudyTable(
        title=f"Trainings, {one.text}: each ends at the first validation at or below {one.target_nats:g} nats. Means "
        "over seeds",
        columns=(
            "placement",
            *("updates", "last loss", "reached"),
            *("last block is worth", "± ", "lens half-way above the end", "CKA of neighbours", "mean cosine"),
        ),
        rows=[_trained_row(reading) for reading in one.readings.values()],
    )


def _trained_row(reading: PlacementReading) -> list[str | float | None]:
    worth = estimate(reading.of("left_out_nats")[:, -1])
    lens = reading.of("lens_nats")
    return [
        reading.title,
        float(reading.of("update").mean()),
        float(reading.of("valid_nats").mean()),
        "yes" if reading.reached else "not by all",
        float(worth.mean),
        _finite(float(worth.half_width)),
        float((lens[:, lens.shape[1] // 2] - lens[:, -1]).mean()),
        float(reading.neighbours().mean()),
        float(reading.of("anisotropy")[:, 1:].mean()),
    ]


def _accuracies(one: TextReadings) -> StudyTable:
    names = list(one.majority)
    rows = [_accuracy_row(reading) for reading in one.readings.values()]
    rows.append(["commonest class", *(cell for name in names for cell in (one.majority[name], None))])
    return StudyTable(
        title=f"Probes after the norm, {one.text}: mean accuracy over blocks, and how far it is above that of the "
        "control task",
        columns=("placement", *(column for name in names for column in (name, "selectivity"))),
        rows=rows,
    )


def _accuracy_row(reading: PlacementReading) -> list[str | float | None]:
    row: list[str | float | None] = [reading.title]
    for name in reading.properties:
        for values in (reading.accuracy(name), reading.selectivity(name)):
            row.append(float(over_blocks(values).mean()))
    return row


def _norms(one: TextReadings) -> StudyTable:
    names = list(one.majority)
    return StudyTable(
        title=f"After the norm less before it, {one.text}: mean accuracy over blocks, with its interval over seeds",
        columns=("placement", *(column for name in names for column in (name, "±"))),
        rows=[
            [
                reading.title,
                *(
                    _finite(float(value))
                    for name in names
                    for effect in [norm_effect(reading, name)]
                    for value in (effect.mean, effect.half_width)
                ),
            ]
            for reading in one.readings.values()
        ],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def conditions(config: ProbesConfig, unigrams: Mapping[str, float]) -> dict[str, str]:
    """How it was measured."""
    baselines = ", ".join(f"{nats:.3f} ({text})" for text, nats in unigrams.items())
    targets = ", ".join(f"{config.target_nats(text):g} ({text})" for text in unigrams)
    return {
        "models": f"decoders of {config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
        f"{config.heads} heads, no dropout; weights drawn by scheme paper for all, times the placement's own gains",
        "same loss": f"every training ends at its first validation, one in {config.validate_every} updates, at or "
        f"below a common target in nats: {targets}; unigram baselines {baselines}",
        "training": f"Adam, betas 0.9 and 0.98, {config.peak_lr:g} after a warm-up of {config.warmup_updates} updates, "
        f"the same for all; {config.batch_sequences} sentences an update, of documents half as many stretches",
        "loss": "negative log-likelihood per target token, natural logarithm",
        "probes": "multinomial logistic regression with an L2 penalty of 1 on features of mean 0 and deviation 1; "
        "fitted to the tokens of two thirds of the probed sequences, and tested on the others",
        "before and after the norm": "in Post-LN, DeepNorm and ResiDual what the block's last norm reads and gives; in "
        "the others the stream, and what the norm gives that reads it next",
        "properties": "of the toy language: of each word, number, gender and case of the words of noun phrases, and of "
        "a subject behind its verb which verb that is (the most frequent). Of documents: the most frequent tokens, "
        "eighths of a stretch, fifths of the text by how frequent its tokens are in training",
        "seeds": f"{config.seeds}: weights and order; intervals are of 95 %, Student's t, over seeds in pairs, each "
        "setting by itself: of twenty that are not so, one is expected to look certain",
    }


def data(found: Sequence[TextReadings]) -> dict[str, Any]:
    """Everything that was read, and the means that tables quote."""
    return {
        "texts": {
            one.text: {
                "target_nats": one.target_nats,
                "majority": dict(one.majority),
                "placements": {name: _reading(reading, one.readings[BASE]) for name, reading in one.readings.items()},
            }
            for one in found
        }
    }


def _reading(reading: PlacementReading, base: PlacementReading) -> dict[str, Any]:
    lens = reading.of("lens_nats")
    return {
        "title": reading.title,
        "reached": reading.reached,
        "update": reading.of("update"),
        "mean_update": reading.of("update").mean(),
        "valid_nats": reading.of("valid_nats"),
        "mean_accuracy": {name: _mean(over_blocks(reading.accuracy(name))) for name in reading.properties},
        "mean_selectivity": {name: _mean(over_blocks(reading.selectivity(name))) for name in reading.properties},
        "less_pre_ln": {
            name: plain_estimate(less(over_blocks(reading.accuracy(name)), over_blocks(base.accuracy(name))))
            for name in reading.properties
        },
        "after_less_before": {name: plain_estimate(norm_effect(reading, name)) for name in reading.properties},
        "accuracy": {name: reading.accuracy(name).mean(0) for name in reading.properties},
        "selectivity": {name: reading.selectivity(name).mean(0) for name in reading.properties},
        "lens_nats": plain_estimate(estimate(lens)),
        "lens_half_way_above_end": _mean(lens[:, lens.shape[1] // 2] - lens[:, -1]),
        "left_out_nats": plain_estimate(estimate(reading.of("left_out_nats"))),
        "anisotropy": plain_estimate(estimate(reading.of("anisotropy"))),
        "mean_anisotropy": _mean(reading.of("anisotropy")[:, 1:].mean(1)),
        "cka": reading.of("cka").mean(0),
        "neighbours_cka": _mean(reading.neighbours()),
    }


def _mean(values_S: Floats) -> dict[str, Any]:
    return plain_estimate(estimate(np.asarray(values_S)))
