"""The size of the hidden state over depth, for every placement: what the formulas predict, and stacks as drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.words import counted
from normscope.theory.predict import ModelSetting, predict

from ..engine.deviation import Compared, as_data, mean_over_draws, root_mean_square, spread_of
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..settings.simulation import SEQUENCES
from . import ABOUT
from .claims import claims_of
from .config import Case, HiddenStateConfig
from .measure import draws_of
from .page import MATRIX_NAMES, Curves, figures, root_of, tables


def run(config: HiddenStateConfig, pieces: Pieces) -> Findings:
    """One piece a placement and case: all its draws."""
    cases = config.cases()
    found: dict[str, Curves] = {}
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


def _drawn(name: str, case: Case, pieces: Pieces) -> list[dict[str, Any]]:
    """Of each draw, by stack: q, and squared gradient norms of each matrix."""
    asked = {
        "placement": name,
        "formula": formula(named(name), case.model.shape("decoder" if case.model.stack == "decoder" else "encoder")),
        "model": asdict(case.model),
        "draws": case.draws,
        "sequences": SEQUENCES,
    }
    return pieces.get(f"{case.name}/{name}", asked, draws_of, name, case.model, case.draws)  # type: ignore[no-any-return]


def compared(name: str, case: Case, draws: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Compared]]:
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


def _conditions(cases: Sequence[Case]) -> list[tuple[str, str]]:
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


def _data(curves: Curves, *, all_of: bool) -> dict[str, Any]:
    """Every curve, or q alone: the others' gradients are in no claim."""
    return {
        name: {
            kind: {what: as_data(curve) for what, curve in stack.items() if all_of or what == "q"}
            for kind, stack in stacks.items()
        }
        for name, stacks in curves.items()
    }


def _off(curves: Curves) -> dict[str, Any]:
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
