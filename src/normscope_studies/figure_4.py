"""The paper's figure 4, on its schedules and on schedules that are alike: claims, figures and
data.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from normscope.compare.verdict import MOST_OF_THE_GAIN
from normscope.measure import Estimate
from normscope.report.words import number

from .engine.claims import around, claim
from .engine.estimates import estimate, with_interval
from .engine.judging import Answer
from .engine.page import Claim, StudyFigure
from .engine.study import Study
from .translation.again import judged_again
from .translation.arms import DE_EN, EN_DE, PLACEMENTS, POST, PRE, TranslationArm
from .translation.figure_4 import PAPER_S, SCALES, TITLES, Figure4Config, Pairing
from .translation.page import answer, epochs_figure, plain, rates_figure, with_caveat
from .translation.runs import Trained, less, never_there, sooner
from .translation.slowing import slowing_claims, slowing_data

PUBLISHED_SHARE = 9 / 15
"""The 9th checkpoint of Pre-LN is nearly as good as the 15th of Post-LN."""
COMPETITIVE_NATS = 0.05
"""A difference in nats per token that nobody would choose a placement by: 5 % in perplexity."""
_SOURCE = "Xiong et al. 2020, section 4.2 and figure 4"
_CORRECTED = "corrected: in the paper the rates of the two differ from epoch 8 on"
_OURS = "not in the paper, which compares at one rate"
_LESS = "Pre-LN's last loss less Post-LN's, in nats"
_SOONER = "share of the updates after which Pre-LN reaches the loss that Post-LN ends at"


def effects(of: Mapping[tuple[str, str], TranslationArm], found: Trained) -> dict[str, Estimate]:
    """Measures by how many nats Pre-LN in place of Post-LN lowers the last loss ("placement") and
    RAdam in place of Adam does ("optimizer"), each as a mean over the other; and by how much the
    placement's is larger, in size ("lead").
    """
    rows = list(zip(*(found.finals(arm) for arm in of.values()), strict=True))
    placement = [(a + r - p - q) / 2 for a, r, p, q in rows]
    optimizer = [(a - r + p - q) / 2 for a, r, p, q in rows]
    lead = [abs(x) - abs(y) for x, y in zip(placement, optimizer, strict=True)]
    return {
        name: estimate(one)
        for name, one in (("placement", placement), ("optimizer", optimizer), ("lead", lead))
    }


def best_arms(config: Figure4Config, found: Trained) -> tuple[TranslationArm, TranslationArm]:
    """Post-LN with warm-up and Pre-LN without, each at the rate where it ends lowest on average:
    De-En, one decay.
    """

    def best(placement: str, *, warm: bool) -> TranslationArm:
        arms = [config.controlled(placement, DE_EN, lr, warm=warm) for lr in config.all_lrs]
        return min(arms, key=lambda arm: sum(found.finals(arm)))

    return best(POST, warm=True), best(PRE, warm=False)


def radam_keeps(
    config: Figure4Config, of: Mapping[tuple[str, str], TranslationArm], found: Trained
) -> Estimate | None:
    """Measures what Post-LN has under RAdam without warm-up, as a share of its gain under Adam with
    warm-up.
    """
    warm = config.post(DE_EN, config.lrs[0])
    return found.gain_kept(of[POST, "radam"], warm)


def claims(config: Figure4Config, found: Trained) -> list[Claim]:
    """Judges De-En, and En-De, as far as these are trained."""
    made = []
    if of := config.square():
        made += [
            *_of_pairings(config, found),
            *_of_square(config, of, found),
            *_over_rates(config, found),
            *slowing_claims(config, found),
        ]
    if EN_DE in config.pairs:
        made.append(_on_en_de(config, found))
    return with_caveat(made, found)


def _of_pairings(config: Figure4Config, found: Trained) -> list[Claim]:
    """The paper drops Pre-LN's rate tenfold at epoch 8, and never Post-LN's: so it is compared on
    one decay too.
    """
    paired = config.pairings(DE_EN)
    paper_s = [one for one in paired if one.schedules == PAPER_S]
    controlled = [one for one in paired if one.schedules != PAPER_S]

    def faster(name: str, statement: str, source: str, compared: Sequence[Pairing]) -> Claim:
        holds, never = _sooner(compared, found)
        return claim(
            name, statement, source=source, value=_SOONER, holds=holds, greatest=1.0, beside=never
        )

    return [
        claim(
            "Pre-LN does without warm-up",
            "Without warm-up, Pre-LN ends at a validation loss that is no higher than Post-LN's "
            f"with warm-up, to {COMPETITIVE_NATS:g} nats.",
            source=_SOURCE,
            value=_LESS,
            holds=_excesses(paired, found),
            greatest=COMPETITIVE_NATS,
            beside=_bleus(paired, found),
        ),
        faster(
            "Pre-LN is faster",
            "At the same rate Pre-LN reaches the loss that Post-LN ends at in fewer updates: its "
            f"9th checkpoint is nearly the same as the 15th, {number(PUBLISHED_SHARE)} of them.",
            _SOURCE,
            paper_s,
        ),
        faster(
            "Pre-LN is faster on the same schedule",
            "Also where both decay alike, with Post-LN's warm-up or both with it, Pre-LN reaches "
            "the loss that Post-LN ends at in fewer updates.",
            _CORRECTED,
            [*controlled, *config.alike(DE_EN)],
        ),
    ]


def _excesses(paired: Sequence[Pairing], found: Trained) -> dict[str, Estimate]:
    """Measures how far Pre-LN ends above Post-LN, by setting."""
    return {one.setting: found.excess(one.pre, one.post) for one in paired}


def _sooner(paired: Sequence[Pairing], found: Trained) -> tuple[dict[str, Estimate | Answer], str]:
    """Measures by setting after which part of the updates Pre-LN is where Post-LN ends; and says in
    a sentence where it never is.
    """
    shares = {one.setting: found.updates_shares(one.post, one.pre) for one in paired}
    return {setting: sooner(row) for setting, row in shares.items()}, never_there(shares)


def _bleus(paired: Sequence[Pairing], found: Trained) -> str:
    """Returns the last BLEU of Pre-LN and Post-LN, in a sentence."""
    parts = [f"{one.setting} {found.bleu(one.pre)} and {found.bleu(one.post)}" for one in paired]
    return f"BLEU: {'; '.join(parts)}."


def _on_en_de(config: Figure4Config, found: Trained) -> Claim:
    paired = config.pairings(EN_DE)
    ends, (shares, never) = _excesses(paired, found), _sooner(paired, found)
    holds: dict[str, Estimate | Answer] = {
        f"no higher, {setting}": one for setting, one in ends.items()
    }
    holds |= {f"sooner, {setting}": one for setting, one in shares.items()}
    return claim(
        "the same on En-De",
        "On En-De too, Pre-LN without warm-up ends no higher than Post-LN with it, to "
        f"{COMPETITIVE_NATS:g} nats, and reaches Post-LN's last loss in fewer updates.",
        source=_SOURCE,
        value=f"{_LESS}, and the {_SOONER}",
        holds=holds,
        greatest={
            setting: COMPETITIVE_NATS if setting.startswith("no higher") else 1.0
            for setting in holds
        },
        beside=f"{_bleus(paired, found)} {never}".strip(),
    )


def _of_square(
    config: Figure4Config, of: Mapping[tuple[str, str], TranslationArm], found: Trained
) -> list[Claim]:
    """RAdam saves Post-LN, does little for Pre-LN, and matters less than the placement."""
    kept, difference = (
        radam_keeps(config, of, found),
        found.excess(of[PRE, "radam"], of[PRE, "adam"]),
    )
    seen, rate = effects(of, found), f"rate {of[PRE, 'adam'].peak_lr:g}"
    losses = f"Last loss under RAdam without warm-up: {found.nats(of[POST, 'radam'])} nats."
    return [
        claim(
            "RAdam trains Post-LN without warm-up",
            f"Under RAdam without warm-up Post-LN has at least {MOST_OF_THE_GAIN:g} of the gain "
            "over the unigram baseline that it has under Adam with warm-up.",
            source=_SOURCE,
            value="Adam has no certain gain with warm-up" if kept is None else "share of the gain",
            holds={rate: kept},
            least=MOST_OF_THE_GAIN,
            beside=losses,
        ),
        claim(
            "RAdam changes little for Pre-LN",
            f"Pre-LN ends within {COMPETITIVE_NATS:g} nats of the same loss under RAdam as under "
            "Adam.",
            source=_SOURCE,
            value="RAdam's last loss less Adam's, in nats",
            holds={rate: difference},
            **around(0.0, COMPETITIVE_NATS),
        ),
        claim(
            "the placement dominates the optimiser",
            "Without warm-up, Pre-LN in place of Post-LN changes the last loss more than RAdam in "
            "place of Adam.",
            source=_SOURCE,
            value="by how much the placement's change is larger, in nats",
            holds={rate: seen["lead"]},
            least=0.0,
            beside=f"Pre-LN lowers it by {with_interval(seen['placement'])} nats, RAdam by "
            f"{with_interval(seen['optimizer'])}, each a mean over the other.",
        ),
    ]


def _over_rates(config: Figure4Config, found: Trained) -> list[Claim]:
    """Each at its best rate, at the largest, and how much the rate matters; De-En on one decay."""
    made, rates = [_best_rates(config, found)], config.all_lrs
    if len(rates) > 1:
        arms, sensitivities = {}, {}
        for placement, warm in ((POST, True), (PRE, False)):
            own = [config.controlled(placement, DE_EN, lr, warm=warm) for lr in rates]
            finals = [found.finals(arm) for arm in own]
            arms[placement] = own
            sensitivities[placement] = [
                fmean(of_seed) - min(of_seed) for of_seed in zip(*finals, strict=True)
            ]
        made += [
            claim(
                "Pre-LN is ahead at the largest rate",
                "At the largest rate that was tried Pre-LN without warm-up ends lower than Post-LN "
                "with it.",
                source=_SOURCE,
                value=_LESS,
                holds={f"rate {rates[-1]:g}": found.excess(arms[PRE][-1], arms[POST][-1])},
                greatest=0.0,
            ),
            claim(
                "Pre-LN needs less tuning of the rate",
                "How far the last loss lies above that of the best rate, on average over the "
                "rates, is less for Pre-LN without warm-up than for Post-LN with it.",
                source="Xiong et al. 2020, abstract",
                value="Pre-LN's sensitivity less Post-LN's, in nats",
                holds={"De-En": less(sensitivities[PRE], sensitivities[POST])},
                greatest=0.0,
            ),
        ]
    return made


def _best_rates(config: Figure4Config, found: Trained) -> Claim:
    post, pre = best_arms(config, found)
    return claim(
        "each at its best rate",
        "Each at the best of the rates that were tried, and on one decay, Pre-LN without warm-up "
        f"ends no higher than Post-LN with it, to {COMPETITIVE_NATS:g} nats.",
        source=_OURS,
        value=_LESS,
        holds={"De-En": found.excess(pre, post)},
        greatest=COMPETITIVE_NATS,
        beside=f"Of {', '.join(f'{rate:g}' for rate in config.all_lrs)}, Post-LN is best at "
        f"{post.peak_lr:g} and Pre-LN at {pre.peak_lr:g}: the best of a few on the same "
        "validation text.",
    )


def figures(config: Figure4Config, found: Trained) -> list[StudyFigure]:
    """The paper's layout, the controlled schedules beside it, the square of optimisers, and the
    rate axis.
    """
    made = [_pair_figure(config, found, pair) for pair in config.pairs]
    if of := config.square():
        words = ("Post-LN, Adam", "Post-LN, RAdam", "Pre-LN, Adam", "Pre-LN, RAdam")
        made.append(
            epochs_figure(
                "optimisers",
                "Placement and optimiser, without warm-up",
                {
                    f"no warm-up, linear decay, rate {of[PRE, 'adam'].peak_lr:g}": dict(
                        zip(words, of.values(), strict=True)
                    )
                },
                found,
                epoch=config.epoch_updates,
                told="Two placements under Adam and RAdam",
            )
        )
        caption = "on one decay for all. A comparison at one rate says who was tuned."
        made.append(rates_figure(over_rates(config), found, caption=caption))
    return made


def _pair_figure(config: Figure4Config, found: Trained, pair: str) -> StudyFigure:
    panels: dict[str, dict[str, TranslationArm]] = {}
    for one in [*config.pairings(pair), *config.alike(pair)]:
        lr, own = one.post.peak_lr, one.post != config.post(pair, one.post.peak_lr)
        post_words = f"Post-LN with warm-up, {one.schedules}" if own else "Post-LN with warm-up"
        arms = {post_words: one.post, f"Pre-LN, {one.schedules}": one.pre}
        panels.setdefault(f"{TITLES[pair]}, rate {lr:g}", {}).update(arms)
    return epochs_figure(
        pair.replace("-", "_"),
        f"{TITLES[pair]}: Post-LN with warm-up, Pre-LN without",
        panels,
        found,
        epoch=config.epoch_updates,
        told=f"Loss and BLEU over epochs, {TITLES[pair]}",
        schedules="; on the paper's schedules and on one decay",
    )


def over_rates(config: Figure4Config) -> dict[str, dict[str, list[TranslationArm]]]:
    """Returns, by panel and words, each placement with warm-up and without, on one decay, at every
    rate; none without De-En.
    """
    if DE_EN not in config.pairs:
        return {}
    kinds = {}
    for placement in (POST, PRE):
        for words, warm in (("warm-up", True), ("no warm-up", False)):
            kinds[f"{PLACEMENTS[placement]}, {words}"] = [
                config.controlled(placement, DE_EN, lr, warm=warm) for lr in config.all_lrs
            ]
    return {"De-En, one decay": kinds}


def _data(config: Figure4Config, found: Trained) -> dict[str, Any]:
    compared = {
        one.name: {
            "pre_less_post_nats": plain(found.excess(one.pre, one.post)),
            "share_of_updates": found.updates_shares(one.post, one.pre),
        }
        for one in config.every_pairing()
    }
    made: dict[str, Any] = {"compared": compared, "published_share_of_updates": PUBLISHED_SHARE}
    if not (of := config.square()):
        return made
    post, pre = best_arms(config, found)
    return made | {
        "warm_up_of_pre_ln": slowing_data(config, found),
        "effects_nats": {name: plain(one) for name, one in effects(of, found).items()},
        "radam_less_adam_pre_ln_nats": plain(found.excess(of[PRE, "radam"], of[PRE, "adam"])),
        "gain_kept_by_radam_post_ln": plain(radam_keeps(config, of, found)),
        "best_rates": {
            "post_ln_with_warmup": post.peak_lr,
            "pre_ln_without": pre.peak_lr,
            "pre_less_post_nats": plain(found.excess(pre, post)),
        },
    }


STUDY = Study(
    title="Pre-LN without warm-up beside Post-LN with it: the paper's Figure 4",
    question=(
        "Is Pre-LN without warm-up as good as Post-LN with it, does it learn faster at the same "
        "rate, and does the placement matter more than the choice of Adam or RAdam?"
    ),
    help="The paper's Figure 4: can Pre-LN skip warm-up?",
    scales=SCALES,
    run=partial(answer, claims=claims, figures=figures, data=_data, rates=over_rates),
    judged_again=partial(judged_again, claims=claims, derived=_data),
)
