"""Judges what papers say of changes over depth and of Jacobians, and what is predicted of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number, percentage, significant

from ..engine.claims import around, claim, judged
from ..engine.estimates import Floats, estimate, jackknife, with_interval
from ..engine.page import Claim
from .config import AmplificationConfig
from .measure import ALL, MATRICES, RANDOM

SUBLAYERS_A_BLOCK = 2
UPDATE_TITLES = {RANDOM: "a random change", "sgd": "SGD", "adam": "Adam", "muon": "Muon"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedOrder:
    """States an order that a paper gives a placement, of the number of its sub-layers."""

    words: str
    power: float | None
    """The exponent; None for the logarithm."""
    of: tuple[str, ...]
    """Kinds of updates that the source speaks of."""
    source: str

    def growth(self, depths: Sequence[int]) -> Floats:
        """Returns the growth over the first of these depths in blocks, (depths,)."""
        sublayers = SUBLAYERS_A_BLOCK * np.asarray(depths, dtype=np.float64)
        grown = np.log(sublayers) if self.power is None else sublayers**self.power
        relative: Floats = grown / grown[0]
        return relative

    def exponent(self, depths: Sequence[int]) -> float:
        """Returns the slope of its logarithm over that of the depth, over these depths."""
        return slope(depths, self.growth(depths))


_LIU = "Liu et al. 2020, arXiv:2004.08249"
ORDERS: Mapping[str, StatedOrder] = MappingProxyType(
    {
        "post-ln": StatedOrder(
            words="N", power=1.0, of=(RANDOM,), source=f"{_LIU}, theorem 2 and corollary 2"
        ),
        "pre-ln": StatedOrder(
            words="log N", power=None, of=(RANDOM,), source=f"{_LIU}, theorem 2 and corollary 1"
        ),
        "admin": StatedOrder(
            words="log N", power=None, of=(RANDOM,), source=f"{_LIU}, section 5, of Admin"
        ),
        "deepnorm": StatedOrder(
            words="1",
            power=0.0,
            of=("sgd",),
            source="Wang et al. 2022, arXiv:2203.00555, section 4, of a step of SGD",
        ),
    }
)
"""Orders of E‖δy‖², the squared change of the output, N being the number of sub-layers. DeepNorm's
is stated of the norm, whose square has the same order.
"""


def slope(depths: Sequence[int], values: Floats) -> float:
    """Fits the slope of ln values over ln depths, by least squares."""
    x = np.log(np.asarray(depths, dtype=np.float64))
    centred = x - x.mean()
    return float(centred @ np.log(values) / (centred @ centred))


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthGrowth:
    """The output's change by one kind of update, over the depth of one placement's stacks."""

    placement: str
    update: str
    moved: str
    """`MATRICES` or `ALL`."""
    depths: Sequence[int]
    output: Floats
    """E‖δy‖² / d at a rate of 1, (draws, depths)."""
    stream: Floats
    """The same of the state after l = 1 … L blocks of the deepest stacks, (draws, L)."""
    predicted: Floats | None = None
    """The prediction of `output`, (depths,); None where theory does not follow."""
    predicted_stream: Floats | None = None

    @property
    def title(self) -> str:
        """The update, and what it moves where that is more than what proofs are about."""
        more = " with norms and shifts" if self.moved == ALL else ""
        return f"{UPDATE_TITLES[self.update]}{more}"

    @property
    def exponent(self) -> Estimate:
        """Fits the exponent of the depth, of the mean over draws, which proofs and predictions
        speak of; its interval by leaving out a draw at a time.
        """
        return jackknife(list(self.output), lambda draws: slope(self.depths, np.mean(draws, 0)))

    @property
    def predicted_exponent(self) -> float | None:
        return None if self.predicted is None else slope(self.depths, self.predicted)


Spectra = Mapping[tuple[str, int], Sequence[Floats]]
"""All singular values of each draw's Jacobian, falling, by placement and depth."""


