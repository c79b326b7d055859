"""What is hoped of numbers that move, and what the runs say."""

from collections.abc import Callable, Sequence

from normscope.evidence.estimates import with_interval
from normscope.evidence.judging import Answer, all_hold, between
from normscope.measure import Estimate

from ..engine.claims import judged
from ..engine.page import Claim
from .config import AdaptiveStudyConfig, Kind
from .families import POST, title
from .standing import Standing, difference

_ASKED = "not in a source; asked of all"


def claims(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> list[Claim]:
    """What is asked of every number that moves, then of the controller, and the one placement that needs a warm-up."""
    made = [_below_both(found), _below_best_fixed(found), _without_warmup(config, found)]
    if set(config.controlled) & set(config.scheduled):
        made.append(_controller(config, found))
    return [*made, _post_needs_it(found)]


def _below_both(found: Sequence[Standing]) -> Claim:
    def holds(standing: Standing, kind: Kind) -> Answer:
        return all_hold([between(standing.above(kind, other), greatest=0.0) for other in (standing.pre, standing.post)])

    lowest = []
    for standing in found:
        kind = min(standing.moved, key=lambda kind: standing.better(kind).mean_nats)
        lowest.append(
            f"{standing.named(kind)}: {with_interval(standing.above(kind, standing.pre))} beside Pre-LN, "
            f"{with_interval(standing.above(kind, standing.post))} beside Post-LN with warm-up"
        )
    return judged(
        name="below both ends",
        statement="A placement whose number moves ends below Pre-LN and below Post-LN with warm-up, each at its own "
        "best rate, it and Pre-LN at the better of two warm-ups.",
        source=_ASKED,
        found=f"its last loss less theirs, in nats, of the lowest of each task: {'; '.join(lowest)}",
        holds=_each(found, holds),
    )


def _below_best_fixed(found: Sequence[Standing]) -> Claim:
    return judged(
        name="below the best fixed placement",
        statement="A placement whose number moves ends below the best placement whose numbers stay.",
        source=_ASKED,
        found="the last loss of the lowest of each task less that of the best fixed, in nats: "
        + "; ".join(
            f"{standing.named(kind)} less {title(standing.best_fixed.key.placement, 'fixed')}: "
            + with_interval(standing.above(kind, standing.best_fixed))
            for standing in found
            for kind in [min(standing.moved, key=lambda kind: standing.better(kind).mean_nats)]
        ),
        holds=_each(found, lambda standing, kind: between(standing.above(kind, standing.best_fixed), greatest=0.0)),
    )


def _without_warmup(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> Claim:
    gains = [(standing.named(kind), standing.warmup_gain(kind)) for standing in found for kind in standing.moved]
    least, most = (which(gains, key=lambda one: float(one[1].mean)) for which in (min, max))
    return judged(
        name="without warm-up",
        statement=f"A placement whose number moves ends without warm-up at most {config.needs_nats:g} nats above its "
        "runs with it, each at its own best rate.",
        source=_ASKED,
        found="the loss without less that with warm-up, in nats, is from "
        f"{with_interval(least[1])}, {least[0]}, to {with_interval(most[1])}, {most[0]}",
        holds=_each(found, lambda s, kind: between(s.warmup_gain(kind), greatest=config.needs_nats)),
    )


def _controller(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> Claim:
    holds: dict[str, Answer] = {}
    parts = []
    for standing in found:
        for name in config.controlled:
            if name in config.scheduled:
                less: Estimate = difference(standing.better((name, "controller")), standing.better((name, "schedule")))
                words = f"{title(name, 'fixed')} ({standing.words})"
                holds[words] = between(less, greatest=0.0)
                parts.append(f"{words}: {with_interval(less)}")
    return judged(
        name="the controller beside the schedule",
        statement="A number that moves as fast as the measured change permits ends lower than one that moves with "
        "every update.",
        source=_ASKED,
        found=f"the last loss with the controller less that with the schedule, in nats: {'; '.join(parts)}",
        holds=holds,
    )


def _post_needs_it(found: Sequence[Standing]) -> Claim:
    gains = {standing.words: standing.warmup_gain((POST, "fixed")) for standing in found}
    return judged(
        name="Post-LN needs its warm-up",
        statement="Post-LN without warm-up ends higher than with it, each at its own best rate.",
        source="Xiong et al. 2020, section 3.2",
        found="the loss without less that with warm-up, in nats: "
        + "; ".join(f"{words}: {with_interval(gain)}" for words, gain in gains.items()),
        holds={words: between(gain, least=0.0) for words, gain in gains.items()},
    )


def _each(found: Sequence[Standing], holds: Callable[[Standing, Kind], Answer]) -> dict[str, Answer]:
    """The answer of every number that moves, in every task."""
    return {standing.named(kind): holds(standing, kind) for standing in found for kind in standing.moved}
