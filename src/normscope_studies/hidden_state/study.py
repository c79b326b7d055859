"""The size of the hidden state over depth, for every placement: what the formulas predict, and
stacks as drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.words import counted
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import predict

from ..engine.claims import Compared, as_data
from ..engine.page import Findings
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from ..theory import simulation
from .claims import PlacementCurves, claims_of, compared
from .config import HiddenStateConfig, ModelCase
from .figures import figures


def run(config: HiddenStateConfig, pieces: Pieces) -> Findings:
    """One piece a placement and case: all its draws. Placements that theory refuses are left out,
    and said.
    """
    asked = config.cases()
    refused = {case.title: _refused(case) for case in asked}
    cases = []
    for case in asked:
        left = tuple(name for name in case.placements if name not in refused[case.title])
        cases.append(replace(case, placements=left))
    found: dict[str, PlacementCurves] = {}
    for case in cases:
        found[case.name] = {}
        for name in pieces.each(case.title, case.placements):
            found[case.name][name] = compared(name, case, _drawn(name, case, pieces))
    claims, spreads = claims_of(cases, found, config)
    off_percent = {}
    curves = {}
    for case in cases:
        of_case = found[case.name]
        off_percent[case.name] = _each_curve(of_case, lambda curve: curve.largest_off)
        # The gradients of the other cases are in no claim.
        curves[case.name] = _each_curve(of_case, as_data, only="" if case is cases[0] else "q")
    return Findings(
        conditions=_conditions(cases) | _left_out(refused),
        claims=claims,
        figures=figures(cases, found),
        data={"spreads": spreads, "off_percent": off_percent, "curves": curves},
    )


def _refused(case: ModelCase) -> dict[str, str]:
    """Returns, by placement, why theory predicts no curves for it in the case's model."""
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


def _drawn(name: str, case: ModelCase, pieces: Pieces) -> list[dict[str, Any]]:
    """Returns for each draw, by stack: q, and squared gradient norms of each matrix."""
    kind: Literal["encoder", "decoder"] = "decoder" if case.model.stack == "decoder" else "encoder"
    asked = {
        "placement": name,
        "formula": formula(named(name), case.model.shape(kind)),
        "model": asdict(case.model),
        "draws": case.draws,
        "sequences": simulation.SEQUENCES,
    }
    piece = f"{case.name}/{name}"
    draws: list[dict[str, Any]] = pieces.get(
        piece, asked, simulation.draws_of, name, case.model, case.draws
    )
    return draws


def _conditions(cases: Sequence[ModelCase]) -> dict[str, str]:
    models = []
    for case in cases:
        model = case.model
        heads = "one head" if model.heads == 1 else f"{model.heads} heads"
        models.append(
            f"{case.title}: {counted(model.blocks, 'block')}, d = {model.width}, "
            f"feed-forward {model.ffn_width}, {heads}"
        )
    return {
        "Models": "; ".join(models),
        "Theory's setting": (
            "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)"
        ),
        "Paper's setting": (
            "fairseq 0.7 to 0.8: Glorot uniform, √d times the embedding, sinusoids, tied output"
        ),
        "Gradient normalisation": (
            "mean cross-entropy per target token, random targets, one sequence at a time"
        ),
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
    curves: PlacementCurves, value: Callable[[Compared], Any], only: str = ""
) -> dict[str, Any]:
    """Returns a value of every curve by placement, stack and quantity, or of one quantity alone."""
    found: dict[str, Any] = {}
    for name, stacks in curves.items():
        found[name] = {}
        for kind, stack in stacks.items():
            asked = {what: curve for what, curve in stack.items() if only in ("", what)}
            found[name][kind] = {what: value(curve) for what, curve in asked.items()}
    return found


STUDY = Study(
    title="The hidden state over depth, predicted and measured",
    question=(
        "How large is the hidden state after each block at initialisation, and do the formulas "
        "alone predict it? For every placement; for eight of them the gradients too."
    ),
    help="Do formulas predict the hidden state over depth?",
    scales=scales(
        HiddenStateConfig,
        smoke={
            "deep": ("post-ln", "pre-ln", "rezero"),
            "deep_blocks": 4,
            "deep_width": 64,
            "deep_draws": 3,
            "others": ("post-ln", "pre-ln"),
            "decoders": ("pre-ln",),
            "pairs": ("post-ln", "pre-ln"),
            "blocks": 2,
            "width": 32,
            "draws": 2,
            "tokens": 6,
            "vocabulary": 200,
        },
        paper={
            "deep_blocks": 96,
            "deep_width": 1024,
            "deep_draws": 64,
            "blocks": 24,
            "width": 512,
            "draws": 32,
        },
    ),
    run=run,
)
