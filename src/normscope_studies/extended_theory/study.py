"""Appendix F: how gradients of the lower layers' matrices compare with those of the last layer's."""

# S = seeds, L = blocks

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from normscope.evidence.estimates import estimate, plain_estimate
from normscope.theory.predict import ModelSetting

from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory import paper
from . import ABOUT
from .claims import DECAY, at_depth, by_case, claims, expected_slope, first_over_post, pre_profile
from .figures import figures, tables
from .measure import LETTERS, measured
from .profiles import CASES, Case, Profile, profile

POST, PRE = "post-ln", "pre-ln"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedTheoryConfig:
    """Stacks before any update. Raises ValueError for what cannot be drawn or fitted."""

    encoder_depths: tuple[int, ...]
    """Blocks of encoders."""
    decoder_depths: tuple[int, ...]
    """Blocks of decoders, and of the encoders before them."""
    width: int
    seeds: int
    tokens: int = 16
    """Of every sequence, but where one token is studied."""
    vocabulary: int = 4096

    def __post_init__(self) -> None:
        for name, depths in (("encoder_depths", self.encoder_depths), ("decoder_depths", self.decoder_depths)):
            if len(depths) < 2 or depths[0] < 2 or any(a >= b for a, b in pairwise(depths)):
                raise ValueError(f"{name} must be two or more rising numbers from 2 on, got {depths}")
        if self.width % 4 or self.width < 8:
            raise ValueError(f"width must be a multiple of 4, for the paper's heads, and at least 8, got {self.width}")
        for name, least in {"seeds": 2, "tokens": 2}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.vocabulary < self.tokens + 2:
            raise ValueError(f"vocabulary must be at least tokens + 2, for tokens that differ, got {self.vocabulary}")

    def depths(self, case: Case) -> tuple[int, ...]:
        """Of a case's stacks."""
        return self.encoder_depths if case.stack == "encoder" else self.decoder_depths


CPU = ExtendedTheoryConfig(encoder_depths=(6, 12, 24, 48), decoder_depths=(6, 12, 24), width=512, seeds=20)
SCALES = {
    "smoke": Scale(
        config=ExtendedTheoryConfig(
            encoder_depths=(2, 4), decoder_depths=(2, 3), width=16, seeds=2, tokens=3, vocabulary=64
        ),
        decides=False,
    ),
    "cpu": Scale(config=CPU),
    "paper": Scale(config=ExtendedTheoryConfig(**{**asdict(CPU), "seeds": 48})),
}


def run(config: ExtendedTheoryConfig, pieces: Pieces) -> Findings:
    """Measure what is missing, predict, and judge."""
    post, pre = (list(_profiles(placement, config, pieces)) for placement in (POST, PRE))
    return Findings(
        conditions=_conditions(config),
        claims=claims(post, pre),
        figures=figures(post, pre),
        tables=tables(post, pre),
        data={
            "profiles": [_data(one) for one in (*post, *pre)],
            "over_depth": _over_depth({POST: post, PRE: pre}),
            "expected": _expected(post, pre),
        },
    )


def _profiles(placement: str, config: ExtendedTheoryConfig, pieces: Pieces) -> Iterator[Profile]:
    """Every case at every depth."""
    names = [(key, depth) for key, case in CASES.items() for depth in config.depths(case)]
    seeds = []
    for done in range(config.seeds):
        pieces.watch(placement, done, config.seeds)
        seeds.append(_seed(placement, names, config, done + 1, pieces))
    pieces.watch(placement, config.seeds, config.seeds)
    for key, depth in names:
        norms = [seed[f"{key}-{depth}"] for seed in seeds]
        norms_SL = {name: np.array([one[name] for one in norms], dtype=np.float64) for name in LETTERS}
        yield profile(placement, CASES[key], _model(key, depth, config), norms_SL)


def _seed(
    placement: str, names: list[tuple[str, int]], config: ExtendedTheoryConfig, seed: int, pieces: Pieces
) -> dict[str, Any]:
    """One draw of every case and depth: by matrix, block by block."""
    models = {f"{key}-{depth}": (_model(key, depth, config), CASES[key].looked_at) for key, depth in names}
    asked = {
        "placement": placement,
        "seed": seed,
        "stacks": {name: [asdict(model), stack] for name, (model, stack) in models.items()},
    }
    return pieces.get(f"{placement}/seed-{seed}", asked, measured, placement, models, seed)  # type: ignore[no-any-return]


def _model(key: str, depth: int, config: ExtendedTheoryConfig) -> ModelSetting:
    return CASES[key].model(blocks=depth, width=config.width, tokens=config.tokens, vocabulary=config.vocabulary)


def _conditions(config: ExtendedTheoryConfig) -> list[tuple[str, str]]:
    return [
        ("gradient", "Frobenius norm of the gradient of the mean cross-entropy per target token of one sequence; root "
         "mean square over the sequences of a draw"),
        ("logarithm", "natural; losses are in nats, and slopes are of natural logarithms"),
        ("tokens", f"{config.tokens} of each sequence, of source and target alike; where said so, one"),
        ("seeds and spread", f"{config.seeds} draws of weights, six sequences of each; ± and bands are 95 % intervals "
         "of the mean over seeds (Student's t), slopes and exponents fitted seed by seed"),
        ("model", f"before any update, d = {config.width}. Theory's setting: one head, square matrices from N(0, 1/d), "
         "W_Q = W_K = 0, tokens from N(0, 1), output rows from N(0, 1/d). The paper's model: four heads, inner width "
         "2d, fairseq's weights of 2019, sinusoids, output rows tied to the embedding; no dropout or label smoothing"),
        ("words", f"{config.vocabulary:,}, targets at random"),
    ]  # fmt: skip


def _data(one: Profile) -> dict[str, Any]:
    return {
        "placement": one.placement,
        "case": one.case.title,
        "blocks": one.blocks,
        "slope": {name: plain_estimate(one.slope(name)) for name in LETTERS},
        "relative": plain_estimate(one.relative),
        "over_predicted": plain_estimate(one.over_predicted),
        "cross_share": one.cross_share,
        "gradient_norm": {name: plain_estimate(estimate(norms_SL)) for name, norms_SL in one.norms_SL.items()},
        "predicted": one.predicted_L,
    }


def _expected(post: Sequence[Profile], pre: Sequence[Profile]) -> dict[str, Any]:
    """What measurements are held against."""
    ratios = first_over_post(pre, post)
    return {
        "paper": {"factor_per_block": paper.post_ln_gradient_profile(2)[0], "slope_per_block": DECAY},
        "corrected_slopes": [{"case": p.case.title, "blocks": p.blocks, "slope": expected_slope(p)} for p in post],
        "corrected_profiles": [
            {"case": p.case.title, "blocks": p.blocks, "relative": pre_profile(p)}
            for p in pre
            if p.case.stack == "encoder"
        ],
        "first_block_over_post_ln": [
            {"case": case.title, "blocks": blocks, "ratio": ratio} for (case, blocks), ratio in ratios.items()
        ],
    }


def _over_depth(profiles: Mapping[str, list[Profile]]) -> list[dict[str, Any]]:
    """Exponents of the first and the last block's gradients over the number of blocks."""
    return [
        {
            "placement": placement,
            "case": title,
            "block": end,
            "exponents": {name: plain_estimate(e) for name, e in at_depth(own, list(LETTERS), at).items()},
        }
        for placement, found in profiles.items()
        for title, own in by_case(found).items()
        for end, at in (("first", 0), ("last", -1))
    ]


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
