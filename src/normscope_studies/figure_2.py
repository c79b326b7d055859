"""The paper's figure 2, and how much of it is warm-up: claims, figures and data."""

from typing import Any

from normscope.compare.verdict import MOST_OF_THE_GAIN
from normscope.evidence.estimates import with_interval
from normscope.evidence.judging import Answer
from normscope.measure import Estimate
from normscope.report.words import number

from .engine.claims import claim, judged
from .engine.discovery import About
from .engine.page import Claim, StudyFigure, table
from .engine.pieces import Pieces
from .engine.study import Findings, Study
from .translation.comparing import (
    GapShares,
    bleu_of,
    excess,
    finals,
    gain_kept,
    gap_shares,
    is_essential,
    less,
    several,
    with_caveat,
)
from .translation.config import OPTIMIZERS, TranslationArm
from .translation.figure_2 import SCALES, Figure2Config, RateGroup
from .translation.page import epochs_figure, findings, plain, rates_figure
from .translation.runs import ArmCurves, Trained, trained

ABOUT = About(
    title="Post-LN with and without warm-up, under Adam and SGD: the paper's Figure 2",
    question="Is warm-up essential for Post-LN, under Adam and under SGD, how much does its length matter, and how "
    "much of what it does is the learning rate that the paper's schedule takes away with it?",
    help="The paper's Figure 2: does Post-LN need warm-up?",
)


PUBLISHED_BLEU = {"Adam without warm-up": 8.45, "T = 500 at 5e-4": 31.16, "T = 500 at 1e-3": 2.77, "T = 4000": 34.0}
"""Section 3.2; the last is "around 34"."""
_SOURCE = "Xiong et al. 2020, section 3.2 and figure 2"
_OURS = "not in the paper, whose schedules differ in both"
_HALF = 0.5
PAPERS_SCHEDULE = "the paper's schedule"


def claims(config: Figure2Config, found: Trained) -> list[Claim]:
    """Warm-up under each optimiser; its length, under Adam; and what of it is summed rate."""
    made = [one for name in config.optimizers for one in _essential(config, name, found)]
    if "adam" in config.optimizers:
        made += _on_length(config.groups("adam"), found)
    made += [_summed_rate(config, name, found) for name in config.optimizers]
    if {"adam", "sgd"} <= set(config.optimizers):
        made.append(_sgd_beside_adam(config, found))
    if len(config.groups(config.optimizers[0])) > 1:
        made.append(_large_rates(config, found))
    return with_caveat(made, found.curves)


def _sgd_beside_adam(config: Figure2Config, found: Trained) -> Claim:
    """On the paper's schedules, each at the better of its rates."""
    curves = found.curves

    def best(optimizer: str, arm: str) -> list[float]:
        return min((finals(curves, getattr(group, arm)) for group in config.groups(optimizer)), key=sum)

    return claim(
        "SGD ends worse than Adam",
        "Post-LN under SGD ends higher than under Adam, each at the better of its rates.",
        source=_SOURCE,
        value="SGD's last loss less Adam's, in nats",
        holds={
            words: less(best("sgd", arm), best("adam", arm))
            for words, arm in (("with warm-up", "long"), ("without", "without"))
        },
        least=0.0,
    )


def _large_rates(config: Figure2Config, found: Trained) -> Claim:
    """With the long warm-up, the larger of an optimiser's rates beside the smaller."""
    held = {}
    for name in config.optimizers:
        low, high = config.groups(name)[0], config.groups(name)[-1]
        held[f"{OPTIMIZERS[name]}, {high.peak_lr:g} beside {low.peak_lr:g}"] = excess(found.curves, high.long, low.long)
    return claim(
        "after the warm-up large rates train",
        "With the long warm-up Post-LN ends lower at the larger rate than at the smaller.",
        source="Xiong et al. 2020, section 3.4",
        value="the last loss at the larger rate less that at the smaller, in nats",
        holds=held,
        greatest=0.0,
    )


def shares_of(group: RateGroup, curves: ArmCurves) -> GapShares:
    """What of the group's gap is summed rate."""
    arms = {name: getattr(group, name) for name in ("without", "long", "without_equal_sum", "long_equal_sum")}
    return gap_shares(curves, **arms)


