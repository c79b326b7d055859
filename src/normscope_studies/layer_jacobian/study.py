"""The Jacobian of one layer of Pre-LN over depth: what appendix F says of it, what it is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.report.chart import Panel
from normscope.report.words import number, percentage, span

from ..engine.claims import around, by_names, claim
from ..engine.estimates import Floats, estimate, plain_estimate
from ..engine.page import Claim, Findings, StudyFigure, line, measured
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from ..theory.corrected import residual_jacobian_norm
from .measure import SUBLAYERS, LayerJacobianConfig, sublayer_jacobians

NEARLY = 0.1
"""The distance from 1: a norm within a tenth of it is nearly 1."""
PREDICTED_WITHIN = 0.1
"""The tolerance around 1, for what the norm exceeds 1 by over what it should."""
TITLES = {"attention": "attention", "feed_forward": "feed-forward"}
_SOURCE = "Xiong et al. 2020, appendix F, after eq. (64)"


def run(config: LayerJacobianConfig, pieces: Pieces) -> Findings:
    """One piece a seed."""
    seeds = [
        pieces.get(
            f"seed-{seed}",
            {**asdict(config), "seeds": None, "seed": seed},
            sublayer_jacobians,
            config,
            seed,
        )
        for seed in pieces.each("seeds", range(1, config.seeds + 1))
    ]
    values: dict[str, dict[str, Any]] = {name: {} for name in SUBLAYERS}
    for name in SUBLAYERS:
        for what in seeds[0][name]:
            values[name][what] = np.array([one[name][what] for one in seeds])
    return Findings(
        conditions=_conditions(config),
        claims=claims(config.blocks, values),
        figures=[_figure(config.blocks, values)],
        data={"blocks": config.blocks, "sublayers": _data(values)},
    )


def claims(blocks: Sequence[int], values: Mapping[str, Mapping[str, Floats]]) -> list[Claim]:
    """values: by sub-layer the power, the norm and the gain, (S, L) each, as of
    `measure.sublayer_jacobians`.
    """
    norms, excesses = dict[str, Estimate](), dict[str, Estimate]()
    for name, of in values.items():
        places = [f"{TITLES[name]}, block {block}" for block in blocks]
        norms |= by_names(estimate(of["norm"]), places)
        excess = (of["norm"] - 1) / (_predicted(name, of["power"]) - 1)
        excesses |= by_names(estimate(excess), places)
    gains = "; ".join(
        f"{TITLES[name]} {span(of['gain'].mean(0).tolist(), 4)}" for name, of in values.items()
    )
    return [
        claim(
            "Appendix F, Pre-LN: the Jacobian of a layer",
            "The Jacobians of both sub-layers of a block have a norm of nearly 1 where l is large, "
            f"within {percentage(NEARLY, 0)}.",
            source=_SOURCE,
            value="‖J‖₂",
            holds=norms,
            **around(1.0, NEARLY),
            beside=f"The root mean square of its singular values: {gains}.",
        ),
        claim(
            "Corrected, Pre-LN: the Jacobian of a layer",
            "The norm is the edge of the singular values of I plus a random matrix over √q, q = "
            f"‖x‖² / d of what the sub-layer reads: what it exceeds 1 by, within "
            f"{percentage(PREDICTED_WITHIN, 0)}.",
            source="corrected",
            value="(‖J‖₂ − 1), measured over predicted",
            holds=excesses,
            **around(1.0, PREDICTED_WITHIN),
            beside=_where_nearly_one(),
        ),
    ]


def _predicted(sublayer: str, power: Floats) -> Floats:
    """‖J‖₂ at each of the powers."""
    at = np.vectorize(lambda q: residual_jacobian_norm(sublayer, power=float(q)))  # type: ignore[arg-type]
    found: Floats = at(power)
    return found


def _where_nearly_one() -> str:
    """Says from which power of the stream on the prediction is nearly 1, to the next whole
    number.
    """
    powers = np.arange(1.0, 1000.0)
    found = {name: powers[_predicted(name, powers) <= 1 + NEARLY][0] for name in SUBLAYERS}
    words = " and ".join(f"{number(float(q), 0)} for {TITLES[name]}" for name, q in found.items())
    return f"It is within {percentage(NEARLY, 0)} of 1 from q = {words}."


def _figure(blocks: Sequence[int], values: Mapping[str, Mapping[str, Floats]]) -> StudyFigure:
    series = []
    for hue, (name, of) in enumerate(values.items()):
        found = estimate(of["norm"])
        label, predicted = TITLES[name], _predicted(name, of["power"]).mean(0)
        series.append(measured(f"{label}, measured", hue, blocks, found.mean, found.half_width))
        series.append(line(f"{label}, predicted", "predicted", hue, blocks, predicted))
    series.append(line("claimed: nearly 1", "claimed", -1, blocks, 1.0))
    panel = Panel(title="", xlabel="block l", ylabel="‖J‖₂", series=series, log_x=True)
    return StudyFigure.of_panels(
        name="jacobians",
        title="The Jacobians of Pre-LN's sub-layers over depth",
        caption=(
            "Spectral norms by autograd, and predicted from the power of what each reads. Bands "
            "are 95 % intervals over seeds."
        ),
        panels=[panel],
        told="Spectral norms of the Jacobians of Pre-LN's sub-layers",
        wide=False,
    )


def _data(values: Mapping[str, Mapping[str, Floats]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, of in values.items():
        found[name] = {what: plain_estimate(estimate(one)) for what, one in of.items()}
        found[name]["predicted_norm"] = _predicted(name, of["power"]).mean(0)
    return found


def _conditions(config: LayerJacobianConfig) -> dict[str, str]:
    return {
        "Setting": (
            "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, every matrix from "
            "N(0, 1/d); float64"
        ),
        "Sizes": f"d = {config.width}, feed-forward {config.width}, {config.blocks[-1]} blocks",
        "Tokens": f"one sequence of {config.tokens} independent tokens from N(0, I_d) a seed; a "
        "Jacobian is of all of its tokens together",
        "Seeds": f"{config.seeds}, counted from 1: weights and vectors",
        "Spread": "means over seeds ± 95 % intervals (Student's t)",
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "none is taken",
    }


_SMOKE = {"blocks": (1, 2, 4), "width": 16, "tokens": 2, "seeds": 2}
STUDY = Study(
    title="The Jacobian of one layer of Pre-LN",
    question=(
        "Is the norm of the Jacobian of one layer of Pre-LN nearly 1 in deep stacks, as the paper "
        "concludes from the norm's own?"
    ),
    help="Is the Jacobian of a Pre-LN layer nearly 1?",
    scales=scales(LayerJacobianConfig, smoke=_SMOKE, paper={"width": 256, "seeds": 32}),
    run=run,
)
