"""Pre-LN's bounds, Post-LN's steps and the norms' Jacobians, drawn."""

import numpy as np

from normscope.measure import Estimate
from normscope.report.chart import Panel

from ..engine.page import StudyFigure, line, measured
from ..theory import corrected, paper
from . import measure
from .claims import LemmaEstimates, completed_bounds, counted_bounds

_FIRST_LAYERS = 8
"""Shown apart: where section 3.1's way to count breaks the bound."""


def figures(config: measure.LemmasConfig, of: LemmaEstimates) -> list[StudyFigure]:
    """Pre-LN's bounds, Post-LN's steps, and the Jacobian."""
    return [
        StudyFigure.of_panels(
            name="pre_ln",
            title="Lemma 2, Pre-LN: E‖x_l‖² / d and its bounds",
            caption=(
                "Left: l completed blocks, x_0 the embedding. Right: x_l the input of layer l, as "
                "in section 3.1. Bands, mostly thinner than the line, are 95 % intervals over "
                "seeds."
            ),
            panels=_pre_ln_panels(config, of["pre-ln"]),
            told="Pre-LN: squared norm of the hidden state",
        ),
        StudyFigure.of_panels(
            name="post_ln",
            title="Lemma 2, Post-LN: the steps of Table 1",
            caption=(
                "E‖x‖² / d of each step. The bounds of x¹ and x² are wide, 0 to 1 and 1 to 2: as "
                "tokens become alike, averaging them takes less away, and both rise from the lower "
                "to the upper one."
            ),
            panels=[_post_ln_panel(config, of)],
            told="Post-LN: squared norms of the steps of a block",
            wide=False,
        ),
        StudyFigure.of_panels(
            name="jacobian",
            title="Lemma 3: the norm's Jacobian where x has a mean",
            caption=(
                "x ~ N(0, I) plus a mean. √d / ‖x‖ is RMSNorm's; LayerNorm takes the mean off and "
                "does not see it."
            ),
            panels=[_jacobian_panel(config, of)],
            told="Spectral norm of the norms' Jacobians",
            wide=False,
        ),
    ]


def _pre_ln_panels(config: measure.LemmasConfig, q: Estimate) -> list[Panel]:
    """Returns the first states beside bounds, wherever l starts to count."""
    depths = np.arange(config.blocks + 1)
    layers = np.arange(1, min(config.blocks, _FIRST_LAYERS) + 1)
    predicted = [one for one, _ in corrected.pre_ln_stream(config.blocks, tokens=config.tokens)]
    digests = line("in digests, a lower bound: 1 + 2l", "claimed", 3, depths, 1.0 + 2 * depths)
    panels = []
    for title, l_X, bounds_X2, more in (
        ("l completed blocks", depths, completed_bounds(config.blocks), [digests]),
        ("l the layer that reads x_l", layers, counted_bounds(len(layers)), []),
    ):
        count = len(l_X)
        series = [
            measured("measured", 0, l_X, q.mean[:count], q.half_width[:count]),
            line("predicted", "predicted", 0, l_X, predicted[:count]),
            line("claimed: 1 + l/2", "claimed", 1, l_X, bounds_X2[:, 0]),
            line("claimed: 1 + 3l/2", "claimed", 2, l_X, bounds_X2[:, 1]),
            *more,
        ]
        panels.append(
            Panel(title=title, xlabel="l", ylabel="E‖x_l‖² / d", series=series, from_zero=True)
        )
    return panels


def _post_ln_panel(config: measure.LemmasConfig, of: LemmaEstimates) -> Panel:
    blocks = np.arange(1, config.blocks + 1)
    cosines = corrected.post_ln_cosines(config.blocks - 1, tokens=config.tokens)
    attention = np.array(
        [corrected.uniform_attention_share(rho, tokens=config.tokens) for rho in cosines]
    )
    series = []
    for hue, (step, name) in enumerate({1: "x¹", 2: "x²", 4: "x⁴", 5: "x⁵"}.items()):
        least, greatest = paper.post_ln_squared_norm(step, width=1)
        found = of[f"step {step}"]
        series.append(measured(f"{name}, measured", hue, blocks, found.mean, found.half_width))
        if least == greatest:
            series.append(line(f"{name}, claimed: {least:g}", "claimed", hue, blocks, least))
        else:
            series.append(line(f"{name}, predicted", "predicted", hue, blocks, least + attention))
    return Panel(
        title="x¹ is attention, x⁴ the feed-forward",
        xlabel="block",
        ylabel="E‖x‖² / d",
        series=series,
        from_zero=True,
    )


def _jacobian_panel(config: measure.LemmasConfig, of: LemmaEstimates) -> Panel:
    layer, rms = of["layer-norm"], of["rms-norm"]
    return Panel(
        title="",
        xlabel="mean of x, in units of the features' spread",
        ylabel="‖J‖₂",
        series=[
            measured("LayerNorm, measured", 0, config.means, layer.mean, layer.half_width),
            line("√d / ‖x − mean‖", "predicted", 0, config.means, of["layer-norm exact"].mean),
            measured("RMSNorm, measured", 1, config.means, rms.mean, rms.half_width),
            line("claimed of it: √d / ‖x‖", "claimed", 0, config.means, of["claimed"].mean),
        ],
        from_zero=True,
    )
