"""How tightly squared norms of hidden states lie around their mean: the condition of Theorem 1, and what follows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.measure import Estimate, Summary
from normscope.model import stack_shape
from normscope.placement import named
from normscope.placement.printing import formula

from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from . import ABOUT
from .claims import Found, bounded
from .consequences import chi_square, lower_tail, shrinking, theorem_1
from .measure import STACKS, ConcentrationConfig, Quantity, gaussians, measure_model
from .page import figures, tables


def run(config: ConcentrationConfig, pieces: Pieces) -> Findings:
    """One piece a placement and seed."""
    corpus = config.open_corpus()
    sizes = {key: value for key, value in asdict(config).items() if key not in ("corpus", "placements", "seeds")}
    asked = {**sizes, "corpus": corpus.fingerprint}
    measured: dict[str, list[dict[str, Any]]] = {}
    total = len(config.placements) * config.seeds
    for i, placement in enumerate(config.placements):
        measured[placement] = []
        shape = {
            "placement": placement,
            "formula": formula(named(placement), stack_shape(config.model(placement, shared=True), "decoder")),
        }
        for seed in range(1, config.seeds + 1):
            pieces.watch("models", i * config.seeds + seed - 1, total)
            wanted = {**asked, **shape, "seed": seed}
            one = pieces.get(f"{placement}/seed-{seed}", wanted, measure_model, config, placement, corpus, seed)
            measured[placement].append(one)
    pieces.watch("models", total, total)
    gaussian = pieces.get("gaussian", {key: asked[key] for key in ("width", "vectors", "epsilon")}, gaussians, config)
    found = {placement: estimated(models) for placement, models in measured.items()}
    made = [
        *bounded(config, found),
        chi_square(config, gaussian),
        lower_tail(config),
        shrinking(config, found),
        *theorem_1(config, found),
    ]
    return Findings(
        conditions=_conditions(config, measured),
        claims=[claim for claim, _ in made],
        figures=figures(config, found),
        tables=tables(config, found),
        data={
            "judged": {claim.name: numbers for claim, numbers in made},
            "epsilons": config.epsilons,
            "gaussian": gaussian,
            "found": {name: {stack: _data(of) for stack, of in stacks.items()} for name, stacks in found.items()},
        },
    )


def estimated(models: Sequence[Mapping[str, Any]]) -> Found:
    """Means over models with 95 % intervals: by stack, quantity, depth and number."""
    found: Found = {}
    for stack in STACKS:
        found[stack] = {}
        for quantity, depths in models[0][stack].items():
            found[stack][quantity] = []
            for depth in range(len(depths)):
                summary = Summary()
                for model in models:
                    summary.add(model[stack][quantity][depth])
                found[stack][quantity].append(summary.estimates())
    return found


def _data(of: Mapping[Quantity, list[dict[str, Estimate]]]) -> dict[str, Any]:
    return {
        quantity: [
            {name: {"mean": one.mean, "half_width": one.half_width} for name, one in numbers.items()}
            for numbers in depths
        ]
        for quantity, depths in of.items()
    }


def _conditions(
    config: ConcentrationConfig, measured: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[tuple[str, str]]:
    tokens = {
        stack: np.mean([model["tokens"][stack] for models in measured.values() for model in models]) for stack in STACKS
    }
    return [
        ("Corpus", "the embedded toy language" if config.corpus == "toy" else config.corpus),
        (
            "Model",
            f"{config.blocks} encoder and {config.blocks} decoder blocks, d = {config.width}, feed-forward "
            f"{config.ffn_width}, {config.heads} heads, weights as each placement's source draws them",
        ),
        ("Z", "‖x‖² of a token that is no padding; EZ its mean over all batches, within one model and depth"),
        (
            "Tokens",
            f"{config.batches} batches a model: {tokens['encoder']:,.0f} source and {tokens['decoder']:,.0f} target "
            "tokens on average",
        ),
        ("Seeds", f"{config.seeds} models of each placement, counted from 1"),
        ("Spread", "δ is a mean over models ± 95 % intervals (Student's t), which decide the verdicts"),
        ("Dropout", f"{config.dropout:g}" if config.dropout else "none"),
        ("Gradient normalisation", "none: no loss and no gradient of one is taken"),
        ("Logarithm", "natural, in eq. (66) alone"),
    ]


STUDY = Study(
    about=ABOUT,
    scales={
        "smoke": Scale(
            config=ConcentrationConfig(
                toy_pairs=100, blocks=2, width=64, ffn_width=128, max_tokens=300, batches=2, seeds=2, vectors=500
            ),
            decides=False,
        ),
        "cpu": Scale(config=ConcentrationConfig()),
        "paper": Scale(config=ConcentrationConfig(toy_pairs=50_000, batches=100, seeds=10, vectors=200_000)),
    },
    run=run,
)
