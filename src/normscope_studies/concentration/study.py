"""Measures how tightly squared norms of hidden states lie around their mean: Theorem 1's condition,
and what follows from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.model import stack_shape
from normscope.placement import named
from normscope.placement.printing import formula

from ..engine.checks import settings_but
from ..engine.estimates import estimate
from ..engine.page import Findings
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .claims import Concentrations, bounded, chi_square, lower_tail, shrinking, theorem_1
from .figures import figures
from .measure import STACKS, ConcentrationConfig, Quantity, gaussians, measure_model


def run(config: ConcentrationConfig, pieces: Pieces) -> Findings:
    """One piece a placement and seed."""
    corpus = config.open_corpus()
    asked = settings_but(config, "placements", "seeds") | {"corpus": corpus.fingerprint}
    models: dict[str, list[dict[str, Any]]] = {placement: [] for placement in config.placements}
    seeds = range(1, config.seeds + 1)
    each = [(placement, seed) for placement in config.placements for seed in seeds]
    for placement, seed in pieces.each("models", each):
        shape = stack_shape(config.model(placement, shared=True), "decoder")
        wanted = {
            **asked,
            "placement": placement,
            "formula": formula(named(placement), shape),
            "seed": seed,
        }
        one = pieces.get(
            f"{placement}/seed-{seed}", wanted, measure_model, config, placement, corpus, seed
        )
        models[placement].append(one)
    of_gaussian = {key: asked[key] for key in ("width", "vectors", "epsilon")}
    gaussian = pieces.get("gaussian", of_gaussian, gaussians, config)
    found = {placement: estimated(several) for placement, several in models.items()}
    tokens = [one["tokens"] for several in models.values() for one in several]
    return Findings(
        conditions=_conditions(config, tokens),
        claims=[
            *bounded(config, found),
            chi_square(config, gaussian),
            lower_tail(config),
            shrinking(config, found),
            *theorem_1(config, found),
        ],
        figures=figures(config, found),
        data={
            "epsilons": config.epsilons,
            "gaussian": gaussian,
            "found": {name: _data(stacks) for name, stacks in found.items()},
        },
    )


def estimated(models: Sequence[Mapping[str, Any]]) -> Concentrations:
    """Returns the means over models with 95 % intervals: by stack, quantity, depth and number."""

    def over_models(stack: str, quantity: Quantity, depth: int) -> dict[str, Estimate]:
        numbers = [model[stack][quantity][depth] for model in models]
        means = {}
        for name in numbers[0]:
            means[name] = estimate([one[name] for one in numbers])
        return means

    found: Concentrations = {}
    for stack in STACKS:
        found[stack] = {}
        for quantity, depths in models[0][stack].items():
            found[stack][quantity] = [
                over_models(stack, quantity, depth) for depth in range(len(depths))
            ]
    return found


def _data(stacks: Concentrations) -> dict[str, Any]:
    def plain(numbers: Mapping[str, Estimate]) -> dict[str, Any]:
        return {
            name: {"mean": one.mean, "half_width": one.half_width} for name, one in numbers.items()
        }

    data: dict[str, Any] = {}
    for stack, quantities in stacks.items():
        data[stack] = {}
        for quantity, depths in quantities.items():
            data[stack][quantity] = [plain(numbers) for numbers in depths]
    return data


def _conditions(config: ConcentrationConfig, tokens: Sequence[Mapping[str, int]]) -> dict[str, str]:
    source = np.mean([one["encoder"] for one in tokens])
    target = np.mean([one["decoder"] for one in tokens])
    return {
        "Corpus": "the embedded toy language" if config.corpus == "toy" else config.corpus,
        "Model": f"{config.blocks} encoder and {config.blocks} decoder blocks, d = {config.width}, "
        f"feed-forward {config.ffn_width}, {config.heads} heads, weights as each placement's "
        "source draws them",
        "Z": "‖x‖² of a token that is no padding; EZ its mean over all batches, within one model "
        "and depth",
        "Tokens": (
            f"{config.batches} batches a model: {source:,.0f} source and {target:,.0f} target "
            "tokens on average"
        ),
        "Seeds": f"{config.seeds} models of each placement, counted from 1",
        "Spread": (
            "δ is a mean over models ± 95 % intervals (Student's t), which decide the verdicts"
        ),
        "Dropout": f"{config.dropout:g}" if config.dropout else "none",
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "natural, in eq. (66) alone",
    }


_SMOKE = {
    "toy_pairs": 100,
    "blocks": 2,
    "width": 64,
    "ffn_width": 128,
    "max_tokens": 300,
    "batches": 2,
    "seeds": 2,
    "vectors": 500,
}
_PAPER = {"toy_pairs": 50_000, "batches": 100, "seeds": 10, "vectors": 200_000}
STUDY = Study(
    title="Concentration of squared norms",
    question="The paper reports that the norm of hidden states at initialisation is (0.1, "
    "0.125)-bounded, and builds Theorem 1 on it. Is it, and does the theorem's probability "
    "follow?",
    help="Are squared norms of hidden states near their mean?",
    scales=scales(ConcentrationConfig, smoke=_SMOKE, paper=_PAPER),
    run=run,
)
