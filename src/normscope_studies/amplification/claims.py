"""What papers say of the change by one update, judged."""

from collections.abc import Sequence

from normscope.evidence.estimates import with_interval
from normscope.evidence.judging import between, lies_within
from normscope.placement import named
from normscope.report.words import number

from ..engine.claims import judged
from ..engine.page import Claim
from .config import RANDOM, AmplificationConfig
from .grown import ORDERS, Grown

TITLES = {RANDOM: "a random update", "sgd": "SGD", "adam": "Adam", "lion": "Lion", "muon": "Muon"}


def claims(config: AmplificationConfig, grown: Sequence[Grown]) -> list[Claim]:
    """One for each placement of which a paper states the order, and one for each kind of update on independence."""
    made = [_order(config, placement, grown) for placement in ORDERS if placement in config.placements]
    made += [_predicted(config, update, grown) for update in config.updates if _known(update, grown)]
    return [*made, *(_independent(config, update, grown) for update in config.alone_of)]


def _known(update: str, grown: Sequence[Grown]) -> list[tuple[Grown, float]]:
    """Those of an update whose exponent theory predicts."""
    return [(one, one.predicted) for one in grown if one.update == update and one.predicted is not None]


def _predicted(config: AmplificationConfig, update: str, grown: Sequence[Grown]) -> Claim:
    known = _known(update, grown)
    return judged(
        name=f"Predicted without a model, {TITLES[update]}",
        statement="The exponent of depth that the formula alone gives is the measured one, within "
        f"{config.edge:g}: of the output's change by a first update, {config.depths[0]} to {config.depths[-1]} blocks.",
        source="NormScope: normscope predict --update",
        found="; ".join(
            f"{named(one.placement).title} {with_interval(one.exponent, 2)}, predicted {number(predicted, 2)}"
            for one, predicted in known
        ),
        holds={
            named(one.placement).title: lies_within(one.exponent, predicted, config.edge) for one, predicted in known
        },
    )


def _order(config: AmplificationConfig, placement: str, grown: Sequence[Grown]) -> Claim:
    order, title = ORDERS[placement], named(placement).title
    own = [one for one in grown if one.placement == placement]
    power = order.exponent(config.depths)
    return judged(
        name=f"{title}: O({order.words})",
        statement=f"The mean squared change of {title}'s output by one update grows with the depth as {order.words}, "
        f"{config.depths[0]} to {config.depths[-1]} blocks with an exponent within {config.edge:g} of {power:.2f}.",
        source=order.source,
        found="; ".join(f"{TITLES[one.update]} {with_interval(one.exponent, 2)}" for one in own),
        holds={TITLES[one.update]: lies_within(one.exponent, power, config.edge) for one in own},
    )


def _independent(config: AmplificationConfig, update: str, grown: Sequence[Grown]) -> Claim:
    title, edge = TITLES[update], config.sum_edge
    what = title if update == RANDOM else f"an update of {title}"
    own = [(named(one.placement).title, one.alone) for one in grown if one.update == update and one.alone is not None]
    return judged(
        name=f"Independent changes, {title}",
        statement=f"The squared change of the output by {what} is the "
        f"sum of those that each block's change makes alone, within {edge:g} of it, at {config.alone_blocks} blocks.",
        source="Liu et al. 2020, arXiv:2004.08249, theorem 2",
        found="sum over the change: " + "; ".join(f"{name} {with_interval(alone, 2)}" for name, alone in own),
        holds={name: between(alone, 1 - edge, 1 + edge) for name, alone in own},
    )
