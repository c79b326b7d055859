"""The paper's figure 2, and how much of it is warm-up: claims, figures and data."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from normscope.compare.verdict import MOST_OF_THE_GAIN
from normscope.measure import Estimate
from normscope.report.words import number

from .engine.claims import claim, judged
from .engine.estimates import estimate, with_interval
from .engine.judging import Answer, between
from .engine.page import Claim, StudyFigure
from .engine.study import Study
from .translation.again import judged_again
from .translation.arms import OPTIMIZERS, TranslationArm
from .translation.figure_2 import PAPERS_SCHEDULE, SCALES, Figure2Config, RateGroup
from .translation.page import answer, epochs_figure, plain, rates_figure, with_caveat
from .translation.runs import Trained, less

PUBLISHED_BLEU = {
    "Adam without warm-up": 8.45,
    "T = 500 at 5e-4": 31.16,
    "T = 500 at 1e-3": 2.77,
    "T = 4000": 34.0,
}
"""Section 3.2; the last is "around 34"."""
_SOURCE = "Xiong et al. 2020, section 3.2 and figure 2"
_OURS = "not in the paper, whose schedules differ in both"
_HALF = 0.5


def shares_of(group: RateGroup, found: Trained) -> dict[str, Estimate]:
    """Returns the gap between the run without warm-up and that with it, in nats, and what of it is
    summed rate, as shares.

    Four runs: without and with warm-up, each with the little summed rate of the paper's run without
    and with the large one of that with. From the first corner to the last there are two ways:
    without warm-up raising the summed rate closes a share of the gap ("given back"), with it
    lowering the summed rate opens one ("taken away"). Their mean is the Shapley value of the summed
    rate, and one minus it that of the warm-up.
    """
    arms = (group.without, group.long, group.without_equal_sum, group.long_equal_sum)
    rows = list(zip(*map(found.finals, arms), strict=True))
    gaps = [a - b for a, b, _, _ in rows]
    back = [(a - e) / gap for (a, _, e, _), gap in zip(rows, gaps, strict=True)]
    away = [(d - b) / gap for (_, b, _, d), gap in zip(rows, gaps, strict=True)]
    both = [(x + y) / 2 for x, y in zip(back, away, strict=True)]
    shares = {"gap": gaps, "given back": back, "taken away": away, "summed rate": both}
    return {name: estimate(values) for name, values in shares.items()}


def claims(config: Figure2Config, found: Trained) -> list[Claim]:
    """Warm-up under each optimiser; its length, under Adam; and what of it is summed rate."""
    by_name = {name: config.groups(name) for name in config.optimizers}
    made = [one for name, groups in by_name.items() for one in _essential(name, groups, found)]
    if "adam" in by_name:
        made += _on_length(by_name["adam"], found)
    made += [_summed_rate(name, groups, found) for name, groups in by_name.items()]
    if {"adam", "sgd"} <= set(by_name):
        made.append(_sgd_beside_adam(by_name, found))
    if all(len(groups) > 1 for groups in by_name.values()):
        made.append(_large_rates(by_name, found))
    return with_caveat(made, found)


def _essential(optimizer: str, groups: list[RateGroup], found: Trained) -> Iterable[Claim]:
    """The paper's claim, of its own schedules, and the same with as much cumulative learning rate
    as with warm-up.
    """
    name = OPTIMIZERS[optimizer]
    for family in groups[0].without_warmup():
        parts, holds = [], dict[str, Answer]()
        for group in groups:
            warm = f"{found.nats(group.long)} nats, BLEU {found.bleu(group.long)}"
            told = []
            answers: list[Answer] = []
            for held, arm in group.without_warmup()[family].items():
                share = found.gain_kept(arm, group.long)
                told.append(f"{_bare(held, arm, found)} ({_kept_words(share)})")
                # Where nothing was gained with it, nothing is known of what is lost without.
                answers.append(None if share is None else between(share, greatest=MOST_OF_THE_GAIN))
            holds[f"rate {group.peak_lr:g}"] = _of_any(answers)
            parts.append(f"rate {group.peak_lr:g}: with warm-up {warm}; without, {'; '.join(told)}")
        own = family == PAPERS_SCHEDULE
        yield judged(
            name=f"warm-up is essential under {name}{'' if own else f', {family}'}",
            statement=(
                f"Without warm-up{'' if own else f', but with {family}'}, Post-LN under {name} "
                f"ends with less than {MOST_OF_THE_GAIN:g} of the gain over the unigram baseline "
                "that it has with warm-up."
            ),
            source=_SOURCE if own else "not in the paper",
            found=(
                f"{'. '.join(parts)}. The baseline is {number(found.unigram(groups[0].long))} nats."
            ),
            holds=holds,
        )


def _of_any(answers: Sequence[Answer]) -> Answer:
    """Returns the answer of those runs that decide, unless they differ."""
    decided = {one for one in answers if one is not None}
    return decided.pop() if len(decided) == 1 else None


def _bare(held: str, arm: TranslationArm, found: Trained) -> str:
    """Says what a run without warm-up ends at, and what it has of the one with it."""
    ends = f"{found.nats(arm)} nats, BLEU {found.bleu(arm)}"
    return f"{held} {ends}" if held else ends


def _kept_words(share: Estimate | None) -> str:
    return "no certain gain with it" if share is None else f"{with_interval(share)} of its gain"


def _on_length(groups: list[RateGroup], found: Trained) -> list[Claim]:
    """Judges the shorter warm-up: that it costs something and, where there are two rates, more at
    the larger one.
    """
    low, high = groups[0], groups[-1]
    short, long = (
        low.shorter_warmups()[PAPERS_SCHEDULE].schedule.warmup_updates,
        low.long.schedule.warmup_updates,
    )
    matters = claim(
        "the length of warm-up matters",
        f"The shorter warm-up ({short:,} updates) ends at a higher loss than the longer "
        f"({long:,}), as T = 500 does beside T = 4000.",
        source=_SOURCE,
        value="the short one's last loss less the long one's, in nats",
        holds={
            f"{family}, rate {group.peak_lr:g}": found.excess(arm, group.long)
            for group in groups
            for family, arm in group.shorter_warmups().items()
        },
        least=0.0,
    )
    if low is high:
        return [matters]

    def cost(group: RateGroup, family: str) -> list[float]:
        pairs = zip(
            found.finals(group.shorter_warmups()[family]), found.finals(group.long), strict=True
        )
        return [a - b for a, b in pairs]

    more = claim(
        "the larger rate wants the longer warm-up",
        "What the shorter warm-up costs is more at the larger rate: 31.16 BLEU at 5e-4 and 2.77 at "
        "1e-3.",
        source=_SOURCE,
        value=f"the difference in last loss at rate {high.peak_lr:g} less that at {low.peak_lr:g}, "
        "in nats",
        holds={
            family: less(cost(high, family), cost(low, family)) for family in low.shorter_warmups()
        },
        least=0.0,
    )
    return [matters, more]


def _summed_rate(optimizer: str, groups: list[RateGroup], found: Trained) -> Claim:
    parts = []
    holds: dict[str, Answer] = {}
    for group in groups:
        share, rate = shares_of(group, found), f"rate {group.peak_lr:g}"
        # Where it is not certain that there is a gap, nothing is known of its parts.
        there = between(share["gap"], least=0.0) is True
        for way, warmup in (("given back", "without warm-up"), ("taken away", "with warm-up")):
            holds[f"{rate}, {way} {warmup}"] = (
                between(share[way], greatest=_HALF) if there else None
            )
        gap, summed, back, away = (
            with_interval(share[name])
            for name in ("gap", "summed rate", "given back", "taken away")
        )
        parts.append(
            f"{rate}: of a gap of {gap} nats {summed} is cumulative learning rate ({back} when it "
            f"is given back without warm-up, {away} when it is taken away with warm-up)"
        )
    return judged(
        name=f"most of the gap is the warm-up, under {OPTIMIZERS[optimizer]}",
        statement=(
            "Of the gap in the last loss between the paper's runs without and with warm-up, at "
            "most half is the learning rate that its schedule takes away: here the run with "
            f"warm-up sums up {groups[0].ratio:.1f} times as much."
        ),
        source=_OURS,
        found=f"{'. '.join(parts)}.",
        holds=holds,
    )


def _sgd_beside_adam(by_name: Mapping[str, list[RateGroup]], found: Trained) -> Claim:
    """Makes the claim on SGD and Adam under the paper's schedules, each at the better of its
    rates.
    """

    def best(optimizer: str, arm: str) -> list[float]:
        return min((found.finals(getattr(group, arm)) for group in by_name[optimizer]), key=sum)

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


def _large_rates(by_name: Mapping[str, list[RateGroup]], found: Trained) -> Claim:
    """Makes the claim on the larger of an optimiser's rates against the smaller, with the long
    warm-up.
    """
    return claim(
        "after the warm-up large rates train",
        "With the long warm-up Post-LN ends lower at the larger rate than at the smaller.",
        source="Xiong et al. 2020, section 3.4",
        value="the last loss at the larger rate less that at the smaller, in nats",
        holds={
            f"{OPTIMIZERS[name]}, {high.peak_lr:g} beside {low.peak_lr:g}": found.excess(
                high.long, low.long
            )
            for name, (low, *_, high) in by_name.items()
        },
        greatest=0.0,
    )


def figures(config: Figure2Config, found: Trained) -> list[StudyFigure]:
    """Draws the paper's layout, the controlled family beside it, and both over the rate."""
    made = []
    for optimizer in config.optimizers:
        title, groups = OPTIMIZERS[optimizer], config.groups(optimizer)
        for name, words in (
            ("paper", "the paper's schedules"),
            ("controlled", "schedules of one decay or one sum"),
        ):
            panels: dict[str, dict[str, TranslationArm]] = {
                f"{title}, rate {group.peak_lr:g}": getattr(group, f"{name}_family")()
                for group in groups
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
    return [*made, rates_figure(over_rates(config), found, caption="at the rates that were tried.")]


def over_rates(config: Figure2Config) -> dict[str, dict[str, list[TranslationArm]]]:
    """Returns, by panel and words, the arms of one schedule at every rate of their optimiser."""
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
            panel = {}
            for words in own:
                panel[words] = [arms[words] for arms in family]
            panels[f"{OPTIMIZERS[optimizer]}: {title}"] = panel
    return panels


def _data(config: Figure2Config, found: Trained) -> dict[str, Any]:
    return {
        "groups": [_of_group(one, found) for one in config.every_group()],
        "published_bleu": PUBLISHED_BLEU,
    }


def _of_group(group: RateGroup, found: Trained) -> dict[str, Any]:
    share, long = shares_of(group, found), group.long
    without, short = group.without_warmup(), group.shorter_warmups()
    return {
        "optimizer": group.optimizer,
        "peak_lr": group.peak_lr,
        "gain_kept_without_warmup": {
            ", ".join(filter(None, [family, held])): plain(found.gain_kept(arm, long))
            for family, arms in without.items()
            for held, arm in arms.items()
        },
        "short_less_long_nats": {
            family: plain(found.excess(arm, long)) for family, arm in short.items()
        },
        "gap_nats": plain(share["gap"]),
        "share_of_summed_rate": plain(share["summed rate"]),
        "share_given_back_without_warmup": plain(share["given back"]),
        "share_taken_away_with_warmup": plain(share["taken away"]),
        "summed_lr_with_over_without": group.ratio,
    }


STUDY = Study(
    title="Post-LN with and without warm-up, under Adam and SGD: the paper's Figure 2",
    question="Is warm-up essential for Post-LN, under Adam and under SGD, how much does its length "
    "matter, and how much of what it does is the learning rate that the paper's schedule takes "
    "away with it?",
    help="The paper's Figure 2: does Post-LN need warm-up?",
    scales=SCALES,
    run=partial(answer, claims=claims, figures=figures, data=_data, rates=over_rates),
    judged_again=partial(judged_again, claims=claims, derived=_data),
)
