"""The size of the hidden state over depth, for every placement: what the formulas predict, and stacks as drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel, Series
from normscope.report.words import counted, number
from normscope.theory.predict import ModelSetting, predict

from ..engine.claims import judged
from ..engine.deviation import Compared, Spread, as_data, mean_over_draws, root_mean_square, spread_of
from ..engine.figures import line, measured
from ..engine.page import Claim, StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory.simulation import SEQUENCES
from . import ABOUT
from .measure import HiddenStateConfig, ModelCase, draws_of

MATRIX_NAMES = {"value": "W_V", "ffn_in": "W₁", "ffn_out": "W₂"}
_PlacementCurves = dict[str, dict[str, dict[str, Compared]]]
"""By placement, stack ("encoder" or "decoder"), and what: q, or a matrix's gradient."""


def root_of(matrix: str) -> str:
    """The name of the root mean square of a matrix's gradient norms; the matrix's own is that of their mean."""
    return f"{matrix}_root_mean_square"


_MOVES_BY = 0.1
"""A predicted q that leaves 1 by more is worth a curve in the figure."""


def figures(cases: Sequence[ModelCase], found: Mapping[str, _PlacementCurves]) -> list[StudyFigure]:
    deep, pair = cases[0], cases[-1]
    moving = [name for name in deep.placements if _moves(found[deep.name][name]["encoder"]["q"])][:6] or [
        deep.placements[0]
    ]
    hues = {name: hue for hue, name in enumerate(dict.fromkeys((*moving, *pair.placements)))}
    panels = [
        _stream_panel(deep, found[deep.name], moving, hues, "encoder"),
        _deviation_panel(deep, found[deep.name], moving, hues),
    ]
    for case, kind in ((cases[2], "encoder"), (pair, "decoder")):
        shown = [name for name in moving if name in found[case.name]]
        if shown:
            panels.append(_stream_panel(case, found[case.name], shown, hues, kind))
    still = ", ".join(named(name).title for name in deep.placements if name not in moving)
    title = "Size of the hidden state over depth"
    figures = [
        StudyFigure.of_panels(
            name="hidden_state",
            title=title,
            caption="Mean over draws with a band of two standard errors, and the prediction. "
            + (f"Not drawn, as their hidden state stays at 1: {still}." if still else ""),
            panels=panels,
            told=title,
            wide=True,
        )
    ]
    loud = [name for name in deep.placements if _has_gradient(found[deep.name][name]["encoder"])]
    if loud:
        title = "Gradient norms over depth"
        silent = ", ".join(named(name).title for name in deep.placements if name not in loud)
        figures.append(
            StudyFigure.of_panels(
                name="gradients",
                title=f"{title}: {deep.title.lower()}",
                caption="Root mean square of the norms over draws, which is what is predicted, with a band of two "
                "standard errors, and the prediction. "
                + (f"Not drawn, as every gradient is 0 at first: {silent}." if silent else ""),
                panels=[_gradient_panel(name, found[deep.name][name]) for name in loud],
                told=title,
                wide=True,
            )
        )
    return figures


def _moves(q: Compared) -> bool:
    return bool(np.abs(q.predicted - 1).max() > _MOVES_BY)


def _has_gradient(stack: Mapping[str, Compared]) -> bool:
    return any(bool(stack[matrix].predicted.any()) for matrix in MATRIX_NAMES)


def _pair(label: str, curve: Compared, hue: int, first: int) -> list[Series]:
    depths = range(first, first + len(curve.measured))
    return [
        measured(f"{label}, measured", hue, depths, curve.measured, 2 * curve.error),
        line(f"{label}, predicted", "predicted", hue, depths, curve.predicted),
    ]


def _stream_panel(
    case: ModelCase, curves: _PlacementCurves, names: Sequence[str], hues: Mapping[str, int], kind: str
) -> Panel:
    series = [s for name in names for s in _pair(named(name).title, curves[name][kind]["q"], hues[name], 0)]
    of = "decoder" if case.model.stack == "encoder-decoder" else ""
    return Panel(
        title=f"{case.title}{', ' + of if of else ''}",
        xlabel="completed blocks",
        ylabel="E‖x_l‖² / d",
        series=series,
        log_y=True,
    )


def _deviation_panel(case: ModelCase, curves: _PlacementCurves, names: Sequence[str], hues: Mapping[str, int]) -> Panel:
    series = []
    for name in names:
        q = curves[name]["encoder"]["q"]
        off, error = 100 * q.deviation, 200 * q.relative_error
        series.append(measured(f"{named(name).title}, measured", hues[name], range(len(off)), off, error))
    return Panel(title="The same, off the prediction", xlabel="completed blocks", ylabel="per cent", series=series)