def kept_without(group: RateGroup, found: Trained) -> dict[str, tuple[TranslationArm, Estimate | None]]:
    """By family: the arm without warm-up, and the share it keeps of the gain that the long warm-up has."""
    arms = {PAPERS_SCHEDULE: group.without, "as much cumulative learning rate": group.without_equal_sum}
    unigram = found.unigram(group.long)
    return {name: (arm, gain_kept(found.curves, arm, group.long, unigram)) for name, arm in arms.items()}


def short_less_long(group: RateGroup, curves: ArmCurves) -> dict[str, Estimate]:
    """By family: by how many nats the short warm-up ends above the long one."""
    return {name: excess(curves, arm, group.long) for name, arm in group.shorter_warmups().items()}


def _essential(config: Figure2Config, optimizer: str, found: Trained) -> list[Claim]:
    """The paper's claim, of its own schedules, and the same with as much cumulative learning rate as with warm-up."""
    name, groups, curves = OPTIMIZERS[optimizer], config.groups(optimizer), found.curves
    kept = {group: kept_without(group, found) for group in groups}
    made = []
    for family in next(iter(kept.values())):
        parts = []
        for group in groups:
            arm, share = kept[group][family]
            words = "no certain gain with it" if share is None else f"{with_interval(share)} of its gain"
            parts.append(
                f"rate {group.peak_lr:g}: with warm-up {_ends(group.long, curves)}; without, {_ends(arm, curves)} "
                f"({words})"
            )
        own = family == PAPERS_SCHEDULE
        made.append(
            judged(
                name=f"warm-up is essential under {name}{'' if own else f', {family}'}",
                statement=f"Without warm-up{'' if own else f', but with {family}'}, Post-LN under {name} ends with "
                f"less than {MOST_OF_THE_GAIN:g} of the gain over the unigram baseline that it has with warm-up.",
                source=_SOURCE if own else "not in the paper",
                found=f"{'. '.join(parts)}. The baseline is {number(found.unigram(groups[0].long))} nats.",
                holds={f"rate {group.peak_lr:g}": is_essential(kept[group][family][1]) for group in groups},
            )
        )
    return made


def _ends(arm: TranslationArm, curves: ArmCurves) -> str:
    return f"{several(finals(curves, arm))} nats, BLEU {bleu_of(arm, curves)}"


def _on_length(groups: list[RateGroup], found: Trained) -> list[Claim]:
    """Of the shorter warm-up: that it costs something and, where there are two rates, more at the larger one."""
    low, high, curves = groups[0], groups[-1], found.curves
    assert low.short is not None
    short, long = low.short.schedule.warmup_updates, low.long.schedule.warmup_updates
    costs = {
        f"{family}, rate {group.peak_lr:g}": cost
        for group in groups
        for family, cost in short_less_long(group, curves).items()
    }
    matters = claim(
        "the length of warm-up matters",
        f"The shorter warm-up ({short:,} updates) ends at a higher loss than the longer ({long:,}), as T = 500 does "
        "beside T = 4000.",
        source=_SOURCE,
        value="the short one's last loss less the long one's, in nats",
        holds=costs,
        least=0.0,
    )
    if low is high:
        return [matters]

    def cost(group: RateGroup, family: str) -> list[float]:
        pairs = zip(finals(curves, group.shorter_warmups()[family]), finals(curves, group.long), strict=True)
        return [a - b for a, b in pairs]

    more = claim(
        "the larger rate wants the longer warm-up",
        "What the shorter warm-up costs is more at the larger rate: 31.16 BLEU at 5e-4 and 2.77 at 1e-3.",
        source=_SOURCE,
        value=f"the difference in last loss at rate {high.peak_lr:g} less that at {low.peak_lr:g}, in nats",
        holds={family: less(cost(high, family), cost(low, family)) for family in low.shorter_warmups()},
        least=0.0,
    )
    return [matters, more]


