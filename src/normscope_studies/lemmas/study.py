"""Lemmas 1 to 3 of Xiong et al. 2020 by simulation, each as it is stated and as it holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.evidence.estimates import plain_estimate

from ..engine.page import Claim
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from . import ABOUT
from .claims.jacobian import jacobian_claimed, jacobian_exact, rms_norm
from .claims.post_ln import post_ln_hidden, post_ln_last, post_ln_steps
from .claims.pre_ln import pre_ln_bounds
from .claims.relu import lemma_1
from .estimates import Estimates, estimated
from .measure import LemmasConfig, jacobians, post_ln, pre_ln, relu
from .page import figures, tables


def run(config: LemmasConfig, pieces: Pieces) -> Findings:
    """One piece a seed and lemma."""
    parts: dict[str, Callable[[LemmasConfig, int], Any]] = {
        "relu": relu,
        "post-ln": post_ln,
        "pre-ln": pre_ln,
        "jacobian": jacobians,
    }
    found: dict[str, list[Any]] = {name: [] for name in parts}
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        for name, measure in parts.items():
            asked = {**asdict(config), "seeds": None, "seed": seed}
            found[name].append(pieces.get(f"{name}/seed-{seed}", asked, measure, config, seed))
    pieces.watch("seeds", config.seeds, config.seeds)
    estimates = estimated(found)
    claims, data = judged(config, estimates, found["jacobian"], max(one["hidden_off"] for one in found["post-ln"]))
    return Findings(
        conditions=_conditions(config),
        claims=claims,
        figures=figures(config, estimates),
        tables=tables(config, estimates),
        data={
            "judged": data,
            "estimates": {name: plain_estimate(one) for name, one in estimates.by_name().items()},
        },
    )


def judged(
    config: LemmasConfig, of: Estimates, jacobian: Sequence[Mapping[str, Any]], hidden_off: float
) -> tuple[list[Claim], dict[str, Any]]:
    """Every claim, and the numbers it quotes."""
    made = [
        lemma_1(config, of),
        post_ln_last(config, of),
        post_ln_steps(config, of),
        post_ln_hidden(of, hidden_off),
        *pre_ln_bounds(config, of.pre_ln),
        jacobian_exact(config, jacobian),
        jacobian_claimed(config, of),
        rms_norm(jacobian),
    ]
    return [claim for claim, _ in made], {claim.name: numbers for claim, numbers in made}


def _conditions(config: LemmasConfig) -> list[tuple[str, str]]:
    return [
        ("Setting", "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, every matrix from N(0, 1/d)"),
        ("Sizes", f"d = {config.width}, feed-forward {config.width}, {config.blocks} blocks"),
        ("Tokens", f"one sequence of {config.tokens} independent tokens from N(0, I_d) a seed"),
        ("Lemma 1", f"{config.vectors} vectors for each σ of {', '.join(f'{s:g}' for s in config.sigmas)} a seed"),
        ("Seeds", f"{config.seeds}, counted from 1: weights and vectors"),
        (
            "Spread",
            "means over seeds ± 95 % intervals (Student's t); a statement holds where the whole interval lies within "
            "it, fails where the whole interval lies outside, and is undecided in between",
        ),
        ("Gradient normalisation", "none: no loss and no gradient of one is taken"),
        ("Logarithm", "none is taken"),
    ]


STUDY = Study(
    about=ABOUT,
    scales={
        "smoke": Scale(
            config=LemmasConfig(width=128, tokens=64, blocks=6, seeds=8, vectors=200, singular_width=16), decides=False
        ),
        "cpu": Scale(config=LemmasConfig()),
        "paper": Scale(config=LemmasConfig(width=1024, blocks=48, seeds=200, vectors=4000)),
    },
    run=run,
)