def _gradient_panel(name: str, stacks: Mapping[str, Mapping[str, Compared]]) -> Panel:
    series = [
        s for hue, m in enumerate(MATRIX_NAMES) for s in _pair(MATRIX_NAMES[m], stacks["encoder"][root_of(m)], hue, 1)
    ]
    return Panel(title=named(name).title, xlabel="block", ylabel="‖∂L/∂W‖", series=series, from_zero=True)


def tables(cases: Sequence[ModelCase], found: Mapping[str, _PlacementCurves]) -> list[StudyTable]:
    deep = cases[0]
    columns = ["placement", "q measured", "predicted", "q off by %", "± s.e."]
    rows: list[list[str | float | None]] = []
    for name, stacks in found[deep.name].items():
        row = _q_cells(stacks["encoder"]["q"])
        for matrix in MATRIX_NAMES:
            one = spread_of({name: [stacks["encoder"][root_of(matrix)]]}, limit_percent=1.0)
            row += [one.largest, one.standard_error]
        rows.append([named(name).title, *row])
    gradient_columns = [c for m in MATRIX_NAMES for c in (f"{MATRIX_NAMES[m]} off by %", "± s.e.")]
    tables = [
        StudyTable(
            title=f"{deep.title}: q at the last depth, and the largest deviations",
            columns=columns + gradient_columns,
            rows=rows,
        )
    ]
    for case in cases[1:]:
        many = case.model.stack == "encoder-decoder"
        tables.append(
            StudyTable(
                title=f"{case.title}: q at the last depth, and its largest deviation",
                columns=["placement", "stack", *columns[1:]] if many else columns,
                rows=[
                    [named(name).title, *([kind] if many else []), *_q_cells(stack["q"])]
                    for name, stacks in found[case.name].items()
                    for kind, stack in stacks.items()
                ],
            )
        )
    return tables


def _q_cells(q: Compared) -> list[str | float | None]:
    one = spread_of({"": [q]}, limit_percent=1.0)
    return [float(q.measured[-1]), float(q.predicted[-1]), one.largest, one.standard_error]


def claims_of(
    cases: Sequence[ModelCase], found: Mapping[str, _PlacementCurves], config: HiddenStateConfig
) -> tuple[list[Claim], dict[str, Any]]:
    """A claim for q in each case, one for each matrix's gradient in the first; and the numbers they quote."""
    claims, data = [], {}
    for case in cases:
        q = {named(name).title: [one["q"] for one in stacks.values()] for name, stacks in found[case.name].items()}
        data[case.name] = spread = spread_of(q, limit_percent=case.limit)
        claims.append(_claim("q", "the mean over draws of E‖x_l‖² / d of the hidden state", case, spread, ""))
    deep = cases[0]
    for matrix, letter in MATRIX_NAMES.items():
        means, squares = (
            spread_of(
                {named(name).title: [stacks["encoder"][what]] for name, stacks in found[deep.name].items()},
                limit_percent=config.gradient_limit_percent,
                first=1,
            )
            for what in (matrix, root_of(matrix))
        )
        data |= {f"{deep.name}, {matrix}": means, f"{deep.name}, {root_of(matrix)}": squares}
        of = f"the root mean square over draws of the norm of {letter}'s gradient"
        claims.append(_claim(letter, of, deep, squares, f" The mean of the norms over draws is {_off_by(means)}."))
    return claims, {name: asdict(spread) for name, spread in data.items()}


def _claim(name: str, of: str, case: ModelCase, spread: Spread, beside: str) -> Claim:
    """beside: a sentence on what is compared but not judged."""
    return judged(
        name=f"{name}, {case.title.lower()}",
        statement=f"The prediction from a placement's formula gives {of} within {spread.limit:g} % at every depth.",
        source="corrected: the mean field of normscope predict",
        found=f"{counted(len(case.placements), 'placement')}, {counted(case.draws, 'draw')}, "
        f"{counted(case.model.blocks, 'block')}, d = {case.model.width}: {_off_by(spread)}; "
        f"{len(spread.within)} of {len(case.placements)} within the limit.{beside}",
        holds=spread.holds,
    )


def _off_by(spread: Spread) -> str:
    return (
        f"at most {number(spread.largest, 2)} % off ({spread.where}, l = {spread.place}; standard error "
        f"{number(spread.standard_error, 2)} %), {number(spread.root_mean_square, 2)} % root mean square over all "
        "depths"
    )


