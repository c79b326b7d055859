"""Lemmas 1 to 3 of Xiong et al. 2020 by simulation, each as it is stated and as it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.evidence.estimates import estimate, plain_estimate
from normscope.measure import Estimate
from normscope.report.chart import Panel

from ..engine.figures import line, measured
from ..engine.page import StudyFigure
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from ..theory import corrected, paper
from . import ABOUT
from .claims import Estimates, claims, completed_bounds, counted_bounds
from .measure import STEPS, LemmasConfig, jacobians, post_ln, pre_ln, relu


def estimated(found: Mapping[str, Sequence[Any]]) -> dict[str, Estimate]:
    """Means with 95 % intervals over seeds. found: by what was measured, one entry a seed.

    relu: E‖ReLU(X)‖² / (σ² d), by σ; its deviation: of one vector's, as a share of the mean. step 0 to 5: E‖x‖² / d of
    the hidden state and of the five steps of Table 1, by block. pre-ln: E‖x_l‖² / d by completed blocks. The others
    are by the mean of x: claimed: √d / ‖x‖; a norm's name: ‖J‖₂ of its Jacobian.
    """
    relu, jacobian = found["relu"], found["jacobian"]
    steps = np.array([one["steps"] for one in found["post-ln"]])
    claimed = np.array([one["claimed"] for one in jacobian])
    values: dict[str, Any] = {
        "relu": [one["share"] for one in relu],
        "relu deviation": [one["deviation"] for one in relu],
        **{f"step {step}": steps[:, step] for step in range(STEPS)},
        "pre-ln": found["pre-ln"],
        "claimed": claimed,
    }
    for name in ("layer-norm", "rms-norm"):
        values[name] = np.array([one[name]["measured"] for one in jacobian])
        values[f"{name} exact"] = [one[name]["exact"] for one in jacobian]
        values[f"{name} over claimed"] = values[name] / claimed
    return {name: estimate(value) for name, value in values.items()}


_FIRST_LAYERS = 8
"""Shown apart: where section 3.1's way to count breaks the bound."""


def figures(config: LemmasConfig, of: Estimates) -> list[StudyFigure]:
    """Pre-LN's bounds, Post-LN's steps, and the Jacobian."""
    return [
        StudyFigure.of_panels(
            name="pre_ln",
            title="Lemma 2, Pre-LN: E‖x_l‖² / d and its bounds",
            caption="Left: l completed blocks, x_0 the embedding. Right: x_l the input of layer l, as in section 3.1. "
            "Bands, mostly thinner than the line, are 95 % intervals over seeds.",
            panels=_pre_ln_panels(config, of["pre-ln"]),
            told="Pre-LN: squared norm of the hidden state",
            wide=True,
        ),
        StudyFigure.of_panels(
            name="post_ln",
            title="Lemma 2, Post-LN: the steps of Table 1",
            caption="E‖x‖² / d of each step. The bounds of x¹ and x² are wide, 0 to 1 and 1 to 2: as tokens become "
            "alike, averaging them takes less away, and both rise from the lower to the upper one.",
            panels=[_post_ln_panel(config, of)],
            told="Post-LN: squared norms of the steps of a block",
        ),
        StudyFigure.of_panels(
            name="jacobian",
            title="Lemma 3: the norm's Jacobian where x has a mean",
            caption="x ~ N(0, I) plus a mean. √d / ‖x‖ is RMSNorm's; LayerNorm takes the mean off and does not see it.",
            panels=[_jacobian_panel(config, of)],
            told="Spectral norm of the norms' Jacobians",
        ),
    ]


def _pre_ln_panels(config: LemmasConfig, q: Estimate) -> list[Panel]:
    """The first states beside bounds, wherever l starts to count."""
    depths, layers = np.arange(config.blocks + 1), np.arange(1, min(config.blocks, _FIRST_LAYERS) + 1)
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
        panels.append(Panel(title=title, xlabel="l", ylabel="E‖x_l‖² / d", series=series, from_zero=True))
    return panels


def _post_ln_panel(config: LemmasConfig, of: Estimates) -> Panel:
    blocks = np.arange(1, config.blocks + 1)
    cosines = corrected.post_ln_cosines(config.blocks - 1, tokens=config.tokens)
    attention = np.array([corrected.uniform_attention_share(rho, tokens=config.tokens) for rho in cosines])
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
        title="x¹ is attention, x⁴ the feed-forward", xlabel="block", ylabel="E‖x‖² / d", series=series, from_zero=True
    )


def _jacobian_panel(config: LemmasConfig, of: Estimates) -> Panel:
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


def run(config: LemmasConfig, pieces: Pieces) -> Findings:
    """One piece a seed and lemma."""
    parts = {"relu": relu, "post-ln": post_ln, "pre-ln": pre_ln, "jacobian": jacobians}
    found: dict[str, list[Any]] = {name: [] for name in parts}
    for seed in pieces.each("seeds", range(1, config.seeds + 1)):
        for name, measure in parts.items():
            asked = {**asdict(config), "seeds": None, "seed": seed}
            found[name].append(pieces.get(f"{name}/seed-{seed}", asked, measure, config, seed))
    estimates = estimated(found)
    return Findings(
        conditions=_conditions(config),
        claims=claims(config, estimates, found["jacobian"], max(one["hidden_off"] for one in found["post-ln"])),
        figures=figures(config, estimates),
        tables=[],
        data={"estimates": {name: plain_estimate(one) for name, one in estimates.items()}},
    )


def _conditions(config: LemmasConfig) -> dict[str, str]:
    return {
        "Setting": "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, every matrix from N(0, 1/d)",
        "Sizes": f"d = {config.width}, feed-forward {config.width}, {config.blocks} blocks",
        "Tokens": f"one sequence of {config.tokens} independent tokens from N(0, I_d) a seed",
        "Lemma 1": f"{config.vectors} vectors for each σ of {', '.join(f'{s:g}' for s in config.sigmas)} a seed",
        "Seeds": f"{config.seeds}, counted from 1: weights and vectors",
        "Spread": "means over seeds ± 95 % intervals (Student's t); a statement holds where the whole interval lies "
        "within it, fails where the whole interval lies outside, and is undecided in between",
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "none is taken",
    }


_SMOKE = {"width": 128, "tokens": 64, "blocks": 6, "seeds": 8, "vectors": 200, "singular_width": 16}
_PAPER = {"width": 1024, "blocks": 48, "seeds": 200, "vectors": 4000}
STUDY = Study(about=ABOUT, scales=scales(LemmasConfig, smoke=_SMOKE, paper=_PAPER), run=run)
