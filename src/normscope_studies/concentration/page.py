"""Figures and tables of the study of concentration."""

from collections.abc import Mapping

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.figures import line, measured
from ..engine.page import StudyFigure, StudyTable
from ..theory import corrected, paper
from .claims import QUANTITIES, Found, Sides, constant, delta_of, name_of
from .measure import STACKS, ConcentrationConfig, Quantity

_SIDES: dict[Sides, str] = {"above": "Z > (1 + ε) EZ", "outside": "|Z − EZ| > ε EZ"}


def figures(config: ConcentrationConfig, found: Mapping[str, Found]) -> list[StudyFigure]:
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


def shown_quantity(stacks: Found) -> Quantity:
    """The hidden state, or where that is a norm's output what norms read."""
    return "read" if stacks["encoder"]["read"] and constant(stacks, "state") else "state"


def tables(config: ConcentrationConfig, found: Mapping[str, Found]) -> list[StudyTable]:
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


def _depth_panel(config: ConcentrationConfig, placement: str, stacks: Found, stack: str, quantity: Quantity) -> Panel:
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
