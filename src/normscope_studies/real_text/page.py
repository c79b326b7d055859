"""What the study of real text says and shows."""

from collections.abc import Mapping

import numpy as np

from normscope.data.parallel.corpus import Corpus
from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.claims import judged
from ..engine.deviation import Compared, as_data, spread_of
from ..engine.figures import line, measured
from ..engine.page import Claim, StudyFigure, StudyTable
from ..engine.study import Findings
from ..figure_3.measure import STACKS
from ..figure_3.pieces import corpus_title
from .config import QUANTITIES, Curves, Key, RealTextConfig

LIMIT_PERCENT = 15.0
"""Within which a prediction counts as met."""


def findings(config: RealTextConfig, corpus: Corpus, found: Mapping[Key, Curves], fast: bool) -> Findings:
    sizes = ", ".join(f"{blocks}-{blocks}" for blocks in config.blocks)
    return Findings(
        conditions=[
            (
                "gradients",
                f"of the mean loss per target token, label smoothing {config.label_smoothing:g}, in nats (natural "
                "logarithm); Frobenius norms",
            ),
            ("text", corpus_title(corpus)),
            ("tokens", f"one batch of up to {config.max_tokens:,} tokens a model, dropout {config.dropout:g}"),
            ("seeds", f"{config.seeds}: weights, batch and dropout masks; bands are two standard errors over seeds"),
            (
                "models",
                f"{sizes}, width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, initial "
                "weights as the paper's (fairseq 0.7 to 0.8)",
            ),
            (
                "prediction",
                "from widths, depths and, of each batch, mean lengths and how often entries repeat; nothing is fitted",
            ),
            ("arithmetic", "float32" + (", products through oneDNN" if fast else "")),
        ],
        claims=[_claim(what, found) for what in QUANTITIES],
        figures=[_figure(config, found, what) for what in QUANTITIES],
        tables=[_table(config, found)],
        data={
            "curves": {
                f"{placement} {blocks}-{blocks}": {
                    kind: {what: as_data(curve) for what, curve in curves[kind].items()} for kind in STACKS
                }
                for (placement, blocks), curves in found.items()
            },
            "deviations_percent": {
                what: {
                    _name(key, kind): percent(curves[kind][what]) for key, curves in found.items() for kind in STACKS
                }
                for what in QUANTITIES
            },
        },
    )


def percent(curve: Compared) -> float:
    """Largest deviation at any depth."""
    return 100 * float(np.abs(curve.deviation).max())


def _claim(what: str, found: Mapping[Key, Curves]) -> Claim:
    curves = {_name(key, kind): [one[kind][what]] for key, one in found.items() for kind in STACKS}
    spread = spread_of(curves, limit_percent=LIMIT_PERCENT, first=0 if what == "q" else 1)
    return judged(
        name=f"Predicted {QUANTITIES[what]}",
        statement=f"The prediction is within {LIMIT_PERCENT:g} % at every depth, encoder and decoder.",
        source="mean field, NormScope",
        found=f"largest deviation {spread.largest:.3g} % ({spread.where}, depth {spread.place}; standard error "
        f"{spread.standard_error:.2g} %), root mean square {spread.root_mean_square:.3g} %",
        holds=spread.holds,
    )


def _name(key: Key, kind: str) -> str:
    return f"{named(key[0]).title} {key[1]}-{key[1]} {kind}"


def _figure(config: RealTextConfig, found: Mapping[Key, Curves], what: str) -> StudyFigure:
    shown = sorted({config.blocks[0], config.blocks[len(config.blocks) // 2], config.blocks[-1]})
    panels = []
    for placement in config.placements:
        for kind in STACKS:
            series = []
            for hue, blocks in enumerate(shown):
                curve = found[placement, blocks][kind][what]
                x = range(0 if what == "q" else 1, blocks + 1)
                label = f"{blocks}-{blocks}"
                series.append(measured(label, hue, x, curve.measured, 2 * curve.error))
                series.append(line(f"{label}, predicted", "predicted", hue, x, curve.predicted))
            panels.append(
                Panel(
                    title=f"{named(placement).title}, {kind}",
                    xlabel="completed blocks" if what == "q" else "layer",
                    ylabel="E‖x‖² / d" if what == "q" else "gradient norm of W2",
                    series=series,
                    from_zero=True,
                )
            )
    return StudyFigure.of_panels(
        name={"q": "hidden_state", "ffn_out": "w2_gradients"}[what],
        title=QUANTITIES[what],
        caption="Measured on real text, mean over seeds with a band of two standard errors, and predicted from how "
        "often the text's entries repeat.",
        panels=panels,
        told=f"{QUANTITIES[what]}: measured and predicted",
        wide=True,
    )


def _table(config: RealTextConfig, found: Mapping[Key, Curves]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for key, curves in found.items():
        for kind in STACKS:
            stream, gradient = curves[kind]["q"], curves[kind]["ffn_out"]
            rows.append(
                [
                    _name(key, kind), stream.measured[-1], stream.predicted[-1], percent(stream),
                    gradient.measured[0], gradient.predicted[0], gradient.measured[-1], gradient.predicted[-1],
                    percent(gradient),
                ]
            )  # fmt: skip
    return StudyTable(
        title="Ends of every curve, and the largest deviation along it",
        columns=[
            "stack", "last q", "predicted", "deviation, %", "first W2", "predicted", "last W2", "predicted",
            "deviation, %",
        ],
        rows=rows,
    )  # fmt: skip
