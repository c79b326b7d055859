"""Gradients of the lower layers over depth: what appendix F claims, what is predicted, what is measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate, plain_estimate, with_interval
from normscope.placement import named
from normscope.report.chart import Panel, Series
from normscope.theory.predict import ModelSetting

from ..engine.page import StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory import paper
from . import ABOUT
from .claims import DECAY, Profile, at_depth, by_case, claims, expected_slope, first_over_post, pre_profile, profile
from .measure import CASES, LETTERS, W2, StackCase, measured

_INK = -1
_CUT = 0.3
"""Claimed curves end where they fall below this times all that was measured in their panel."""


def figures(post: Sequence[Profile], pre: Sequence[Profile]) -> list[StudyFigure]:
    """Profiles of encoders, of decoders, and the two ends over depth."""
    found = []
    for stack, one in (("encoder", "Encoders"), ("decoder", "Decoders")):
        own = [[p for p in side if p.case.looked_at == stack] for side in (post, pre)]
        panels = [_profile_panel(by_case(side)[title]) for title in by_case(own[0]) for side in own]
        title = f"{one}: the gradient of every block's W₂"
        caption = (
            "Measured with its 95 % interval, predicted, and appendix F's claim for the deepest stack, from its last "
            "block down: (2/3)^{(L−l)/2} for Post-LN, the same in all blocks for Pre-LN."
        )
        found.append(
            StudyFigure.of_panels(name=f"{stack}s", title=title, caption=caption, panels=panels, told=title, wide=True)
        )
    title = "First and last block of encoders over depth"
    ends = [_end_panel(by_case(side)["encoder"], block) for block in (0, -1) for side in (post, pre)]
    caption = (
        "Measured and predicted. The claim for Pre-LN is that all parameters fall as 1/√L; for Post-LN that the last "
        "block's stay and the first block's have the factor (2/3)^{(L−1)/2}. Claims start at the shallowest stack's W₂."
    )
    return [
        *found,
        StudyFigure.of_panels(name="ends", title=title, caption=caption, panels=ends, told=title, wide=True),
    ]


def _title(one: Profile) -> str:
    return named(one.placement).title


def _claimed(one: Profile) -> Floats:
    """Appendix F's profile, relative to the last block's."""
    profiles = {"post-ln": paper.post_ln_gradient_profile, "pre-ln": paper.pre_ln_gradient_profile}
    return np.array(profiles[one.placement](one.blocks))


def _profile_panel(profiles: Sequence[Profile]) -> Panel:
    deepest = max(profiles, key=lambda p: p.blocks)
    least = min(float(p.norms_SL[W2].min()) for p in profiles)
    claimed = _claimed(deepest) * deepest.norms_SL[W2][:, -1].mean()
    return Panel(
        title=f"{_title(deepest)}, {deepest.case.title}",
        xlabel="block l",
        ylabel="‖∂L/∂W₂‖",
        series=[
            *(series for hue, p in enumerate(profiles) for series in _curves(p, hue)),
            Series(
                label="claimed, deepest stack",
                kind="claimed",
                hue=_INK,
                x=_blocks(deepest),
                y=[value if value > _CUT * least else None for value in claimed.tolist()],
            ),
        ],
        log_y=True,
    )


def _curves(one: Profile, hue: int) -> Iterator[Series]:
    found = estimate(one.norms_SL[W2])
    yield _measured(f"measured, L = {one.blocks}", hue, _blocks(one), found.mean, found.low, found.high)
    predicted = one.predicted_L[W2].tolist()
    yield Series(label=f"predicted, L = {one.blocks}", kind="predicted", hue=hue, x=_blocks(one), y=predicted)


def _measured(label: str, hue: int, x: Sequence[int], mean: Floats, low: Floats, high: Floats) -> Series:
    return Series(label=label, kind="measured", hue=hue, x=x, y=mean.tolist(), low=low.tolist(), high=high.tolist())


def _blocks(one: Profile) -> list[int]:
    return list(range(1, one.blocks + 1))


def _end_panel(profiles: Sequence[Profile], block: int) -> Panel:
    """block: 0 for the first, -1 for the last."""
    depths = [p.blocks for p in profiles]
    series = []
    for hue, (name, letter) in enumerate(LETTERS.items()):
        found = estimate(np.stack([p.norms_SL[name][:, block] for p in profiles], 1))
        series.append(_measured(f"measured, {letter}", hue, depths, found.mean, found.low, found.high))
        predicted = [float(p.predicted_L[name][block]) for p in profiles]
        series.append(Series(label=f"predicted, {letter}", kind="predicted", hue=hue, x=depths, y=predicted))
    start = float(profiles[0].norms_SL[W2][:, block].mean())
    return Panel(
        title=f"{_title(profiles[0])}, {'first' if block == 0 else 'last'} block",
        xlabel="blocks L",
        ylabel="‖∂L/∂W‖",
        series=[*series, _claimed_end(profiles, block, start)],
        log_x=True,
        log_y=True,
    )


def _claimed_end(profiles: Sequence[Profile], block: int, start: float) -> Series:
    """From the shallowest stack's measured W₂ on."""
    first = profiles[0]
    factors = {
        "post-ln": lambda p: _claimed(p)[block] / _claimed(first)[block],
        "pre-ln": lambda p: (first.blocks / p.blocks) ** 0.5,
    }
    values = [start * float(factors[first.placement](p)) for p in profiles]
    least = min(float(p.norms_SL[name][:, block].min()) for p in profiles for name in LETTERS)
    return Series(
        label="claimed for W₂",
        kind="claimed",
        hue=_INK,
        x=[p.blocks for p in profiles],
        y=[value if value > _CUT * least else None for value in values],
    )


def tables(post: Sequence[Profile], pre: Sequence[Profile]) -> list[StudyTable]:
    """One row a stack: three blocks, and the slopes of all matrices; then how the ends go with depth."""
    found = []
    for side, claimed in ((post, f"{DECAY:.3f}"), (pre, "0")):
        blocks = ["first", "middle", "last"]
        found += [
            StudyTable(
                title=f"{_title(side[0])}: ‖∂L/∂W₂‖ by block",
                columns=["stack", "blocks", *blocks, *(f"predicted {block}" for block in blocks)],
                rows=[_row(p) for p in side],
            ),
            StudyTable(
                title=f"{_title(side[0])}: slope of ln ‖∂L/∂W‖ per block ({claimed} is claimed)",
                columns=["stack", "blocks", *LETTERS.values()],
                rows=[[p.case.title, p.blocks, *(with_interval(p.slope(name)) for name in LETTERS)] for p in side],
            ),
        ]
    return [*found, _exponents([*post, *pre])]


def _exponents(profiles: Sequence[Profile]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for placement in dict.fromkeys(_title(p) for p in profiles):
        for case, own in by_case(p for p in profiles if _title(p) == placement).items():
            for end, block in (("first", 0), ("last", -1)):
                found = at_depth(own, list(LETTERS), block).values()
                rows.append([placement, case, end, *(with_interval(exponent) for exponent in found)])
    return StudyTable(
        title="Exponents of ‖∂L/∂W‖ over L: −½ is 1/√L (encoders without their shallowest depth)",
        columns=["placement", "stack", "block", *LETTERS.values()],
        rows=rows,
    )


def _row(one: Profile) -> list[str | float | None]:
    at = [0, one.blocks // 2 - 1, -1]
    return [one.case.title, one.blocks, *one.norms_SL[W2].mean(0)[at].tolist(), *one.predicted_L[W2][at].tolist()]


# S = seeds, L = blocks


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

    def depths(self, case: StackCase) -> tuple[int, ...]:
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
