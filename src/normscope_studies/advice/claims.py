"""What the study of advice says, each claim about families that the rule was not fitted to."""

import math
from collections.abc import Sequence

from normscope.evidence.estimates import clustered_proportion, proportion
from normscope.evidence.judging import all_hold, answers
from normscope.report.words import percentage

from ..engine.claims import judged
from ..engine.page import Claim
from .fit import CONFIDENCE
from .judge import Judgement, NamedRate
from .measuring import Warmup

COVERED = 0.05
"""By how much an interval's coverage may differ from what it says."""
WARMUP_FACTOR = 4


def claims(cases: Sequence[Judgement], warmups: Sequence[Warmup]) -> list[Claim]:
    """All claims of the study."""
    usual, probes = [one.usual for one in cases], [one.probe for one in cases]
    return [
        *_named("Known rates", "the rate that the law of known rates names", usual, factor=3, near=0.85, stuck=0.05),
        *_named("Probe", "the rate that a probe names", probes, factor=2, near=0.9, stuck=0.02),
        _beats(cases),
        *warmup_claims(warmups),
    ]


def _named(way: str, rate: str, named: Sequence[NamedRate], *, factor: int, near: float, stuck: float) -> list[Claim]:
    """Of one way to name rates: near the best, not stuck, and with an interval that says how far off they are."""
    return [
        share_claim(
            f"{way}: the best rate",
            f"{rate[0].upper()}{rate[1:]} lies within a factor of {factor} of the best in at least "
            f"{percentage(near, 0)} of cases.",
            [one.within(factor) for one in named],
            families_of(named),
            least=near,
        ),
        share_claim(
            f"{way}: stuck",
            f"At {rate} at most {percentage(stuck, 0)} of cases are stuck.",
            [one.stuck for one in named],
            families_of(named),
            greatest=stuck,
        ),
        share_claim(
            f"{way}: its interval",
            f"The interval holds the best rate in {percentage(CONFIDENCE, 0)} of cases, give or take 5.",
            [one.covered for one in named],
            families_of(named),
            least=CONFIDENCE - COVERED,
            greatest=CONFIDENCE + COVERED,
        ),
    ]


def share_claim(
    name: str,
    statement: str,
    holds: Sequence[bool],
    families: Sequence[str],
    *,
    least: float = 0.0,
    greatest: float = 1.0,
) -> Claim:
    """That the share of cases in which it holds lies between the bounds; cases of a family are not independent."""
    count, total = sum(holds), len(holds)
    low, high = clustered_proportion(holds, families)
    return judged(
        name=name,
        statement=statement,
        source="NormScope",
        found=f"{count} of {total} ({percentage(count / total if total else None)}; 95 % interval {percentage(low)} to "
        f"{percentage(high)}, over {len(set(families))} families)",
        holds={"all": all_hold(answers(low, high, least, greatest))},
    )


def families_of(named: Sequence[NamedRate]) -> list[str]:
    """Of each case."""
    return [one.known.case.family for one in named]


def _beats(cases: Sequence[Judgement]) -> Claim:
    """By the cases in which one of the two was right and the other was not: a sign test's question."""
    found, holds = [], {}
    for name in cases[0].finders if cases else ():
        pairs = [(one.probe.within(2), one.finders[name].within(2)) for one in cases]
        ours, theirs = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
        right = sum(b for _, b in pairs)
        found.append(f"{name} right in {right} of {len(pairs)}, we alone in {ours}, it alone in {theirs}")
        holds[name] = all_hold(answers(*proportion(ours, ours + theirs), 0.5, 1.0))
    return judged(
        name="Probe and range test",
        statement="With as many updates, a probe is within a factor of 2 of the best more often than an LR range test.",
        source="NormScope",
        found="; ".join(found),
        holds=holds,
    )


def warmup_claims(warmups: Sequence[Warmup]) -> list[Claim]:
    """Whether the warm-ups that are named suffice, and are not too long."""
    known = [one for one in warmups if one.shortest is not None]
    named = [one for one in warmups if one.named is not None]
    return [
        share_claim(
            "Warm-up: it suffices",
            "A warm-up that short trainings name carries the rate in whole ones, in at least 90 % of cases.",
            [one.shortest is not None and (one.named or 0) >= one.shortest for one in named],
            [one.case.family for one in named],
            least=0.9,
        ),
        share_claim(
            "Warm-up: it is not too long",
            f"Where a warm-up of the ladder carries the rate, the one that is named is at most {WARMUP_FACTOR} times "
            "the shortest, in at least 90 % of cases.",
            [(one.named or math.inf) <= WARMUP_FACTOR * (one.shortest or 0) for one in known],
            [one.case.family for one in known],
            least=0.9,
        ),
    ]
