"""The size of the hidden state over depth, for every placement: what the formulas predict, and
stacks as drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel
from normscope.report.words import counted
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, predict

from .engine.checks import check_least, check_positive
from .engine.claims import (
    Compared,
    as_data,
    beside_prediction,
    foretold,
    mean_over_draws,
    root_mean_square,
    spread_of,
)
from .engine.page import Claim, Findings, StudyFigure, measured
from .engine.pieces import Pieces
from .engine.study import Study, scales
from .theory import simulation

MATRIX_NAMES = {"value": "W_V", "ffn_in": "W₁", "ffn_out": "W₂"}
"""Matrices whose gradients are compared, with how they are printed."""
EIGHT = ("post-ln", "pre-ln", "deepnorm", "rezero", "peri-ln", "residual", "lns", "b2t")


@dataclass(frozen=True, slots=True)
class _ModelCase:
    """One model, the placements it is drawn with, and how often."""

    name: str
    title: str
    placements: tuple[str, ...]
    model: ModelSetting
    draws: int
    limit: float
    """Per cent, of q."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HiddenStateConfig:
    """Raises ValueError for what cannot be drawn."""

    deep: tuple[str, ...] = EIGHT
    """Encoders in the theory's setting, drawn deep and wide; their gradients are compared too."""
    deep_blocks: int = 48
    deep_width: int = 512
    deep_draws: int = 20
    others: tuple[str, ...] = ()
    """Encoders in both settings; without any, every placement that is defined for one."""
    decoders: tuple[str, ...] = ("post-ln", "pre-ln", "deepnorm", "peri-ln", "lns", "hybrid-norm")
    """Causal stacks in the theory's setting."""
    pairs: tuple[str, ...] = (
        "post-ln",
        "pre-ln",
        "deepnorm",
        "b2t",
        "residual",
        "admin",
        "sub-ln",
        "t-fixup",
    )
    """Encoder-decoders in the paper's setting, half as many blocks in each stack."""
    blocks: int = 12
    width: int = 256
    draws: int = 12
    tokens: int = 16
    vocabulary: int = 10_000
    q_limit_percent: float = 3.0
    """What the claims hold deviations of q against, and those of gradients; `loose_limit_percent`
    in all other models: few draws of narrow stacks, and outside the theory's setting attention is
    approximate."""
    gradient_limit_percent: float = 7.0
    loose_limit_percent: float = 5.0

    def __post_init__(self) -> None:
        check_least(self, deep_draws=2, draws=2)
        check_positive(self, "q_limit_percent", "gradient_limit_percent", "loose_limit_percent")
        if self.blocks < 2 or self.blocks % 2:
            raise ValueError(f"blocks must be even and at least 2, got {self.blocks}")
        if not self.deep:
            raise ValueError("deep needs at least one placement")
        for case in self.cases():
            for kind in simulation.stacks_of(case.model):
                for name in case.placements:
                    named(name)(case.model.shape(kind))

    def cases(self) -> list[_ModelCase]:
        """What is drawn."""
        deep = ModelSetting(
            blocks=self.deep_blocks,
            width=self.deep_width,
            ffn_width=self.deep_width,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
        )
        theory = replace(deep, blocks=self.blocks, width=self.width, ffn_width=self.width)
        paper = replace(theory, setting="paper", ffn_width=2 * self.width, heads=4)
        causal = replace(theory, stack="decoder")
        pair = replace(paper, stack="encoder-decoder", blocks=self.blocks // 2)
        others, draws, loose = (
            self.others or simulation.encoder_placements(),
            self.draws,
            self.loose_limit_percent,
        )
        return [
            _ModelCase(
                "deep",
                "Deep encoders, theory's setting",
                self.deep,
                deep,
                self.deep_draws,
                self.q_limit_percent,
            ),
            _ModelCase("theory", "Encoders, theory's setting", others, theory, draws, loose),
            _ModelCase("paper", "Encoders, paper's setting", others, paper, draws, loose),
            _ModelCase(
                "decoder", "Decoders, theory's setting", self.decoders, causal, draws, loose
            ),
            _ModelCase("pair", "Encoder-decoders, paper's setting", self.pairs, pair, draws, loose),
        ]


def root_of(matrix: str) -> str:
    """The name of the root mean square of a matrix's gradient norms; the matrix's own is that of
    their mean.
    """
    return f"{matrix}_root_mean_square"


_PlacementCurves = dict[str, dict[str, dict[str, Compared]]]
"""By placement, stack ("encoder" or "decoder"), and what: q, or a matrix's gradient."""
_MOVES_BY = 0.1
"""A predicted q that leaves 1 by more is worth a curve in the figure."""


def run(config: _HiddenStateConfig, pieces: Pieces) -> Findings:
    """One piece a placement and case: all its draws. Placements that theory refuses are left out,
    and said.
    """
    asked = config.cases()
    refused = {case.title: _refused(case) for case in asked}
    cases = [
        replace(
            case,
            placements=tuple(name for name in case.placements if name not in refused[case.title]),
        )
        for case in asked
    ]
    found = {
        case.name: {
            name: compared(name, case, _drawn(name, case, pieces))
            for name in pieces.each(case.title, case.placements)
        }
        for case in cases
    }
    claims, spreads = claims_of(cases, found, config)
    return Findings(
        conditions=_conditions(cases) | _left_out(refused),
        claims=claims,
        figures=figures(cases, found),
        data={
            "spreads": spreads,
            "off_percent": {
                case.name: _each_curve(found[case.name], lambda curve: curve.largest_off)
                for case in cases
            },
            # The gradients of the other cases are in no claim.
            "curves": {
                case.name: _each_curve(
                    found[case.name], as_data, only="" if case is cases[0] else "q"
                )
                for case in cases
            },
        },
    )


def _refused(case: _ModelCase) -> dict[str, str]:
    """By placement, why theory predicts no curves for it in the case's model."""
    why = {}
    for name in case.placements:
        try:
            predict(name, case.model)
        except Unpredictable as error:
            why[name] = str(error)
    return why


def _left_out(refused: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    lines = [
        f"{title}: {named(name).title}, as {why}"
        for title, by in refused.items()
        for name, why in by.items()
    ]
    return {"Left out": "; ".join(lines)} if lines else {}


def _drawn(name: str, case: _ModelCase, pieces: Pieces) -> list[dict[str, Any]]:
    """Of each draw, by stack: q, and squared gradient norms of each matrix."""
    asked = {
        "placement": name,
        "formula": formula(
            named(name), case.model.shape("decoder" if case.model.stack == "decoder" else "encoder")
        ),
        "model": asdict(case.model),
        "draws": case.draws,
        "sequences": simulation.SEQUENCES,
    }
    return pieces.get(
        f"{case.name}/{name}", asked, simulation.draws_of, name, case.model, case.draws
    )  # type: ignore[no-any-return]


def compared(
    name: str, case: _ModelCase, draws: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Compared]]:
    """By stack: q, and of each matrix's gradient norm the mean and, under `root_of`, the root mean
    square.
    """
    curves = {}
    for kind, prediction in predict(name, case.model).items():
        stack = {"q": mean_over_draws([draw[kind]["q"] for draw in draws], prediction.q)}
        for matrix in MATRIX_NAMES:
            squares = np.array([draw[kind][matrix] for draw in draws])
            stack[matrix] = mean_over_draws(np.sqrt(squares), prediction.gradient_norm[matrix])
            stack[root_of(matrix)] = root_mean_square(squares, prediction.gradient_norm[matrix])
        curves[kind] = stack
    return curves


def claims_of(
    cases: Sequence[_ModelCase], found: Mapping[str, _PlacementCurves], config: _HiddenStateConfig
) -> tuple[list[Claim], dict[str, Any]]:
    """A claim for q in each case, one for each matrix's gradient in the first; and the numbers they
    quote.
    """
    deep, spreads, asked = cases[0], {}, []
    for case in cases:
        q = {
            named(name).title: [one["q"] for one in stacks.values()]
            for name, stacks in found[case.name].items()
        }
        spreads[case.name] = spread = spread_of(q, limit_percent=case.limit)
        asked.append(
            ("q", "the mean over draws of E‖x_l‖² / d of the hidden state", case, spread, "")
        )
    for matrix, letter in MATRIX_NAMES.items():
        for what in (matrix, root_of(matrix)):
            curves = {
                named(name).title: [stacks["encoder"][what]]
                for name, stacks in found[deep.name].items()
            }
            spread = spread_of(curves, limit_percent=config.gradient_limit_percent, first=1)
            spreads[f"{deep.name}, {what}"] = spread
        # What is predicted is the root mean square; the mean is compared but not judged.
        beside = f"The mean of the norms over draws is {spreads[f'{deep.name}, {matrix}'].words}."
        asked.append(
            (
                letter,
                f"the root mean square over draws of the norm of {letter}'s gradient",
                deep,
                spread,
                beside,
            )
        )
    claims = [
        foretold(
            name=f"{name}, {case.title.lower()}",
            statement=(
                f"The prediction from a placement's formula gives {of} within {spread.limit:g} % "
                "at every depth."
            ),
            source="corrected: the mean field of normscope predict",
            of=f"{counted(len(case.placements), 'placement')}, {counted(case.draws, 'draw')}, "
            f"{counted(case.model.blocks, 'block')}, d = {case.model.width}",
            spread=spread,
            beside=beside,
        )
        for name, of, case, spread, beside in asked
    ]
    return claims, {name: asdict(spread) for name, spread in spreads.items()}


def figures(
    cases: Sequence[_ModelCase], found: Mapping[str, _PlacementCurves]
) -> list[StudyFigure]:
    """The stream of the deep placements that move, and of the same in others; the deep ones'
    gradients.
    """
    deep = cases[0]
    encoders = {name: found[deep.name][name]["encoder"] for name in deep.placements}
    moving = [
        name for name, one in encoders.items() if np.abs(one["q"].predicted - 1).max() > _MOVES_BY
    ][:6]
    moving = moving or [deep.placements[0]]
    loud = [
        name
        for name, one in encoders.items()
        if any(one[matrix].predicted.any() for matrix in MATRIX_NAMES)
    ]
    streams = [
        _streams(
            case,
            {n: found[case.name][n][kind]["q"] if n in found[case.name] else None for n in moving},
        )
        for case, kind in ((deep, "encoder"), (cases[2], "encoder"), (cases[-1], "decoder"))
    ]
    streams.insert(1, _deviations({named(name).title: encoders[name]["q"] for name in moving}))
    made = [
        StudyFigure.of_panels(
            name="hidden_state",
            title="Size of the hidden state over depth",
            caption="Mean over draws with a band of two standard errors, and the prediction. "
            + _not_drawn("their hidden state stays at 1", deep, moving),
            panels=[panel for panel in streams if panel.series],
        )
    ]
    if loud:
        made.append(
            StudyFigure.of_panels(
                name="gradients",
                title=f"Gradient norms over depth: {deep.title.lower()}",
                caption=(
                    "Root mean square of the norms over draws, which is what is predicted, with a "
                    "band of two standard errors, and the prediction. "
                )
                + _not_drawn("every gradient is 0 at first", deep, loud),
                panels=[_gradients(name, encoders[name]) for name in loud],
                told="Gradient norms over depth",
            )
        )
    return made


def _not_drawn(why: str, case: _ModelCase, drawn: Sequence[str]) -> str:
    titles = ", ".join(named(name).title for name in case.placements if name not in drawn)
    return f"Not drawn, as {why}: {titles}." if titles else ""


def _streams(case: _ModelCase, curves: Mapping[str, Compared | None]) -> Panel:
    """None for placements that the case has not: the others keep their hues."""
    series = []
    for hue, (name, q) in enumerate(curves.items()):
        series += beside_prediction(named(name).title, hue, q) if q else []
    title = f"{case.title}{', decoder' if case.model.stack == 'encoder-decoder' else ''}"
    return Panel(
        title=title, xlabel="completed blocks", ylabel="E‖x_l‖² / d", series=series, log_y=True
    )


def _deviations(curves: Mapping[str, Compared]) -> Panel:
    series = [
        measured(
            f"{title}, measured",
            hue,
            range(len(q.measured)),
            100 * q.deviation,
            200 * q.relative_error,
        )
        for hue, (title, q) in enumerate(curves.items())
    ]
    return Panel(
        title="The same, off the prediction",
        xlabel="completed blocks",
        ylabel="per cent",
        series=series,
    )


def _gradients(name: str, stack: Mapping[str, Compared]) -> Panel:
    series = [
        one
        for hue, (matrix, letter) in enumerate(MATRIX_NAMES.items())
        for one in beside_prediction(letter, hue, stack[root_of(matrix)], first=1)
    ]
    return Panel(
        title=named(name).title, xlabel="block", ylabel="‖∂L/∂W‖", series=series, from_zero=True
    )


def _conditions(cases: Sequence[_ModelCase]) -> dict[str, str]:
    models = [
        f"{case.title}: {counted(case.model.blocks, 'block')}, d = {case.model.width}, "
        f"feed-forward {case.model.ffn_width}, "
        f"{'one head' if case.model.heads == 1 else f'{case.model.heads} heads'}"
        for case in cases
    ]
    return {
        "Models": "; ".join(models),
        "Theory's setting": "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)",
        "Paper's setting": "fairseq 0.7 to 0.8: Glorot uniform, √d times the embedding, sinusoids, tied output",
        "Gradient normalisation": "mean cross-entropy per target token, random targets, one sequence at a time",
        "Logarithm": "natural: losses in nats",
        "Tokens": f"{simulation.SEQUENCES} sequences of {cases[0].model.tokens} tokens a draw; the "
        "source has as many",
        "Draws": "; ".join(f"{case.title}: {case.draws}" for case in cases) + "; seeds from 1",
        "Spread": (
            "predictions of q are of its mean over draws, those of gradients of the root mean "
            "square of their norms, which a few large draws raise; each is compared with just "
            "that. Bands are two standard errors, intervals are of 95 %, Student's t over draws"
        ),
        "Dropout": "none",
    }


def _each_curve(
    curves: _PlacementCurves, value: Callable[[Compared], Any], only: str = ""
) -> dict[str, Any]:
    """By placement, stack and what, or of one of these alone."""
    return {
        name: {
            kind: {what: value(curve) for what, curve in stack.items() if only in ("", what)}
            for kind, stack in stacks.items()
        }
        for name, stacks in curves.items()
    }


STUDY = Study(
    title="The hidden state over depth, predicted and measured",
    question=(
        "How large is the hidden state after each block at initialisation, and do the formulas "
        "alone predict it? For every placement; for eight of them the gradients too."
    ),
    help="Do formulas predict the hidden state over depth?",
    scales=scales(
        _HiddenStateConfig,
        smoke={
            "deep": ("post-ln", "pre-ln", "rezero"), "deep_blocks": 4, "deep_width": 64, "deep_draws": 3,
            "others": ("post-ln", "pre-ln"), "decoders": ("pre-ln",), "pairs": ("post-ln", "pre-ln"),
            "blocks": 2, "width": 32, "draws": 2, "tokens": 6, "vocabulary": 200,
        },
        paper={"deep_blocks": 96, "deep_width": 1024, "deep_draws": 64, "blocks": 24, "width": 512, "draws": 32},
    ),
    run=run,
)  # fmt: skip
