"""How tightly squared norms of hidden states lie around their mean, by depth and by ε."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.measure import Estimate, Summary
from normscope.model import stack_shape
from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel

from ..engine.figures import line, measured
from ..engine.page import StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory import corrected, paper
from . import ABOUT
from .claims import (
    QUANTITIES,
    Concentrations,
    TailSide,
    bounded,
    chi_square,
    constant,
    delta_of,
    lower_tail,
    name_of,
    shrinking,
    theorem_1,
)
from .measure import STACKS, ConcentrationConfig, Quantity, gaussians, measure_model

_SIDES: dict[TailSide, str] = {"above": "Z > (1 + ε) EZ", "outside": "|Z − EZ| > ε EZ"}


def figures(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[StudyFigure]:
    """δ over depth, and over ε for what the last norm reads."""
    shown = {name: shown_quantity(stacks) for name, stacks in found.items()}
    over_depth = [_depth_panel(config, name, found[name], stack, shown[name]) for name in found for stack in STACKS]
    over_epsilon = [
        _epsilon_panel(config, name, stacks["decoder"]["last"][0])
        for name, stacks in found.items()
        if stacks["decoder"]["last"]
    ]
    drawn = "; ".join(name_of(name, quantity) for name, quantity in shown.items())
    figures = [
        StudyFigure.of_panels(
            name="delta",
            title=f"Share of tokens beyond ε = {config.epsilon:g}, over depth",
            caption=f"Mean over models with a 95 % interval. Shown are: {drawn}. χ² is that of a Gaussian vector.",
            panels=over_depth,
            told="Share of tokens whose squared norm leaves its mean, over depth",
            wide=True,
        )
    ]
    if over_epsilon:
        figures.append(
            StudyFigure.of_panels(
                name="epsilon",
                title="Share of tokens beyond ε, for what the decoder's last norm reads",
                caption="Mean over models with a 95 % interval, the exact χ² of d degrees, and eq. (66).",
                panels=over_epsilon,
                told="Share of tokens whose squared norm leaves its mean, over epsilon",
                wide=True,
            )
        )
    return figures


def shown_quantity(stacks: Concentrations) -> Quantity:
    """The hidden state, or where that is a norm's output what norms read."""
    return "read" if stacks["encoder"]["read"] and constant(stacks, "state") else "state"


def tables(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[StudyTable]:
    """One for each placement."""
    return [
        StudyTable(
            title=f"{named(placement).title}: q = E‖x‖² / d, its spread, δ at ε = {config.epsilon:g}, "
            f"ε at δ = {config.delta:g}",
            columns=["stack", "of", "l", "q", "deviation / q", "δ above", "±", "δ both", "±", "ε above", "ε both"],
            rows=[
                [
                    stack,
                    name,
                    depth,
                    float(one["mean"].mean),
                    float(one["deviation"].mean),
                    *delta_of(config, one, "above"),
                    *delta_of(config, one, "outside"),
                    float(one["epsilon_above"].mean),
                    float(one["epsilon_outside"].mean),
                ]
                for stack in STACKS
                for quantity, name in QUANTITIES.items()
                for depth, one in enumerate(stacks[stack][quantity], 0 if quantity == "state" else 1)
            ],
        )
        for placement, stacks in found.items()
    ]


def _depth_panel(
    config: ConcentrationConfig, placement: str, stacks: Concentrations, stack: str, quantity: Quantity
) -> Panel:
    depths = range(0 if quantity == "state" else 1, config.blocks + 1)
    lower, upper = corrected.chi_square_tails(width=config.width, epsilon=config.epsilon)
    series = []
    for hue, (side, label) in enumerate(_SIDES.items()):
        deltas, half_widths = zip(*(delta_of(config, one, side) for one in stacks[stack][quantity]), strict=True)
        expected = upper if side == "above" else lower + upper
        series += [
            measured(f"{label}, measured", hue, depths, deltas, half_widths),
            line(f"{label}, χ²", "predicted", hue, depths, expected),
        ]
    series.append(line(f"claimed: {config.delta:g}", "claimed", -1, depths, config.delta))
    title = f"{named(placement).title}, {stack}"
    xlabel = "completed blocks" if quantity == "state" else "block"
    return Panel(title=title, xlabel=xlabel, ylabel="share of tokens", series=series, from_zero=True)


def _epsilon_panel(config: ConcentrationConfig, placement: str, last: Mapping[str, Estimate]) -> Panel:
    epsilons = config.epsilons
    tails = [corrected.chi_square_tails(width=config.width, epsilon=epsilon) for epsilon in epsilons]
    series = []
    for hue, (side, label) in enumerate(_SIDES.items()):
        expected = [upper if side == "above" else lower + upper for lower, upper in tails]
        series += [
            measured(f"{label}, measured", hue, epsilons, last[side].mean, last[side].half_width),
            line(f"{label}, χ²", "predicted", hue, epsilons, expected),
        ]
    bound = [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in epsilons]
    series.append(line("eq. (66): exp(−d ε² / 8)", "claimed", 0, epsilons, bound))
    return Panel(title=named(placement).title, xlabel="ε", ylabel="share of tokens", series=series, from_zero=True)


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


def estimated(models: Sequence[Mapping[str, Any]]) -> Concentrations:
    """Means over models with 95 % intervals: by stack, quantity, depth and number."""
    found: Concentrations = {}
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
