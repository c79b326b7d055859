"""How a change grows with depth, and what papers say of it, judged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from normscope.evidence.estimates import estimate, exponent, with_interval
from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import Update, fitted, output_changes

from ..engine.claims import claim
from ..engine.page import Claim
from .measure import RANDOM, AmplificationConfig, ChangesBySize


def predicted_exponent(config: AmplificationConfig, placement: str, update: str) -> float | None:
    """Of the output's change by a first update over the study's depths, for one sequence and infinitely wide stacks.

    None where theory does not follow.
    """
    model = replace(config.model(config.depths[0]), sequences=1)
    try:
        values = output_changes(placement, model, config.depths, Update(optimizer=update, rate=1.0)).get("encoder", [])
    except Unpredictable:
        return None
    found = fitted(config.depths, values).exponent if len(values) == len(config.depths) else math.nan
    return found if math.isfinite(found) else None


SUBLAYERS_A_BLOCK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishedOrder:
    """What a paper states of a placement."""

    power: float | None
    """Of the depth; None for its logarithm."""
    words: str
    source: str

    def exponent(self, depths: Sequence[int]) -> float:
        """The slope of the logarithm of the order over that of the depth, by least squares over these depths."""
        if self.power is not None:
            return self.power
        x = np.log(np.asarray(depths, dtype=np.float64))
        y = np.log(np.log(SUBLAYERS_A_BLOCK * np.asarray(depths, dtype=np.float64)))
        centred = x - x.mean()
        return float(centred @ y / (centred @ centred))

    def growth(self, depths: Sequence[int]) -> list[float]:
        """Over the first depth."""
        grown = [math.log(SUBLAYERS_A_BLOCK * n) if self.power is None else n**self.power for n in depths]
        return [value / grown[0] for value in grown]


_LIU = "Liu et al. 2020, arXiv:2004.08249"
ORDERS: Mapping[str, _PublishedOrder] = MappingProxyType(
    {
        "post-ln": _PublishedOrder(power=1.0, words="N", source=f"{_LIU}, section 4.1"),
        "pre-ln": _PublishedOrder(power=None, words="log N", source=f"{_LIU}, section 4.1"),
        "admin": _PublishedOrder(power=None, words="log N", source=f"{_LIU}, section 4.2"),
        "deepnorm": _PublishedOrder(
            power=0.0, words="1", source="Wang et al. 2022, arXiv:2203.00555, section 3.3, of SGD"
        ),
    }
)
"""Of the variance of the output's change by one update, N being the number of sub-layers. DeepNorm's is of its norm,
whose square has the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Of one placement and kind of update."""

    placement: str
    update: str
    exponent: Estimate
    """The change of the output goes as the number of blocks to this power."""
    predicted: float | None
    """The same power from the formula alone; None where theory does not follow."""
    logs: Sequence[Estimate]
    """Of the logarithm of the change, at each depth."""
    alone: Estimate | None
    """What the blocks' changes do alone, summed, over the change of all together; None where it was not asked."""


def growths(config: AmplificationConfig, found: ChangesBySize) -> list[Growth]:
    """Of every placement and update, in the order of the settings."""
    return [_grown(config, found, placement, update) for placement in config.placements for update in config.updates]


def _grown(config: AmplificationConfig, found: ChangesBySize, placement: str, update: str) -> Growth:
    at_depth = [[seed[update] for seed in found[placement, blocks]] for blocks in config.depths]
    outputs_SX = [[one["output"] for one in seed] for seed in zip(*at_depth, strict=True)]
    alone = None
    if update in config.alone_of:
        alone = estimate([seed[update]["alone"] for seed in found[placement, config.alone_blocks]])
    return Growth(
        placement=placement,
        update=update,
        exponent=exponent(config.depths, outputs_SX),
        predicted=predicted_exponent(config, placement, update),
        logs=[estimate([math.log(one["output"]) for one in seeds]) for seeds in at_depth],
        alone=alone,
    )


TITLES = {RANDOM: "a random update", "sgd": "SGD", "adam": "Adam", "lion": "Lion", "muon": "Muon"}


def claims(config: AmplificationConfig, grown: Sequence[Growth]) -> list[Claim]:
    """One for each placement of which a paper states the order, and one for each kind of update on independence."""
    made = [_order(config, placement, grown) for placement in ORDERS if placement in config.placements]
    made += [_predicted(config, update, known) for update in config.updates if (known := _known(update, grown))]
    return [*made, *(_independent(config, update, grown) for update in config.alone_of)]


def _known(update: str, grown: Sequence[Growth]) -> dict[str, tuple[Estimate, float]]:
    """By title: the exponents of an update, measured and predicted, of those that theory predicts."""
    return {
        named(one.placement).title: (one.exponent, one.predicted)
        for one in grown
        if one.update == update and one.predicted is not None
    }


def _predicted(config: AmplificationConfig, update: str, known: Mapping[str, tuple[Estimate, float]]) -> Claim:
    return claim(
        f"Predicted without a model, {TITLES[update]}",
        f"The exponent of depth that the formula alone gives is the measured one, within {config.edge:g}: of the "
        f"output's change by a first update, {config.depths[0]} to {config.depths[-1]} blocks.",
        source="NormScope: normscope predict --update",
        value=_EXPONENT,
        holds={title: found for title, (found, _) in known.items()},
        least={title: predicted - config.edge for title, (_, predicted) in known.items()},
        greatest={title: predicted + config.edge for title, (_, predicted) in known.items()},
        shown=_shown,
        beside="Predicted: " + "; ".join(f"{title}: {number(predicted, 2)}" for title, (_, predicted) in known.items()),
    )


def _order(config: AmplificationConfig, placement: str, grown: Sequence[Growth]) -> Claim:
    order, title = ORDERS[placement], named(placement).title
    power = order.exponent(config.depths)
    return claim(
        f"{title}: O({order.words})",
        f"The mean squared change of {title}'s output by one update grows with the depth as {order.words}, "
        f"{config.depths[0]} to {config.depths[-1]} blocks with an exponent within {config.edge:g} of {power:.2f}.",
        source=order.source,
        value=_EXPONENT,
        holds={TITLES[one.update]: one.exponent for one in grown if one.placement == placement},
        least=power - config.edge,
        greatest=power + config.edge,
        shown=_shown,
    )


def _independent(config: AmplificationConfig, update: str, grown: Sequence[Growth]) -> Claim:
    title, edge = TITLES[update], config.sum_edge
    what = title if update == RANDOM else f"an update of {title}"
    return claim(
        f"Independent changes, {title}",
        f"The squared change of the output by {what} is the sum of those that each block's change makes alone, within "
        f"{edge:g} of it, at {config.alone_blocks} blocks.",
        source=f"{_LIU}, theorem 2",
        value="sum over the change",
        holds={
            named(one.placement).title: one.alone for one in grown if one.update == update and one.alone is not None
        },
        least=1 - edge,
        greatest=1 + edge,
        shown=_shown,
    )


_EXPONENT = "exponent of depth"


def _shown(found: Estimate) -> str:
    return with_interval(found, 2)
