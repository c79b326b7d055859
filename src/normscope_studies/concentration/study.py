"""How tightly squared norms of hidden states lie around their mean, by depth and by ε."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate
from normscope.model import stack_shape
from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel

from ..engine.figures import line, measured
from ..engine.page import StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from ..theory import paper
from . import ABOUT
from .claims import QUANTITIES, Concentrations, TailSide, claims, constant, delta_of, gaussian_delta, name_of
from .measure import STACKS, ConcentrationConfig, Quantity, gaussians, measure_model

_SIDES: dict[TailSide, str] = {"above": "Z > (1 + ε) EZ", "outside": "|Z − EZ| > ε EZ"}


def figures(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[StudyFigure]:
    """δ over depth, and over ε for what the last norm reads."""
    shown = {name: shown_quantity(stacks) for name, stacks in found.items()}
    drawn = "; ".join(name_of(name, quantity) for name, quantity in shown.items())
    lasts = {name: one for name, stacks in found.items() for one in stacks["decoder"]["last"]}
    made = [
        StudyFigure.of_panels(
            name="delta",
            title=f"Share of tokens beyond ε = {config.epsilon:g}, over depth",
            caption=f"Mean over models with a 95 % interval. Shown are: {drawn}. χ² is that of a Gaussian vector.",
            panels=[_depth_panel(config, name, found[name], stack, shown[name]) for name in found for stack in STACKS],
            told="Share of tokens whose squared norm leaves its mean, over depth",
            wide=True,
        )
    ]
    if lasts:
        made.append(
            StudyFigure.of_panels(
                name="epsilon",
                title="Share of tokens beyond ε, for what the decoder's last norm reads",
                caption="Mean over models with a 95 % interval, the exact χ² of d degrees, and eq. (66).",
                panels=[_epsilon_panel(config, name, last) for name, last in lasts.items()],
                told="Share of tokens whose squared norm leaves its mean, over epsilon",
                wide=True,
            )
        )
    return made


def shown_quantity(stacks: Concentrations) -> Quantity:
    """The hidden state, or where that is a norm's output what norms read."""
    return "read" if stacks["encoder"]["read"] and constant(stacks, "state") else "state"


def _depth_panel(
    config: ConcentrationConfig, placement: str, stacks: Concentrations, stack: str, quantity: Quantity
) -> Panel:
    depths = range(0 if quantity == "state" else 1, config.blocks + 1)
    series = []
    for hue, (side, label) in enumerate(_SIDES.items()):
        deltas = [delta_of(config, one, side) for one in stacks[stack][quantity]]
        half_widths = [delta.half_width for delta in deltas]
        series += [
            measured(f"{label}, measured", hue, depths, [delta.mean for delta in deltas], half_widths),
            line(f"{label}, χ²", "predicted", hue, depths, gaussian_delta(config, config.epsilon, side)),
        ]
    return Panel(
        title=f"{named(placement).title}, {stack}",
        xlabel="completed blocks" if quantity == "state" else "block",
        ylabel="share of tokens",
        series=[*series, line(f"claimed: {config.delta:g}", "claimed", -1, depths, config.delta)],
        from_zero=True,
    )


def _epsilon_panel(config: ConcentrationConfig, placement: str, last: Mapping[str, Estimate]) -> Panel:
    epsilons, series = config.epsilons, []
    for hue, (side, label) in enumerate(_SIDES.items()):
        expected = [gaussian_delta(config, epsilon, side) for epsilon in epsilons]
        series += [
            measured(f"{label}, measured", hue, epsilons, last[side].mean, last[side].half_width),
            line(f"{label}, χ²", "predicted", hue, epsilons, expected),
        ]
    bound = [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in epsilons]
    series.append(line("eq. (66): exp(−d ε² / 8)", "claimed", 0, epsilons, bound))
    return Panel(title=named(placement).title, xlabel="ε", ylabel="share of tokens", series=series, from_zero=True)


