"""Figures and tables of the study of probes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate, plain_estimate
from normscope.report.chart import Panel

from ..engine.figures import curves, line
from ..engine.page import StudyFigure, StudyTable, table
from .claims import PlacementReading, TextReadings, less, norm_effect, over_blocks
from .texts import BASE, ProbesConfig


def figures(found: Sequence[TextReadings]) -> list[StudyFigure]:
    """Three for each text: what probes read, how much of it is the model's, and the blocks among themselves."""
    return [figure for one in found for figure in _figures(one)]


def _figures(one: TextReadings) -> list[StudyFigure]:
    def made(name: str, title: str, caption: str, panels: Sequence[Panel]) -> StudyFigure:
        name, title = f"{name}_{one.text}", f"{title}: {one.text}"
        return StudyFigure.of_panels(name=name, title=title, caption=caption, panels=panels, wide=True)

    return [
        made(
            "probes",
            "What probes read after every block",
            "Accuracy on held-out tokens after the norm, mean over seeds in the range of the seeds; dots are the share "
            "of the commonest class. 0 completed blocks: the embedding.",
            [_accuracy_panel(one, name) for name in one.majority],
        ),
        made(
            "selectivity",
            "Selectivity of the probes",
            "Accuracy less that on a control task whose labels the word alone decides, at random.",
            [_panel(one, name, "selectivity", lambda r, n=name: r.selectivity(n)[:, :, 1]) for name in one.majority],
        ),
        made(
            "blocks",
            "The blocks among themselves",
            "Mean over seeds in the range of the seeds. The logit lens reads the output from the stream after so many "
            "blocks; a block left out is replaced by nothing.",
            [
                _panel(one, "Logit lens", "loss, nats", lambda r: r.of("lens_nats")),
                _panel(one, "Without one block", "rise of the loss, nats", lambda r: r.of("left_out_nats"), first=1),
                _panel(one, "Anisotropy", "mean cosine of two tokens", lambda r: r.of("anisotropy")),
                _panel(one, "Likeness to the embedding", "linear CKA", lambda r: r.of("cka")[:, 0]),
            ],
        ),
    ]


def _accuracy_panel(one: TextReadings, name: str) -> Panel:
    return _panel(one, name, "accuracy", lambda reading: reading.accuracy(name)[:, :, 1], commonest=one.majority[name])


def _panel(
    one: TextReadings, title: str, ylabel: str, of: Any, *, first: int = 0, commonest: float | None = None
) -> Panel:
    """first: 1 where the embedding has no value. commonest: the share of the commonest class, to compare with."""
    rows = {reading.title: of(reading).tolist() for reading in one.readings.values()}
    x = range(first, first + len(next(iter(rows.values()))[0]))
    return curves(
        title[0].upper() + title[1:],
        rows,
        x=x,
        xlabel="block" if first else "completed blocks",
        ylabel=ylabel,
        beside=[] if commonest is None else [line("commonest class", "claimed", -1, x, commonest)],
    )


def tables(found: Sequence[TextReadings]) -> list[StudyTable]:
    """Of each text: the trainings, the probes after the norm, and what the norm does to them."""
    return [one_table for one in found for one_table in (_trained(one), _accuracies(one), _norms(one))]


def _trained(one: TextReadings) -> StudyTable:
    return table(
        f"Trainings, {one.text}: each ends at the first validation at or below {one.target_nats:g} nats. Means over "
        "seeds",
        one.readings.values(),
        [
            ("placement", lambda r: r.title),
            ("updates", lambda r: float(r.of("update").mean())),
            ("last loss", lambda r: float(r.of("valid_nats").mean())),
            ("reached", lambda r: "yes" if r.reached else "not by all"),
            ("last block is worth", lambda r: float(r.of("left_out_nats")[:, -1].mean())),
            ("± ", lambda r: _finite(estimate(r.of("left_out_nats")[:, -1]).half_width)),
            ("lens half-way above the end", lambda r: float(r.lens_gap().mean())),
            ("CKA of neighbours", lambda r: float(r.neighbours().mean())),
            ("mean cosine", lambda r: float(r.of("anisotropy")[:, 1:].mean())),
        ],
    )


def _accuracies(one: TextReadings) -> StudyTable:
    rows: list[list[str | float | None]] = [
        [
            reading.title,
            *(
                float(over_blocks(values).mean())
                for name in reading.properties
                for values in (reading.accuracy(name), reading.selectivity(name))
            ),
        ]
        for reading in one.readings.values()
    ]
    rows.append(["commonest class", *(cell for share in one.majority.values() for cell in (share, None))])
    return StudyTable(
        title=f"Probes after the norm, {one.text}: mean accuracy over blocks, and how far it is above that of the "
        "control task",
        columns=("placement", *(column for name in one.majority for column in (name, "selectivity"))),
        rows=rows,
    )


def _norms(one: TextReadings) -> StudyTable:
    columns: list[tuple[str, Callable[[PlacementReading], str | float | None]]] = [("placement", lambda r: r.title)]
    for name in one.majority:
        columns += [(name, partial(_effect, name, "mean")), ("±", partial(_effect, name, "half_width"))]
    title = f"After the norm less before it, {one.text}: mean accuracy over blocks, with its interval over seeds"
    return table(title, one.readings.values(), columns)


def _effect(name: str, what: str, reading: PlacementReading) -> float | None:
    return _finite(getattr(norm_effect(reading, name), what))


def _finite(value: Any) -> float | None:
    """None for the width of an interval of one seed."""
    return float(value) if np.isfinite(value) else None


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
    accuracy = {name: reading.accuracy(name) for name in reading.properties}
    selectivity = {name: reading.selectivity(name) for name in reading.properties}
    return {
        "title": reading.title,
        "reached": reading.reached,
        "update": reading.of("update"),
        "mean_update": reading.of("update").mean(),
        "valid_nats": reading.of("valid_nats"),
        "mean_accuracy": {name: _mean(over_blocks(values)) for name, values in accuracy.items()},
        "mean_selectivity": {name: _mean(over_blocks(values)) for name, values in selectivity.items()},
        "less_pre_ln": {
            name: plain_estimate(less(over_blocks(values), over_blocks(base.accuracy(name))))
            for name, values in accuracy.items()
        },
        "after_less_before": {name: plain_estimate(norm_effect(reading, name)) for name in accuracy},
        "accuracy": {name: values.mean(0) for name, values in accuracy.items()},
        "selectivity": {name: values.mean(0) for name, values in selectivity.items()},
        "lens_nats": _mean(reading.of("lens_nats")),
        "lens_half_way_above_end": _mean(reading.lens_gap()),
        "left_out_nats": _mean(reading.of("left_out_nats")),
        "anisotropy": _mean(reading.of("anisotropy")),
        "mean_anisotropy": _mean(reading.of("anisotropy")[:, 1:].mean(1)),
        "cka": reading.of("cka").mean(0),
        "neighbours_cka": _mean(reading.neighbours()),
    }


def _mean(values_S: Floats) -> dict[str, Any]:
    return plain_estimate(estimate(values_S))
