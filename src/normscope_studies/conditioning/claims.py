"""What the theory states, and the open question: who stays conditioned, and does it cost the last loss?"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from normscope.evidence.estimates import estimate, rank_correlation, with_interval
from normscope.evidence.judging import Answer, all_hold, answers, between
from normscope.measure import Estimate
from normscope.report.words import number

from ..engine.claims import judged
from ..engine.page import Claim
from .config import POST, PRE, ConditioningConfig
from .courses import Placed

Telling = Mapping[str, Sequence[Placed]]
"""By placement, one for each rate."""


def best(placed: Sequence[Placed]) -> Placed:
    """At the rate whose mean loss is lowest."""
    return min(placed, key=lambda one: one.mean_nats)


def stays(config: ConditioningConfig, one: Placed) -> Answer:
    """Whether its gradients stay within the stated factor throughout."""
    return between(one.worst_spread(), greatest=math.log(config.stated_factor))


def less_post(one: Placed, telling: Telling) -> Estimate:
    """How far it ends above Post-LN, each at its own best rate; over seeds in pairs."""
    post = best(telling[POST])
    return estimate([a - b for a, b in zip(one.finals, post.finals, strict=True)])


def claims(config: ConditioningConfig, telling: Telling, registry: Sequence[Placed]) -> list[Claim]:
    """registry: every placement at the common rate."""
    return [
        _at_first(config, telling),
        _throughout(config, telling),
        _pre_ln(config, telling),
        _updates(config, telling),
        _isometry(config, telling),
        _foretells(registry),
        _open_question(config, telling),
    ]


def _factor(found: Estimate, decimals: int = 2) -> str:
    """A factor whose logarithm was estimated, with its interval."""
    low, middle, high = (math.exp(float(value)) for value in (found.low, found.mean, found.high))
    if math.isnan(low):
        return number(middle, decimals)
    return f"{number(middle, decimals)} ({number(low, decimals)} to {number(high, decimals)})"


def _at_first(config: ConditioningConfig, telling: Telling) -> Claim:
    """Gradients before the first update do not depend on the rate."""
    off = {
        placed[0].title: estimate([math.log(c.gradient_spread[0] / placed[0].stated) for c in placed[0].courses])
        for placed in telling.values()
        if not math.isnan(placed[0].stated)
    }
    edge = math.log(1.5)
    return judged(
        name="the theory's spread at first",
        statement="Before the first update the largest gradient norm of a block over the smallest is within a factor "
        "of 1.5 of what the formula alone predicts.",
        source="corrected: the mean field of normscope predict, at random targets",
        found="measured over predicted: " + "; ".join(f"{title} {_factor(one)}" for title, one in off.items()),
        holds={title: between(one, -edge, edge) for title, one in off.items()},
    )


def _throughout(config: ConditioningConfig, telling: Telling) -> Claim:
    at = {name: best(placed) for name, placed in telling.items()}
    return judged(
        name="gradients stay as they are stated to start",
        statement=f"Throughout its training at its best rate a placement's spread of gradient norms over blocks stays "
        f"within {config.stated_factor:g} times what the theory states of its first update.",
        source="asked here; the theory is of initialisation alone",
        found="the largest spread over the stated one: "
        + "; ".join(f"{one.title} {_factor(one.worst_spread(), 1)}" for one in at.values()),
        holds={one.title: stays(config, one) for one in at.values()},
    )


def _pre_ln(config: ConditioningConfig, telling: Telling) -> Claim:
    """At every rate."""
    holds: dict[str, Answer] = {}
    parts = []
    for one, post in zip(telling.get(PRE, ()), telling[POST], strict=False):
        less = estimate([a - b for a, b in zip(_logs(one), _logs(post), strict=True)])
        holds[f"a rate of {one.lr:g}"] = between(less, greatest=0.0)
        parts.append(
            f"rate {one.lr:g}: {_factor(one.worst('gradient_spread'), 1)} beside "
            f"{_factor(post.worst('gradient_spread'), 1)}"
        )
    return judged(
        name="Pre-LN is better conditioned than Post-LN throughout",
        statement="The largest spread of gradient norms over blocks in a whole training is smaller in Pre-LN than in "
        "Post-LN at the same rate.",
        source="summaries of Xiong et al. 2020, which speaks of initialisation",
        found="the largest spread: " + ("; ".join(parts) or "Pre-LN is not among the placements"),
        holds=holds or {"Pre-LN": None},
    )


def _logs(one: Placed) -> list[float]:
    return [math.log(np.nanmax(course.gradient_spread)) if course.finite else math.inf for course in one.courses]


def _updates(config: ConditioningConfig, telling: Telling) -> Claim:
    at = [best(placed) for placed in telling.values()]
    edge = math.log(config.update_factor)
    return judged(
        name="Adam's updates are as large in every block",
        statement=f"Throughout training what an update adds differs between blocks by a factor of at most "
        f"{config.update_factor:g}.",
        source="Adam's first update moves every entry by the rate, whatever its gradient",
        found="the largest: " + "; ".join(f"{one.title} {_factor(one.worst('update_spread'))}" for one in at),
        holds={one.title: between(one.worst("update_spread"), greatest=edge) for one in at},
    )


def _isometry(config: ConditioningConfig, telling: Telling) -> Claim:
    at = [one for placed in telling.values() if not np.isnan((one := best(placed)).courses[0].isometry).any()]
    edge = math.log(config.isometry_factor)
    return judged(
        name="blocks stay near an isometry",
        statement="Throughout training the root-mean-square singular value of every block's Jacobian stays within a "
        f"factor of {config.isometry_factor:g} of 1.",
        source="dynamical isometry: Pennington et al. 2017, arXiv:1711.04735; Bachlechner et al. 2020 for ReZero",
        found="the largest factor: " + "; ".join(f"{one.title} {_factor(one.worst('off_isometry'))}" for one in at),
        holds={one.title: between(one.worst("off_isometry"), greatest=edge) for one in at} or {"every placement": None},
    )


def spread_and_loss(registry: Sequence[Placed]) -> tuple[list[float], list[float]]:
    """Of placements whose training stayed finite: the largest spread of gradients, and the last loss in nats."""
    kept = [one for one in registry if all(course.finite for course in one.courses)]
    return [math.exp(float(one.worst("gradient_spread").mean)) for one in kept], [one.mean_nats for one in kept]


def _foretells(registry: Sequence[Placed]) -> Claim:
    spreads, finals = spread_and_loss(registry)
    r, low, high = rank_correlation(spreads, finals)
    return judged(
        name="who stays conditioned ends lower",
        statement="Over the placements of the registry at one rate, the largest spread of gradients in a training and "
        "its last loss rise together.",
        source="the premise of the open question",
        found=f"rank correlation {number(r, 2)} ({number(low, 2)} to {number(high, 2)}) over {len(spreads)} placements",
        holds={"one rate for all": answers(low, high, 0.0, 1.0)[0]},
    )


def _open_question(config: ConditioningConfig, telling: Telling) -> Claim:
    holds: dict[str, Answer] = {}
    parts = []
    for name, placed in telling.items():
        if name == POST:
            continue
        one = best(placed)
        less = less_post(one, telling)
        holds[one.title] = all_hold([stays(config, one), between(less, greatest=0.0)])
        parts.append(f"{one.title} {with_interval(less)} nats")
    return judged(
        name="the open question, at this size",
        statement=f"The placement keeps its gradients within {config.stated_factor:g} times their stated spread "
        "throughout training, and ends no higher than Post-LN, each at its own best rate.",
        source='"Can we design a … scheme that provably keeps gradients well-conditioned throughout training while '
        "matching Post-LN's final accuracy\": asked in reviews of the field; measured here, not proved",
        found="last loss less Post-LN's: " + "; ".join(parts),
        holds=holds or {"no other placement": None},
    )