def tables(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[StudyTable]:
    """One for each placement."""
    columns: list[tuple[str, Callable[[Any], Any]]] = [
        ("stack", lambda row: row[0]),
        ("of", lambda row: row[1]),
        ("l", lambda row: row[2]),
        ("q", lambda row: float(row[3]["mean"].mean)),
        ("deviation / q", lambda row: float(row[3]["deviation"].mean)),
        ("δ above", lambda row: float(delta_of(config, row[3], "above").mean)),
        ("±", lambda row: float(delta_of(config, row[3], "above").half_width)),
        ("δ both", lambda row: float(delta_of(config, row[3], "outside").mean)),
        ("±", lambda row: float(delta_of(config, row[3], "outside").half_width)),
        ("ε above", lambda row: float(row[3]["epsilon_above"].mean)),
        ("ε both", lambda row: float(row[3]["epsilon_outside"].mean)),
    ]
    return [
        table(
            f"{named(placement).title}: q = E‖x‖² / d, its spread, δ at ε = {config.epsilon:g}, "
            f"ε at δ = {config.delta:g}",
            [
                (stack, name, depth, one)
                for stack in STACKS
                for quantity, name in QUANTITIES.items()
                for depth, one in enumerate(stacks[stack][quantity], 0 if quantity == "state" else 1)
            ],
            columns,
        )
        for placement, stacks in found.items()
    ]


def run(config: ConcentrationConfig, pieces: Pieces) -> Findings:
    """One piece a placement and seed."""
    corpus = config.open_corpus()
    sizes = {key: value for key, value in asdict(config).items() if key not in ("corpus", "placements", "seeds")}
    asked = {**sizes, "corpus": corpus.fingerprint}
    measured: dict[str, list[dict[str, Any]]] = {placement: [] for placement in config.placements}
    models = [(placement, seed) for placement in config.placements for seed in range(1, config.seeds + 1)]
    for placement, seed in pieces.each("models", models):
        shape = stack_shape(config.model(placement, shared=True), "decoder")
        wanted = {**asked, "placement": placement, "formula": formula(named(placement), shape), "seed": seed}
        one = pieces.get(f"{placement}/seed-{seed}", wanted, measure_model, config, placement, corpus, seed)
        measured[placement].append(one)
    gaussian = pieces.get("gaussian", {key: asked[key] for key in ("width", "vectors", "epsilon")}, gaussians, config)
    found = {placement: estimated(models) for placement, models in measured.items()}
    return Findings(
        conditions=_conditions(config, measured),
        claims=claims(config, found, gaussian),
        figures=figures(config, found),
        tables=tables(config, found),
        data={
            "epsilons": config.epsilons,
            "gaussian": gaussian,
            "found": {name: {stack: _data(of) for stack, of in stacks.items()} for name, stacks in found.items()},
        },
    )


def estimated(models: Sequence[Mapping[str, Any]]) -> Concentrations:
    """Means over models with 95 % intervals: by stack, quantity, depth and number."""
    return {
        stack: {
            quantity: [
                {name: estimate([model[stack][quantity][depth][name] for model in models]) for name in numbers}
                for depth, numbers in enumerate(depths)
            ]
            for quantity, depths in models[0][stack].items()
        }
        for stack in STACKS
    }


def _data(of: Mapping[Quantity, list[dict[str, Estimate]]]) -> dict[str, Any]:
    return {
        quantity: [
            {name: {"mean": one.mean, "half_width": one.half_width} for name, one in numbers.items()}
            for numbers in depths
        ]
        for quantity, depths in of.items()
    }


def _conditions(config: ConcentrationConfig, measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    models = [model for several in measured.values() for model in several]
    source, target = (np.mean([model["tokens"][stack] for model in models]) for stack in STACKS)
    return {
        "Corpus": "the embedded toy language" if config.corpus == "toy" else config.corpus,
        "Model": f"{config.blocks} encoder and {config.blocks} decoder blocks, d = {config.width}, feed-forward "
        f"{config.ffn_width}, {config.heads} heads, weights as each placement's source draws them",
        "Z": "‖x‖² of a token that is no padding; EZ its mean over all batches, within one model and depth",
        "Tokens": f"{config.batches} batches a model: {source:,.0f} source and {target:,.0f} target tokens on average",
        "Seeds": f"{config.seeds} models of each placement, counted from 1",
        "Spread": "δ is a mean over models ± 95 % intervals (Student's t), which decide the verdicts",
        "Dropout": f"{config.dropout:g}" if config.dropout else "none",
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "natural, in eq. (66) alone",
    }


STUDY = Study(
    about=ABOUT,
    scales=scales(
        ConcentrationConfig,
        smoke={"toy_pairs": 100, "blocks": 2, "width": 64, "ffn_width": 128, "max_tokens": 300, "batches": 2,
               "seeds": 2, "vectors": 500},
        paper={"toy_pairs": 50_000, "batches": 100, "seeds": 10, "vectors": 200_000},
    ),
    run=run,
)  # fmt: skip