def _summed_rate(config: Figure2Config, optimizer: str, found: Trained) -> Claim:
    parts = []
    holds: dict[str, Answer] = {}
    for group in config.groups(optimizer):
        share = shares_of(group, found.curves)
        holds |= {f"rate {group.peak_lr:g}, {way}": is_so for way, is_so in share.decided(_HALF).items()}
        parts.append(
            f"rate {group.peak_lr:g}: of a gap of {with_interval(share.gap)} nats {with_interval(share.summed_rate)} "
            f"is cumulative learning rate ({with_interval(share.given_back)} when it is given back without warm-up, "
            f"{with_interval(share.taken_away)} when it is taken away with warm-up)"
        )
    return judged(
        name=f"most of the gap is the warm-up, under {OPTIMIZERS[optimizer]}",
        statement="Of the gap in the last loss between the paper's runs without and with warm-up, at most half is the "
        "learning rate that its schedule takes away: here the run with warm-up sums up "
        f"{_ratio(config.groups(optimizer)[0]):.1f} times as much.",
        source=_OURS,
        found=f"{'. '.join(parts)}.",
        holds=holds,
    )


def _ratio(group: RateGroup) -> float:
    """The summed rate with warm-up over that without."""
    return group.long.summed_lr / group.without.summed_lr


def figures(config: Figure2Config, found: Trained) -> list[StudyFigure]:
    """In the paper's layout, the controlled family beside it, and both over the rate."""
    made = []
    for optimizer in config.optimizers:
        title = OPTIMIZERS[optimizer]
        for name, words in (("paper", "the paper's schedules"), ("controlled", "schedules of one decay or one sum")):
            panels = {
                f"{title}, rate {group.peak_lr:g}": getattr(group, f"{name}_family")()
                for group in config.groups(optimizer)
            }
            made.append(
                epochs_figure(
                    f"{optimizer}_{name}",
                    f"Post-LN under {title}: {words}",
                    panels,
                    found,
                    epoch=config.epoch_updates,
                    told=f"Loss and BLEU over epochs, {title}, {words}",
                )
            )
    return [*made, rates_figure(over_rates(config), found, caption="at the rates that were tried.", wide=True)]


def over_rates(config: Figure2Config) -> dict[str, dict[str, list[TranslationArm]]]:
    """By panel and words: the arms of one schedule at every rate of their optimiser."""
    panels = {}
    for optimizer in config.optimizers:
        groups = config.groups(optimizer)
        families = {
            "the paper's schedules": [group.paper_family() for group in groups],
            "one decay or one sum": [group.controlled_family() for group in groups],
        }
        for title, family in families.items():
            # A run that has another's sum at a lower peak has no rate of its own on this axis.
            own = [words for words, arm in family[0].items() if arm.peak_lr == groups[0].peak_lr]
            panels[f"{OPTIMIZERS[optimizer]}: {title}"] = {words: [arms[words] for arms in family] for words in own}
    return panels


def run(config: Figure2Config, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = trained(config, config.arms(), pieces)
    shares_table = table(
        "How much of the gap between no warm-up and warm-up is cumulative learning rate",
        [(group, shares_of(group, found.curves)) for group in config.every_group()],
        [
            ("optimiser", lambda row: OPTIMIZERS[row[0].optimizer]),
            ("rate", lambda row: row[0].peak_lr),
            ("gap, nats", lambda row: row[1].gap),
            ("share that is cumulative learning rate", lambda row: row[1].summed_rate),
            ("given back without warm-up", lambda row: row[1].given_back),
            ("taken away with warm-up", lambda row: row[1].taken_away),
        ],
    )
    return findings(
        config,
        found,
        claims=claims(config, found),
        figures=figures(config, found),
        tables=[shares_table],
        data={"groups": [_data(one, found) for one in config.every_group()], "published_bleu": PUBLISHED_BLEU},
        rates=over_rates(config),
    )


def _data(group: RateGroup, found: Trained) -> dict[str, Any]:
    share = shares_of(group, found.curves)
    return {
        "optimizer": group.optimizer,
        "peak_lr": group.peak_lr,
        "gain_kept_without_warmup": {family: plain(kept) for family, (_, kept) in kept_without(group, found).items()},
        "short_less_long_nats": {family: plain(cost) for family, cost in short_less_long(group, found.curves).items()},
        "gap_nats": plain(share.gap),
        "share_of_summed_rate": plain(share.summed_rate),
        "share_given_back_without_warmup": plain(share.given_back),
        "share_taken_away_with_warmup": plain(share.taken_away),
        "summed_lr_with_over_without": _ratio(group),
    }


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