def run(config: HiddenStateConfig, pieces: Pieces) -> Findings:
    """One piece a placement and case: all its draws."""
    cases = config.cases()
    found: dict[str, _PlacementCurves] = {}
    for case in cases:
        found[case.name] = {}
        for done, name in enumerate(case.placements):
            pieces.watch(case.title, done, len(case.placements))
            found[case.name][name] = compared(name, case, _drawn(name, case, pieces))
        pieces.watch(case.title, len(case.placements), len(case.placements))
    claims, spreads = claims_of(cases, found, config)
    return Findings(
        conditions=_conditions(cases),
        claims=claims,
        figures=figures(cases, found),
        tables=tables(cases, found),
        data={
            "spreads": spreads,
            "off_percent": {case: _off(curves) for case, curves in found.items()},
            "curves": {case.name: _data(found[case.name], all_of=case is cases[0]) for case in cases},
        },
    )


def _drawn(name: str, case: ModelCase, pieces: Pieces) -> list[dict[str, Any]]:
    """Of each draw, by stack: q, and squared gradient norms of each matrix."""
    asked = {
        "placement": name,
        "formula": formula(named(name), case.model.shape("decoder" if case.model.stack == "decoder" else "encoder")),
        "model": asdict(case.model),
        "draws": case.draws,
        "sequences": SEQUENCES,
    }
    return pieces.get(f"{case.name}/{name}", asked, draws_of, name, case.model, case.draws)  # type: ignore[no-any-return]


def compared(name: str, case: ModelCase, draws: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Compared]]:
    """By stack: q, and of each matrix's gradient norm the mean and, under `root_of`, the root mean square."""
    curves = {}
    for kind, prediction in predict(name, case.model).items():
        stack = {"q": mean_over_draws([draw[kind]["q"] for draw in draws], prediction.q)}
        for matrix in MATRIX_NAMES:
            squares = np.array([draw[kind][matrix] for draw in draws])
            stack[matrix] = mean_over_draws(np.sqrt(squares), prediction.gradient_norm[matrix])
            stack[root_of(matrix)] = root_mean_square(squares, prediction.gradient_norm[matrix])
        curves[kind] = stack
    return curves


def _conditions(cases: Sequence[ModelCase]) -> list[tuple[str, str]]:
    model = cases[0].model
    return [
        ("Models", "; ".join(f"{case.title}: {_sizes(case.model)}" for case in cases)),
        ("Theory's setting", "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)"),
        ("Paper's setting", "fairseq 0.7 to 0.8: Glorot uniform, √d times the embedding, sinusoids, tied output"),
        ("Gradient normalisation", "mean cross-entropy per target token, random targets, one sequence at a time"),
        ("Logarithm", "natural: losses in nats"),
        ("Tokens", f"{SEQUENCES} sequences of {model.tokens} tokens a draw; the source has as many"),
        ("Draws", "; ".join(f"{case.title}: {case.draws}" for case in cases) + "; seeds from 1"),
        (
            "Spread",
            "predictions of q are of its mean over draws, those of gradients of the root mean square of their norms, "
            "which a few large draws raise; each is compared with just that. Bands are two standard errors, intervals "
            "are of 95 %, Student's t over draws",
        ),
        ("Dropout", "none"),
    ]


def _sizes(model: ModelSetting) -> str:
    heads = "one head" if model.heads == 1 else f"{model.heads} heads"
    return f"{counted(model.blocks, 'block')}, d = {model.width}, feed-forward {model.ffn_width}, {heads}"


def _data(curves: _PlacementCurves, *, all_of: bool) -> dict[str, Any]:
    """Every curve, or q alone: the others' gradients are in no claim."""
    return {
        name: {
            kind: {what: as_data(curve) for what, curve in stack.items() if all_of or what == "q"}
            for kind, stack in stacks.items()
        }
        for name, stacks in curves.items()
    }


def _off(curves: _PlacementCurves) -> dict[str, Any]:
    """The largest deviation of each curve, and the standard error there."""
    return {
        name: {
            kind: {
                what: [one.largest, one.standard_error]
                for what, curve in stack.items()
                for one in [spread_of({name: [curve]}, limit_percent=1.0)]
            }
            for kind, stack in stacks.items()
        }
        for name, stacks in curves.items()
    }


_SMOKE = HiddenStateConfig(
    deep=("post-ln", "pre-ln", "rezero"), deep_blocks=4, deep_width=64, deep_draws=3, others=("post-ln", "pre-ln"),
    decoders=("pre-ln",), pairs=("post-ln", "pre-ln"), blocks=2, width=32, draws=2, tokens=6, vocabulary=200,
)  # fmt: skip
STUDY = Study(
    about=ABOUT,
    scales={
        "smoke": Scale(config=_SMOKE, decides=False),
        "cpu": Scale(config=HiddenStateConfig()),
        "paper": Scale(
            config=HiddenStateConfig(deep_blocks=96, deep_width=1024, deep_draws=64, blocks=24, width=512, draws=32)
        ),
    },
    run=run,
)
