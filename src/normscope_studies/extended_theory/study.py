"""Gradients of the lower layers over depth: what appendix F claims, what is predicted, what is
measured.
"""

# S = seeds, L = blocks

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel, Series

from ..engine.claims import by_names
from ..engine.estimates import Floats, estimate, plain_estimate
from ..engine.page import Findings, StudyFigure, line, measured
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from ..theory import paper
from .claims import (
    DECAY,
    Profile,
    by_case,
    claims,
    first_over_post,
    over_depth,
    pre_profile,
    profile,
)
from .measure import LETTERS, W2, ExtendedTheoryConfig, measured as measured_norms

POST, PRE = "post-ln", "pre-ln"
_CUT = 0.3
"""Claimed curves end where they fall below this times all that was measured in their panel."""


def run(config: ExtendedTheoryConfig, pieces: Pieces) -> Findings:
    """Measure what is missing, predict, and judge."""
    post, pre = (list(_profiles(placement, config, pieces)) for placement in (POST, PRE))
    return Findings(
        conditions=_conditions(config),
        claims=claims(post, pre),
        figures=figures(post, pre),
        data={
            "profiles": [_data(one) for one in (*post, *pre)],
            "over_depth": [*_exponents(post), *_exponents(pre)],
            "expected": _expected(post, pre),
        },
    )


def _profiles(placement: str, config: ExtendedTheoryConfig, pieces: Pieces) -> Iterator[Profile]:
    """Yields the profile of every case at every depth; a piece a seed."""
    stacks = config.stacks
    models = {name: (model, case.looked_at) for name, (case, model) in stacks.items()}
    plain = {name: [asdict(model), stack] for name, (model, stack) in models.items()}
    seeds = [
        pieces.get(
            f"{placement}/seed-{seed}",
            {"placement": placement, "seed": seed, "stacks": plain},
            measured_norms,
            placement,
            models,
            seed,
        )
        for seed in pieces.each(placement, range(1, config.seeds + 1))
    ]
    for key, (case, model) in stacks.items():
        norms_SL = {}
        for name in LETTERS:
            norms_SL[name] = np.array([seed[key][name] for seed in seeds], dtype=np.float64)
        yield profile(placement, case, model, norms_SL)


def figures(post: Sequence[Profile], pre: Sequence[Profile]) -> list[StudyFigure]:
    """Profiles of encoders, of decoders, and the two ends over depth."""
    made = []
    for stack, one in (("encoder", "Encoders"), ("decoder", "Decoders")):
        own = [_cases_of(side, stack) for side in (post, pre)]
        made.append(
            StudyFigure.of_panels(
                name=f"{stack}s",
                title=f"{one}: the gradient of every block's W₂",
                caption=(
                    "Measured with its 95 % interval, predicted, and appendix F's claim for the "
                    "deepest stack, from its last block down: (2/3)^{(L−l)/2} for Post-LN, the "
                    "same in all blocks for Pre-LN."
                ),
                panels=[_profile_panel(side[title]) for title in own[0] for side in own],
            )
        )
    ends = StudyFigure.of_panels(
        name="ends",
        title="First and last block of encoders over depth",
        caption=(
            "Measured and predicted. The claim for Pre-LN is that all parameters fall as 1/√L; for "
            "Post-LN that the last block's stay and the first block's have the factor "
            "(2/3)^{(L−1)/2}. Claims start at the shallowest stack's W₂."
        ),
        panels=[
            _end_panel(by_case(side)["encoder"], block) for block in (0, -1) for side in (post, pre)
        ],
    )
    return [*made, ends]


def _title(one: Profile) -> str:
    return named(one.placement).title


def _claimed(one: Profile) -> Floats:
    """Appendix F's profile, relative to the last block's."""
    profiles = {POST: paper.post_ln_gradient_profile, PRE: paper.pre_ln_gradient_profile}
    return np.array(profiles[one.placement](one.blocks))


def _profile_panel(profiles: Sequence[Profile]) -> Panel:
    series = []
    for hue, one in enumerate(profiles):
        label = f"L = {one.blocks}"
        series += _curves(
            label, hue, range(1, one.blocks + 1), one.norms_SL[W2], one.predicted_L[W2]
        )
    deepest = max(profiles, key=lambda p: p.blocks)
    claimed = _claimed(deepest) * deepest.norms_SL[W2][:, -1].mean()
    least = min(float(p.norms_SL[W2].min()) for p in profiles)
    series.append(_cut("claimed, deepest stack", range(1, deepest.blocks + 1), claimed, least))
    title = f"{_title(deepest)}, {deepest.case.title}"
    return Panel(title=title, xlabel="block l", ylabel="‖∂L/∂W₂‖", series=series, log_y=True)


