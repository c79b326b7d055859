"""What the paper says of figure 6, and what the curves say."""

from normscope.evidence.estimates import estimate, with_interval
from normscope.evidence.judging import between
from normscope.measure import Estimate
from normscope.report.words import number

from ..engine.claims import judged
from ..engine.page import Claim
from ..translation.arms import Arm
from ..translation.comparing import caveat, finals, several
from ..translation.curves import Curves
from ..translation.trained import Trained
from .config import Figure6Config

_SOURCE = "Xiong et al. 2020, appendix H and figure 6"
_OURS = "not in the paper, whose large rate without warm-up hardly has a rate"


def claims(config: Figure6Config, found: Trained) -> list[Claim]:
    return [_better_than_without(config, found), _worse_than_with(config, found), _size_not_sum(config, found)]


def times(config: Figure6Config) -> dict[str, int]:
    """When the small rate is looked at, in updates: where the others end, and where it ends itself."""
    ends = {config.epochs: config.updates, config.small_epochs: config.small.updates}
    return {f"after {epochs} epochs": updates for epochs, updates in ends.items()}


def small_less(config: Figure6Config, other: Arm, curves: Curves, *, update: int) -> Estimate:
    """The loss of the small rate at that update less the last one of another arm, in nats, over seeds in pairs."""
    small = [curve.nats_at(update) if curve.ended == "finished" else curve.first_nats for curve in curves[config.small]]
    return estimate([a - b for a, b in zip(small, finals(curves, other), strict=True)])


def _better_than_without(config: Figure6Config, found: Trained) -> Claim:
    parts, holds = [], {}
    for when, update in times(config).items():
        difference = small_less(config, config.without, found.curves, update=update)
        holds[when] = between(difference, greatest=0.0)
        parts.append(f"{when}: {with_interval(difference)}")
    return judged(
        name="a small fixed rate does better than a large one without warm-up",
        statement=f"Without warm-up, Post-LN at the fixed rate {config.small_lr:g} ends lower than at "
        f"{config.peak_lr:g} on the paper's schedule.",
        source=_SOURCE,
        found=f"the small rate's loss less the other's last one, in nats: {'; '.join(parts)}. {_ends(config, found)}",
        holds=holds,
    )


def _worse_than_with(config: Figure6Config, found: Trained) -> Claim:
    parts, holds = [], {}
    for when, update in times(config).items():
        difference = small_less(config, config.long, found.curves, update=update)
        holds[when] = between(difference, least=0.0)
        parts.append(f"{when}: {with_interval(difference)}")
    return judged(
        name="a small fixed rate does worse than warm-up",
        statement=f"Without warm-up, Post-LN at the fixed rate {config.small_lr:g} ends higher than at "
        f"{config.peak_lr:g} with warm-up.",
        source=_SOURCE,
        found=f"the small rate's loss less the other's last one, in nats: {'; '.join(parts)}.{caveat(found.curves)}",
        holds=holds,
    )


def _size_not_sum(config: Figure6Config, found: Trained) -> Claim:
    others = {"that decays as with warm-up": config.controlled_without, "that stays": config.fixed}
    parts, holds = [], {}
    for words, arm in others.items():
        difference = small_less(config, arm, found.curves, update=config.updates)
        holds[f"a large rate {words}"] = between(difference, greatest=0.0)
        parts.append(f"a large rate {words}: {with_interval(difference)}")
    return judged(
        name="it is the size of the rate",
        statement=f"After as many updates and without warm-up, Post-LN at the fixed rate {config.small_lr:g} ends "
        f"lower than at {config.peak_lr:g}, also where that sums up to more than with warm-up.",
        source=_OURS,
        found=f"the small rate's loss less the other's last one, in nats: {'; '.join(parts)}.{caveat(found.curves)}",
        holds=holds,
    )


def _ends(config: Figure6Config, found: Trained) -> str:
    large, unigram = several(finals(found.curves, config.without)), number(found.unigram(config.without))
    return (
        f"Last losses: {several(finals(found.curves, config.small))} and {large} nats; the unigram baseline is "
        f"{unigram}.{caveat(found.curves)}"
    )
