"""Lemmas 1 to 3 of Xiong et al. 2020 by simulation, each as it is stated and as it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.measure import Estimate

from ..engine.estimates import estimate, plain_estimate
from ..engine.page import Findings
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from . import measure
from .claims import claims
from .figures import figures


def run(config: measure.LemmasConfig, pieces: Pieces) -> Findings:
    """One piece a seed and lemma."""
    parts = {
        "relu": measure.relu,
        "post-ln": measure.post_ln,
        "pre-ln": measure.pre_ln,
        "jacobian": measure.jacobians,
    }
    found: dict[str, list[Any]] = {name: [] for name in parts}
    for seed in pieces.each("seeds", range(1, config.seeds + 1)):
        for name, measured_by in parts.items():
            asked = {**asdict(config), "seeds": None, "seed": seed}
            found[name].append(pieces.get(f"{name}/seed-{seed}", asked, measured_by, config, seed))
    estimates = estimated(found)
    hidden_off = max(one["hidden_off"] for one in found["post-ln"])
    return Findings(
        conditions=_conditions(config),
        claims=claims(config, estimates, found["jacobian"], hidden_off),
        figures=figures(config, estimates),
        data={"estimates": {name: plain_estimate(one) for name, one in estimates.items()}},
    )


def estimated(found: Mapping[str, Sequence[Any]]) -> dict[str, Estimate]:
    """Returns the means with 95 % intervals over seeds. found: by what was measured, one entry a
    seed.

    relu: E‖ReLU(X)‖² / (σ² d), by σ; its deviation and beyond: as of `measure.relu`. step 0 to 5:
    E‖x‖² / d of the hidden state and of the five steps of Table 1, by block. pre-ln: E‖x_l‖² / d by
    completed blocks. The others are by the mean of x: claimed: √d / ‖x‖; a norm's name: ‖J‖₂ of its
    Jacobian.
    """
    relu, jacobian = found["relu"], found["jacobian"]
    steps = np.array([one["steps"] for one in found["post-ln"]])
    claimed = np.array([one["claimed"] for one in jacobian])
    values: dict[str, Any] = {
        "relu": [one["share"] for one in relu],
        "relu deviation": [one["deviation"] for one in relu],
        "relu beyond": [one["beyond"] for one in relu],
    }
    for step in range(measure.STEPS):
        values[f"step {step}"] = steps[:, step]
    values["pre-ln"] = found["pre-ln"]
    values["claimed"] = claimed
    for name in ("layer-norm", "rms-norm"):
        values[name] = np.array([one[name]["measured"] for one in jacobian])
        values[f"{name} exact"] = [one[name]["exact"] for one in jacobian]
        values[f"{name} over claimed"] = values[name] / claimed
    return {name: estimate(value) for name, value in values.items()}


def _conditions(config: measure.LemmasConfig) -> dict[str, str]:
    return {
        "Setting": (
            "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, every matrix from "
            "N(0, 1/d)"
        ),
        "Sizes": f"d = {config.width}, feed-forward {config.width}, {config.blocks} blocks",
        "Tokens": f"one sequence of {config.tokens} independent tokens from N(0, I_d) a seed",
        "Lemma 1": (
            f"{config.vectors} vectors for each σ of {', '.join(f'{s:g}' for s in config.sigmas)} "
            "a seed"
        ),
        "Seeds": f"{config.seeds}, counted from 1: weights and vectors",
        "Spread": (
            "means over seeds ± 95 % intervals (Student's t); a statement holds where the whole "
            "interval lies within it, fails where the whole interval lies outside, and is "
            "undecided in between"
        ),
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "none is taken",
    }


_SMOKE = {"width": 128, "tokens": 64, "blocks": 6, "seeds": 8, "vectors": 200, "singular_width": 16}
_PAPER = {"width": 1024, "blocks": 48, "seeds": 200, "vectors": 4000}
STUDY = Study(
    title="Lemmas 1 to 3 by simulation",
    question=(
        "Do the three lemmas that the paper's theorem rests on hold for stacks as they are drawn, "
        "and where not?"
    ),
    help="Do lemmas 1 to 3 of the paper hold in simulation?",
    scales=scales(measure.LemmasConfig, smoke=_SMOKE, paper=_PAPER),
    run=run,
)