def _end_panel(profiles: Sequence[Profile], block: int) -> Panel:
    """block: 0 for the first, -1 for the last."""
    depths, first = [p.blocks for p in profiles], profiles[0]
    series, least = [], np.inf
    for hue, (name, letter) in enumerate(LETTERS.items()):
        norms_SX = np.stack([p.norms_SL[name][:, block] for p in profiles], 1)
        series += _curves(
            letter, hue, depths, norms_SX, [p.predicted_L[name][block] for p in profiles]
        )
        least = min(least, float(norms_SX.min()))
    factors = {
        POST: [_claimed(p)[block] / _claimed(first)[block] for p in profiles],
        PRE: [(first.blocks / p.blocks) ** 0.5 for p in profiles],
    }
    claimed = first.norms_SL[W2][:, block].mean() * np.array(factors[first.placement])
    return Panel(
        title=f"{_title(first)}, {'first' if block == 0 else 'last'} block",
        xlabel="blocks L",
        ylabel="‖∂L/∂W‖",
        series=[*series, _cut("claimed for W₂", depths, claimed, least)],
        log_x=True,
        log_y=True,
    )


def _curves(
    label: str, hue: int, x: Sequence[int], norms_SX: Floats, predicted_X: Any
) -> list[Series]:
    found = estimate(norms_SX)
    return [
        measured(f"measured, {label}", hue, x, found.mean, found.half_width),
        line(f"predicted, {label}", "predicted", hue, x, predicted_X),
    ]


def _cut(label: str, x: Sequence[int], claimed_X: Floats, least: float) -> Series:
    y = [value if value > _CUT * least else None for value in claimed_X.tolist()]
    return Series(label=label, kind="claimed", hue=-1, x=list(x), y=y)


def _cases_of(profiles: Sequence[Profile], stack: str) -> dict[str, list[Profile]]:
    """Returns by case the profiles whose gradients are those of this stack."""
    return by_case([one for one in profiles if one.case.looked_at == stack])


def _exponents(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """Returns the exponents of the ends' gradients over the number of blocks, as `over_depth` has
    them.
    """
    ends = {"first": over_depth(profiles, 0), "last": over_depth(profiles, -1)}
    found = []
    for case in by_case(profiles):
        for end, exponents in ends.items():
            by_name = by_names(exponents[case], LETTERS)
            found.append(
                {
                    "placement": profiles[0].placement,
                    "case": case,
                    "block": end,
                    "exponents": {name: plain_estimate(one) for name, one in by_name.items()},
                }
            )
    return found


def _data(one: Profile) -> dict[str, Any]:
    return {
        "placement": one.placement,
        "case": one.case.title,
        "blocks": one.blocks,
        "slope": {name: plain_estimate(one.slope(name)) for name in LETTERS},
        "relative": plain_estimate(one.relative),
        "over_predicted": plain_estimate(one.over_predicted),
        "cross_share": one.cross_share,
        "gradient_norm": {
            name: plain_estimate(estimate(norms_SL)) for name, norms_SL in one.norms_SL.items()
        },
        "predicted": one.predicted_L,
    }


def _expected(post: Sequence[Profile], pre: Sequence[Profile]) -> dict[str, Any]:
    """Returns what measurements are held against."""
    return {
        "paper": {
            "factor_per_block": paper.post_ln_gradient_profile(2)[0],
            "slope_per_block": DECAY,
        },
        "corrected_slopes": [
            {"case": p.case.title, "blocks": p.blocks, "slope": p.expected_slope} for p in post
        ],
        "corrected_profiles": [
            {"case": p.case.title, "blocks": p.blocks, "relative": pre_profile(p)}
            for p in pre
            if p.case.stack == "encoder"
        ],
        "first_block_over_post_ln": [
            {"case": case, "blocks": blocks, "ratio": ratio}
            for (case, blocks), ratio in first_over_post(pre, post).items()
        ],
    }


def _conditions(config: ExtendedTheoryConfig) -> dict[str, str]:
    return {
        "gradient": (
            "Frobenius norm of the gradient of the mean cross-entropy per target token of one "
            "sequence; root mean square over the sequences of a draw"
        ),
        "logarithm": "natural; losses are in nats, and slopes are of natural logarithms",
        "tokens": (
            f"{config.tokens} of each sequence, of source and target alike; where said so, one"
        ),
        "seeds and spread": (
            f"{config.seeds} draws of weights, six sequences of each; ± and bands are 95 % "
            "intervals of the mean over seeds (Student's t), slopes and exponents fitted seed by "
            "seed"
        ),
        "model": (
            f"before any update, d = {config.width}. Theory's setting: one head, square matrices "
            "from N(0, 1/d), W_Q = W_K = 0, tokens from N(0, 1), output rows from N(0, 1/d). The "
            "paper's model: four heads, inner width 2d, fairseq's weights of 2019, sinusoids, "
            "output rows tied to the embedding; no dropout or label smoothing"
        ),
        "words": f"{config.vocabulary:,}, targets at random",
    }


_SMOKE = {
    "encoder_depths": (2, 4),
    "decoder_depths": (2, 3),
    "width": 16,
    "seeds": 2,
    "tokens": 3,
    "vocabulary": 64,
}
STUDY = Study(
    title="Appendix F: the gradients of the lower layers",
    question=(
        "Does the gradient of Post-LN's lower layers fall exponentially, is Pre-LN's the same in "
        "every layer, and are all of Pre-LN's parameters normalised by √L?"
    ),
    help="Do lower layers' gradients fall as appendix F says?",
    scales=scales(ExtendedTheoryConfig, smoke=_SMOKE, paper={"seeds": 48}),
    run=run,
)
