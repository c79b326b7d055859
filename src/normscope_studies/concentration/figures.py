"""The share of tokens whose squared norm leaves its mean, over depth and over how far it does."""

from collections.abc import Mapping

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.page import StudyFigure, line, measured
from ..theory import paper
from .claims import (
    SIDES,
    Concentrations,
    constant,
    delta_of,
    gaussian_delta,
    lasts,
    name_of,
)
from .measure import STACKS, ConcentrationConfig, Quantity


def figures(config: ConcentrationConfig, found: Mapping[str, Concentrations]) -> list[StudyFigure]:
    """δ over depth, and over ε for what the last norm reads."""
    # The hidden state, or where that is a norm's output what norms read.
    shown: dict[str, Quantity] = {
        name: "read" if stacks["encoder"]["read"] and constant(stacks, "state") else "state"
        for name, stacks in found.items()
    }
    drawn = "; ".join(name_of(name, quantity) for name, quantity in shown.items())
    made = [
        StudyFigure.of_panels(
            name="delta",
            title=f"Share of tokens beyond ε = {config.epsilon:g}, over depth",
            caption=f"Mean over models with a 95 % interval. Shown are: {drawn}. χ² is that of a "
            "Gaussian vector.",
            panels=[
                _depth_panel(config, name, found[name], stack, shown[name])
                for name in found
                for stack in STACKS
            ],
            told="Share of tokens whose squared norm leaves its mean, over depth",
        )
    ]
    read_last = lasts(found)
    if read_last:
        made.append(
            StudyFigure.of_panels(
                name="epsilon",
                title="Share of tokens beyond ε, for what the decoder's last norm reads",
                caption="Mean over models with a 95 % interval, the exact χ² of d degrees, and eq. "
                "(66).",
                panels=[_epsilon_panel(config, name, last) for name, last in read_last.items()],
                told="Share of tokens whose squared norm leaves its mean, over epsilon",
            )
        )
    return made


def _depth_panel(
    config: ConcentrationConfig,
    placement: str,
    stacks: Concentrations,
    stack: str,
    quantity: Quantity,
) -> Panel:
    depths = range(0 if quantity == "state" else 1, config.blocks + 1)
    series = []
    for hue, (side, label) in enumerate(SIDES.items()):
        deltas = [delta_of(config, one, side) for one in stacks[stack][quantity]]
        half_widths = [delta.half_width for delta in deltas]
        series += [
            measured(
                f"{label}, measured", hue, depths, [delta.mean for delta in deltas], half_widths
            ),
            line(
                f"{label}, χ²",
                "predicted",
                hue,
                depths,
                gaussian_delta(config, config.epsilon, side),
            ),
        ]
    return Panel(
        title=f"{named(placement).title}, {stack}",
        xlabel="completed blocks" if quantity == "state" else "block",
        ylabel="share of tokens",
        series=[*series, line(f"claimed: {config.delta:g}", "claimed", -1, depths, config.delta)],
        from_zero=True,
    )


def _epsilon_panel(
    config: ConcentrationConfig, placement: str, last: Mapping[str, Estimate]
) -> Panel:
    epsilons, series = config.epsilons, []
    for hue, (side, label) in enumerate(SIDES.items()):
        expected = [gaussian_delta(config, epsilon, side) for epsilon in epsilons]
        series += [
            measured(f"{label}, measured", hue, epsilons, last[side].mean, last[side].half_width),
            line(f"{label}, χ²", "predicted", hue, epsilons, expected),
        ]
    bound = [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in epsilons]
    series.append(line("eq. (66): exp(−d ε² / 8)", "claimed", 0, epsilons, bound))
    return Panel(
        title=named(placement).title,
        xlabel="ε",
        ylabel="share of tokens",
        series=series,
        from_zero=True,
    )