def claims(
    config: AmplificationConfig, grown: Sequence[DepthGrowth], spectra: Spectra
) -> list[Claim]:
    """Judges orders as they are stated and those of other updates, predictions, and Jacobians."""
    made = []
    for placement, order in ORDERS.items():
        own = [one for one in grown if one.placement == placement]
        stated = [one for one in own if one.update in order.of and one.moved == MATRICES]
        others = [one for one in own if one not in stated]
        made += _order(config, placement, stated, "as stated", order.source)
        said = " and ".join(UPDATE_TITLES[one] for one in order.of)
        made += _order(
            config, placement, others, "other changes", f"not in the source, which has {said}"
        )
    for update in config.updates:
        known = [one for one in grown if one.update == update and one.predicted is not None]
        if known:
            made += [_exponents(config, update, known), _streams(config, update, known)]
    return [
        *made,
        *_isometry(spectra),
        *_vanishing(config, spectra),
        *_conditioned(config, spectra),
    ]


def _order(
    config: AmplificationConfig,
    placement: str,
    grown: Sequence[DepthGrowth],
    which: str,
    source: str,
) -> list[Claim]:
    """Judges the order that a placement is stated to have; no claim where nothing was measured of
    it.
    """
    if not grown:
        return []
    order, title = ORDERS[placement], named(placement).title
    power = order.exponent(config.depths)
    return [
        claim(
            f"{title}: O({order.words}), {which}",
            f"The mean squared change of {title}'s output by one small change of its weights grows "
            f"with the number N of sub-layers as {order.words}: over {_span(config.depths)} blocks "
            f"with an exponent within {config.edge:g} of {number(power, 2)}.",
            source=source,
            value=_EXPONENT,
            holds={one.title: one.exponent for one in grown},
            shown=_shown,
            **around(power, config.edge),
        )
    ]


def _exponents(config: AmplificationConfig, update: str, known: Sequence[DepthGrowth]) -> Claim:
    predicted = {_titled(one): one.predicted_exponent or 0.0 for one in known}
    told = "; ".join(f"{title}: {number(value, 2)}" for title, value in predicted.items())
    return claim(
        f"Exponents are predicted, {UPDATE_TITLES[update]}",
        "The exponent of depth that a placement's formula gives, without a model, is the measured "
        f"one, within {config.edge:g}: of the change of the output over {_span(config.depths)} "
        "blocks.",
        source=_PREDICTED,
        value=_EXPONENT,
        holds={_titled(one): one.exponent for one in known},
        shown=_shown,
        beside=f"Predicted: {told}",
        **around(predicted, config.edge),
    )


def _streams(config: AmplificationConfig, update: str, known: Sequence[DepthGrowth]) -> Claim:
    """Judges all blocks together: draws of deep stacks differ by factors, and of many places one by
    one some would be off by chance.
    """
    limit = config.limit_percent
    return claim(
        f"The stream's change is predicted, {UPDATE_TITLES[update]}",
        "The prediction from a placement's formula gives the change of the stream in stacks of "
        f"{config.depths[-1]} blocks, on average over their blocks, within {limit:g} %.",
        source=_PREDICTED,
        value="measured over predicted, the mean over blocks",
        holds={_titled(one): estimate(over_predicted(one)) for one in known},
        shown=_shown,
        **around(1.0, limit / 100),
    )


def over_predicted(one: DepthGrowth) -> Floats:
    """Returns the stream's change over its prediction, of each draw the mean over blocks,
    (draws,).
    """
    assert one.predicted_stream is not None
    there = one.predicted_stream > 0
    found: Floats = (one.stream[:, there] / one.predicted_stream[there]).mean(1)
    return found


ISOMETRIC: Mapping[str, str] = MappingProxyType(
    {"rezero": "Bachlechner et al. 2020, arXiv:2003.04887, section 3, dynamical isometry"}
)
"""Placements of which a source says that all singular values are 1 before training, and where."""
_ROUNDING = 1e-9
"""The rounding of a product of Jacobians in float64."""


