"""The pictures and tables of the study of appendix F."""

from collections.abc import Iterator, Sequence

import numpy as np

from normscope.evidence.estimates import Floats, estimate, with_interval
from normscope.placement import named
from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure, StudyTable
from ..theory import paper
from .claims import DECAY, at_depth, by_case
from .measure import LETTERS, W2
from .profiles import Profile

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
