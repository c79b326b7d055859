"""Figures of the study of probes."""

from collections.abc import Sequence
from typing import Any

from normscope.evidence.estimates import Floats
from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure
from .readings import TextReadings


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