def _isometry(spectra: Spectra) -> list[Claim]:
    made = []
    for placement, source in ISOMETRIC.items():
        off = {}
        for (name, blocks), draws in spectra.items():
            if name == placement:
                off[blocks] = max(float(np.abs(values - 1).max()) for values in draws)
        if off:
            largest = max(off.values())
            made.append(
                judged(
                    name=f"{named(placement).title}: dynamical isometry",
                    statement=(
                        "Before training all singular values of the input-output Jacobian are 1, "
                        "at every depth."
                    ),
                    source=source,
                    found=(
                        f"Of all draws at {_span(list(off))} blocks the farthest is "
                        f"{significant(largest, 2)} from 1."
                    ),
                    holds={_blocks(blocks): value < _ROUNDING for blocks, value in off.items()},
                )
            )
    return made


VANILLA = "post-ln"
"""The placement that Bachlechner et al. 2020 call the vanilla Transformer."""
_PEAK, _PEAKED = 2.0, 0.5
"""Within this factor of 1 at least this share of singular values, for them to peak about it."""
PRECISION = 2.0**-23
"""Float32's: beside the largest, such a singular value is none."""
_LARGE_NUMBER = 0.1
_WELL_CONDITIONED = 0.9


def near_one(values: Floats) -> float:
    """Returns the share of singular values within a factor of 2 of 1."""
    return float(((values > 1 / _PEAK) & (values < _PEAK)).mean())


def vanished(values: Floats) -> float:
    """Returns the share of singular values below float32's precision beside the largest."""
    return float((values < PRECISION * values.max()).mean())


def _vanishing(config: AmplificationConfig, spectra: Spectra) -> list[Claim]:
    """Judges Post-LN: shallow stacks, and the deepest."""
    first, last = config.jacobian_depths[0], config.jacobian_depths[-1]
    if (VANILLA, first) not in spectra:
        return []
    source = "Bachlechner et al. 2020, arXiv:2003.04887, section 5, of the vanilla Transformer"
    title = named(VANILLA).title
    # Every token's mean and length are gone after a norm, whatever stood before it.
    taken = 2 / config.jacobian_width
    return [
        claim(
            f"{title}: a shallow stack is near isometry",
            f"In stacks of {first} blocks the singular values of the Jacobian peak about 1: at "
            f"least {percentage(_PEAKED, 0)} lie within a factor of {_PEAK:g} of it.",
            source=source,
            value="share of singular values there",
            holds={_blocks(first): estimate([near_one(one) for one in spectra[VANILLA, first]])},
            least=_PEAKED,
        ),
        claim(
            f"{title}: in a deep stack singular values vanish",
            f"In stacks of {last} blocks a large number of singular values vanish to machine "
            f"precision: beside the {percentage(taken, 1)} that the last norm takes, at least "
            f"{percentage(_LARGE_NUMBER, 0)} of all are below 2⁻²³ of the largest.",
            source=source,
            value="share of singular values below, beside those",
            holds={
                _blocks(last): estimate([vanished(one) - taken for one in spectra[VANILLA, last]])
            },
            least=_LARGE_NUMBER,
        ),
    ]


def _conditioned(config: AmplificationConfig, spectra: Spectra) -> list[Claim]:
    """Judges all that are not made to be isometric, in the deepest stacks."""
    last = config.jacobian_depths[-1]
    others = [name for name in config.placements if name not in ISOMETRIC]
    if not others:
        return []
    shares = {}
    for name in others:
        shares[named(name).title] = estimate([near_one(one) for one in spectra[name, last]])
    return [
        claim(
            "Others are well-conditioned before training",
            f"In stacks of {last} blocks at least {percentage(_WELL_CONDITIONED, 0)} of the "
            f"Jacobian's singular values lie within a factor of {_PEAK:g} of 1.",
            source="summaries of the field, of Pre-LN, whose skip path is the identity",
            value="share of singular values there",
            holds=shares,
            least=_WELL_CONDITIONED,
        )
    ]


_EXPONENT = "exponent of depth"
_PREDICTED = "corrected: normscope predict --update"


def _titled(one: DepthGrowth) -> str:
    return named(one.placement).title


def _span(depths: Sequence[int]) -> str:
    return f"{depths[0]} to {depths[-1]}"


def _blocks(depth: int) -> str:
    return f"{depth} blocks"


def _shown(found: Estimate) -> str:
    return with_interval(found, 2)
