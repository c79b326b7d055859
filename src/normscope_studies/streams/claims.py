"""What the sources promise, and what the runs say."""

from collections.abc import Sequence

from normscope.evidence.estimates import with_interval
from normscope.evidence.judging import Answer, between, lies_within

from ..engine.claims import judged
from ..engine.page import Claim
from .config import StreamsConfig
from .sources import POST, PROMISES, Promise
from .standing import Standing, title


def claims(config: StreamsConfig, found: Sequence[Standing]) -> list[Claim]:
    """One for each promise, one a task for warm-up, and the one placement that is known to need it."""
    promised = [
        _promise(config, name, promise, found)
        for name, promise in PROMISES.items()
        if any(name in standing.placements for standing in found)
    ]
    return [*promised, *(_without_warmup(config, standing) for standing in found), _post_needs_it(found)]


def _promise(config: StreamsConfig, name: str, promise: Promise, found: Sequence[Standing]) -> Claim:
    holds: dict[str, Answer] = {}
    parts = []
    for standing in found:
        if name not in standing.placements:
            continue
        less = standing.less_base(name)
        lower = promise.ends == "lower"
        holds[standing.words] = between(less, greatest=0.0) if lower else lies_within(less, 0.0, config.comparable_nats)
        parts.append(f"{standing.words}: {with_interval(less)}")
    ends = "lower than" if promise.ends == "lower" else f"within {config.comparable_nats:g} nats of"
    return judged(
        name=title(name),
        statement=f"{title(name)} ends {ends} Pre-LN of as many parameters, each at its own best rate and warm-up.",
        source=promise.source,
        found=f"its last loss less Pre-LN's, in nats: {'; '.join(parts)}",
        holds=holds,
    )


def _without_warmup(config: StreamsConfig, standing: Standing) -> Claim:
    gains = {name: standing.warmup_gain(name) for name in standing.placements if name in config.placements}
    worst = max(gains, key=lambda name: float(gains[name].mean))
    return judged(
        name=f"the newer streams do without warm-up, {standing.words}",
        statement=f"Without warm-up, at its own best rate, a newer residual stream ends at most "
        f"{config.comparable_nats:g} nats above its runs with warm-up.",
        source="not in the sources; asked of all",
        found=f"the loss without less that with warm-up, in nats, is largest for {title(worst)}: "
        f"{with_interval(gains[worst])}",
        holds={title(name): between(gain, greatest=config.comparable_nats) for name, gain in gains.items()},
    )


def _post_needs_it(found: Sequence[Standing]) -> Claim:
    gains = {standing.words: standing.warmup_gain(POST) for standing in found}
    return judged(
        name="Post-LN needs its warm-up",
        statement="Post-LN without warm-up ends higher than with it, each at its own best rate.",
        source="Xiong et al. 2020, section 3.2",
        found="the loss without less that with warm-up, in nats: "
        + "; ".join(f"{words}: {with_interval(gain)}" for words, gain in gains.items()),
        holds={words: between(gain, least=0.0) for words, gain in gains.items()},
    )
