"""What the paper says of figure 2, and what the curves say."""

from collections.abc import Sequence

from normscope.compare.reading.verdict import MOST_OF_THE_GAIN
from normscope.evidence.estimates import estimate, with_interval
from normscope.evidence.judging import Answer, between
from normscope.measure import Estimate
from normscope.report.words import number

from ..engine.claims import judged
from ..engine.page import Claim
from ..translation.arms import OPTIMIZERS, Arm
from ..translation.comparing import Shares, bleu_of, caveat, excess, finals, gain_kept, is_essential, several, shares
from ..translation.curves import Curves
from ..translation.trained import Trained
from .config import Figure2Config, Group

PUBLISHED_BLEU = {"Adam without warm-up": 8.45, "T = 500 at 5e-4": 31.16, "T = 500 at 1e-3": 2.77, "T = 4000": 34.0}
"""Section 3.2; the last is "around 34"."""
_SOURCE = "Xiong et al. 2020, section 3.2 and figure 2"
_OURS = "not in the paper, whose schedules differ in both"
_HALF = 0.5


def groups(config: Figure2Config, optimizer: str) -> list[Group]:
    """The arms of an optimiser, one group a rate."""
    return [config.group(optimizer, rate) for rate in config.rates(optimizer)]


def claims(config: Figure2Config, found: Trained) -> list[Claim]:
    """Warm-up under each optimiser; its length, under Adam; and what of it is summed rate."""
    made = [_essential(groups(config, name), found) for name in config.optimizers]
    if "adam" in config.optimizers:
        adam = groups(config, "adam")
        made.append(_sensitive(adam, found))
        if len(adam) > 1:
            made.append(_more_at_the_larger(adam, found))
    return made + [_summed_rate(groups(config, name), found) for name in config.optimizers]


def group_shares(group: Group, curves: Curves) -> Shares:
    """What of the group's gap is summed rate."""
    return shares(
        curves,
        without=group.without,
        long=group.long,
        without_equal_sum=group.without_equal_sum,
        long_equal_sum=group.long_equal_sum,
    )


def kept_without(group: Group, found: Trained) -> dict[str, tuple[Arm, Estimate | None]]:
    """By family: the arm without warm-up, and the share it keeps of the gain that the long warm-up has."""
    arms = {"the paper's schedule": group.without, "as much cumulative learning rate": group.without_equal_sum}
    unigram = found.unigram(group.long)
    return {name: (arm, gain_kept(found.curves, arm, group.long, unigram)) for name, arm in arms.items()}


def longer_helps(group: Group, curves: Curves) -> dict[str, Estimate]:
    """By family: by how many nats the short warm-up ends above the long one."""
    families = {"the paper's schedule": group.short, "one decay for both": group.controlled_short}
    return {name: excess(curves, arm, group.long) for name, arm in families.items() if arm is not None}


def _essential(of: Sequence[Group], found: Trained) -> Claim:
    name, parts = OPTIMIZERS[of[0].optimizer], []
    holds: dict[str, Answer] = {}
    for group in of:
        best = several(finals(found.curves, group.long))
        warm = f"with warm-up {best} nats, BLEU {bleu_of(group.long, found.curves)}"
        told = []
        for family, (arm, kept) in kept_without(group, found).items():
            holds[f"{family}, rate {group.peak_lr:g}"] = is_essential(kept)
            share = "no certain gain with it" if kept is None else f"{with_interval(kept)} of its gain"
            losses, bleu = several(finals(found.curves, arm)), bleu_of(arm, found.curves)
            told.append(f"without, {family}, {losses} nats, BLEU {bleu} ({share})")
        parts.append(f"rate {group.peak_lr:g}: {warm}; {'; '.join(told)}")
    return judged(
        name=f"warm-up is essential under {name}",
        statement=f"Without warm-up, Post-LN under {name} ends with less than {MOST_OF_THE_GAIN:g} of the gain over "
        "the unigram baseline that it has with warm-up.",
        source=_SOURCE,
        found=f"{'. '.join(parts)}. The baseline is {number(found.unigram(of[0].long))} nats.{caveat(found.curves)}",
        holds=holds,
    )


def _sensitive(of: Sequence[Group], found: Trained) -> Claim:
    parts, holds = [], {}
    for group in of:
        for family, difference in longer_helps(group, found.curves).items():
            setting = f"{family}, rate {group.peak_lr:g}"
            holds[setting] = between(difference, least=0.0)
            parts.append(f"{setting}: {with_interval(difference)}")
    short, long = of[0].short, of[0].long
    assert short is not None
    return judged(
        name="the length of warm-up matters",
        statement=f"The shorter warm-up ({short.schedule.warmup_updates:,} updates) ends at a higher loss than the "
        f"longer ({long.schedule.warmup_updates:,}), as T = 500 does beside T = 4000.",
        source=_SOURCE,
        found=f"the short one's last loss less the long one's, in nats: {'; '.join(parts)}.{caveat(found.curves)}",
        holds=holds,
    )


def _more_at_the_larger(of: Sequence[Group], found: Trained) -> Claim:
    parts, holds = [], {}
    low, high = of[0], of[-1]
    for family in longer_helps(low, found.curves):
        differences = [_pairwise(group, family, found.curves) for group in (low, high)]
        grown = estimate([b - a for a, b in zip(*differences, strict=True)])
        holds[family] = between(grown, least=0.0)
        parts.append(f"{family}: {with_interval(grown)}")
    return judged(
        name="the larger rate wants the longer warm-up",
        statement="What the shorter warm-up costs is more at the larger rate: 31.16 BLEU at 5e-4 and 2.77 at 1e-3.",
        source=_SOURCE,
        found=f"the difference in last loss at rate {high.peak_lr:g} less that at {low.peak_lr:g}, in nats: "
        f"{'; '.join(parts)}.{caveat(found.curves)}",
        holds=holds,
    )


def _pairwise(group: Group, family: str, curves: Curves) -> list[float]:
    arm = group.short if family == "the paper's schedule" else group.controlled_short
    assert arm is not None
    return [a - b for a, b in zip(finals(curves, arm), finals(curves, group.long), strict=True)]


def _summed_rate(of: Sequence[Group], found: Trained) -> Claim:
    name, parts = OPTIMIZERS[of[0].optimizer], []
    holds: dict[str, Answer] = {}
    for group in of:
        share = group_shares(group, found.curves)
        holds |= {f"rate {group.peak_lr:g}, {way}": is_so for way, is_so in share.decided(_HALF).items()}
        parts.append(
            f"rate {group.peak_lr:g}: of a gap of {with_interval(share.gap)} nats {with_interval(share.summed_rate)} "
            f"is cumulative learning rate ({with_interval(share.given_back)} when it is given back without warm-up, "
            f"{with_interval(share.taken_away)} when it is taken away with warm-up)"
        )
    ratio = of[0].long.summed_lr / of[0].without.summed_lr
    return judged(
        name=f"most of the gap is the warm-up, under {name}",
        statement="Of the gap in the last loss between the paper's runs without and with warm-up, at most half is the "
        f"learning rate that its schedule takes away: here the run with warm-up sums up {ratio:.1f} times as much.",
        source=_OURS,
        found=f"{'. '.join(parts)}.{caveat(found.curves)}",
        holds=holds,
    )
