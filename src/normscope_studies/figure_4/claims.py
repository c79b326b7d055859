"""What the paper says of figure 4, and what the curves say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from normscope.compare.reading.verdict import MOST_OF_THE_GAIN
from normscope.evidence.estimates import estimate, with_interval
from normscope.evidence.judging import Answer, between
from normscope.measure import Estimate
from normscope.report.words import counted, number

from ..engine.claims import judged
from ..engine.page import Claim
from ..translation.arms import DE_EN, EN_DE, POST, PRE, Arm
from ..translation.comparing import bleu_of, caveat, excess, finals, gain_kept, several, sooner, updates_shares
from ..translation.curves import Curves
from ..translation.trained import Trained
from .config import Figure4Config
from .pairings import PAPER_S, Pairing, Square, alike, of_pair, pairings, square

PUBLISHED_SHARE = 9 / 15
"""The 9th checkpoint of Pre-LN is as good as the 15th of Post-LN."""
COMPETITIVE_NATS = 0.05
"""A difference in nats per token that nobody would choose a placement by: 5 % in perplexity."""
_SOURCE = "Xiong et al. 2020, section 4.2 and figure 4"
_CORRECTED = "corrected: in the paper the rates of the two differ from epoch 8 on"
_OURS = "not in the paper, which compares at one rate"


def claims(config: Figure4Config, found: Trained) -> list[Claim]:
    """Of De-En, and of En-De, as far as these are trained."""
    made = []
    if (of := square(config)) is not None:
        made += [_competitive(config, found), _faster(config, found), _faster_alike(config, found)]
        made += [_radam_trains(config, of, found), _radam_is_adam(of, found), _dominates(of, found)]
        made.append(_best_rates(config, found))
    if EN_DE in config.pairs:
        made.append(_on_en_de(config, found))
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """By how many nats a choice lowers the last loss, as a mean over the other choice."""

    placement: Estimate
    """Pre-LN in place of Post-LN."""
    optimizer: Estimate
    """RAdam in place of Adam."""
    lead: Estimate
    """By how much the placement's is larger, in size."""


def effects(of: Square, curves: Curves) -> Effects:
    """Of the four runs of each seed."""
    rows = list(zip(*(finals(curves, arm) for arm in of.arms()), strict=True))
    placement = [(a + r - p - q) / 2 for a, r, p, q in rows]
    optimizer = [(a - r + p - q) / 2 for a, r, p, q in rows]
    lead = [abs(x) - abs(y) for x, y in zip(placement, optimizer, strict=True)]
    return Effects(placement=estimate(placement), optimizer=estimate(optimizer), lead=estimate(lead))


def best_arms(config: Figure4Config, curves: Curves) -> tuple[Arm, Arm]:
    """Post-LN with warm-up and Pre-LN without, each at the rate where it ends lowest on average: De-En, one decay."""

    def best(placement: str, *, warm: bool) -> Arm:
        rates = sorted({*config.lrs, *config.curve_lrs})
        arms = [config.controlled(placement, DE_EN, lr, warm=warm) for lr in rates]
        return min(arms, key=lambda arm: sum(finals(curves, arm)))

    return best(POST, warm=True), best(PRE, warm=False)


def _competitive(config: Figure4Config, found: Trained) -> Claim:
    seen = [_ends(pairing, found) for pairing in of_pair(pairings(config), DE_EN)]
    return judged(
        name="Pre-LN does without warm-up",
        statement="Without warm-up, Pre-LN ends at a validation loss that is no higher than Post-LN's with warm-up, to "
        f"{COMPETITIVE_NATS:g} nats.",
        source=_SOURCE,
        found=f"Pre-LN's last loss less Post-LN's, in nats: {_told(seen)}.{caveat(found.curves)}",
        holds={one.setting: one.answer for one in seen},
    )


def _faster(config: Figure4Config, found: Trained) -> Claim:
    return _sooner(
        "Pre-LN is faster",
        "At the same rate Pre-LN reaches the loss that Post-LN ends at in fewer updates: its 9th checkpoint is as good "
        f"as the 15th, {number(PUBLISHED_SHARE)} of them.",
        _SOURCE,
        [one for one in of_pair(pairings(config), DE_EN) if one.schedules == PAPER_S],
        found,
    )


def _faster_alike(config: Figure4Config, found: Trained) -> Claim:
    """The paper drops Pre-LN's rate tenfold at epoch 8, and never Post-LN's."""
    paired = [one for one in of_pair(pairings(config), DE_EN) if one.schedules != PAPER_S]
    return _sooner(
        "Pre-LN is faster on the same schedule",
        "Also where both decay alike, with Post-LN's warm-up or both with it, Pre-LN reaches the loss that Post-LN "
        "ends at in fewer updates.",
        _CORRECTED,
        [*paired, *alike(config)],
        found,
    )


def _sooner(name: str, statement: str, source: str, paired: Sequence[Pairing], found: Trained) -> Claim:
    seen = [_reaches(pairing, found) for pairing in paired]
    return judged(
        name=name,
        statement=statement,
        source=source,
        found="share of the updates after which Pre-LN reaches the loss that Post-LN ends at: "
        f"{_told(seen)}.{caveat(found.curves)}",
        holds={one.setting: one.answer for one in seen},
    )


def _on_en_de(config: Figure4Config, found: Trained) -> Claim:
    paired = of_pair(pairings(config), EN_DE)
    ends, reaches = [_ends(one, found) for one in paired], [_reaches(one, found) for one in paired]
    holds = {f"no higher, {one.setting}": one.answer for one in ends}
    return judged(
        name="the same on En-De",
        statement="On En-De too, Pre-LN without warm-up ends no higher than Post-LN with it, to "
        f"{COMPETITIVE_NATS:g} nats, and reaches Post-LN's last loss in fewer updates.",
        source=_SOURCE,
        found=f"Pre-LN's last loss less Post-LN's, in nats: {_told(ends)}. Share of the updates after which it reaches "
        f"Post-LN's last loss: {_told(reaches)}.{caveat(found.curves)}",
        holds=holds | {f"sooner, {one.setting}": one.answer for one in reaches},
    )


class _Seen(NamedTuple):
    setting: str
    words: str
    answer: Answer


def _ends(pairing: Pairing, found: Trained) -> _Seen:
    difference = excess(found.curves, pairing.pre, pairing.post)
    bleu = " and ".join(bleu_of(arm, found.curves) for arm in (pairing.pre, pairing.post))
    words = f"{with_interval(difference)} (BLEU {bleu})"
    return _Seen(pairing.setting, words, between(difference, greatest=COMPETITIVE_NATS))


def _reaches(pairing: Pairing, found: Trained) -> _Seen:
    shares = updates_shares(found.curves, pairing.post, pairing.pre)
    reached = [share for share in shares if share is not None]
    never = f"never in {len(shares) - len(reached)} of {counted(len(shares), 'seed')}"
    words = with_interval(estimate(reached)) if len(reached) == len(shares) else never
    return _Seen(pairing.setting, words, sooner(shares))


def _told(seen: Sequence[_Seen]) -> str:
    return "; ".join(f"{one.setting}: {one.words}" for one in seen)


def radam_keeps(config: Figure4Config, of: Square, found: Trained) -> Estimate | None:
    """What Post-LN has under RAdam without warm-up, as a share of its gain under Adam with warm-up."""
    warm = config.post(DE_EN, config.lrs[0])
    return gain_kept(found.curves, of.post_radam, warm, found.unigram(warm))


def _radam_trains(config: Figure4Config, of: Square, found: Trained) -> Claim:
    kept = radam_keeps(config, of, found)
    losses = several(finals(found.curves, of.post_radam))
    said = "Adam has no certain gain with warm-up" if kept is None else f"{with_interval(kept)} of the gain"
    return judged(
        name="RAdam trains Post-LN without warm-up",
        statement=f"Under RAdam without warm-up Post-LN has at least {MOST_OF_THE_GAIN:g} of the gain over the unigram "
        "baseline that it has under Adam with warm-up.",
        source=_SOURCE,
        found=f"{said}; last loss {losses} nats.{caveat(found.curves)}",
        holds={f"rate {of.post_radam.peak_lr:g}": None if kept is None else between(kept, least=MOST_OF_THE_GAIN)},
    )


def _radam_is_adam(of: Square, found: Trained) -> Claim:
    difference = excess(found.curves, of.pre_radam, of.pre_adam)
    return judged(
        name="RAdam changes little for Pre-LN",
        statement=f"Pre-LN ends within {COMPETITIVE_NATS:g} nats of the same loss under RAdam as under Adam.",
        source=_SOURCE,
        found=f"RAdam's last loss less Adam's: {with_interval(difference)} nats.{caveat(found.curves)}",
        holds={f"rate {of.pre_adam.peak_lr:g}": between(difference, -COMPETITIVE_NATS, COMPETITIVE_NATS)},
    )


def _dominates(of: Square, found: Trained) -> Claim:
    seen = effects(of, found.curves)
    return judged(
        name="the placement dominates the optimiser",
        statement="Without warm-up, Pre-LN in place of Post-LN changes the last loss more than RAdam in place of Adam.",
        source=_SOURCE,
        found=f"Pre-LN lowers it by {with_interval(seen.placement)} nats, RAdam by {with_interval(seen.optimizer)}, "
        f"each a mean over the other; the first is larger by {with_interval(seen.lead)}.{caveat(found.curves)}",
        holds={f"rate {of.pre_adam.peak_lr:g}": between(seen.lead, least=0.0)},
    )


def _best_rates(config: Figure4Config, found: Trained) -> Claim:
    post, pre = best_arms(config, found.curves)
    difference = excess(found.curves, pre, post)
    rates: Sequence[float] = sorted({*config.lrs, *config.curve_lrs})
    return judged(
        name="each at its best rate",
        statement="Each at the best of the rates that were tried, and on one decay, Pre-LN without warm-up ends no "
        f"higher than Post-LN with it, to {COMPETITIVE_NATS:g} nats.",
        source=_OURS,
        found=f"of {', '.join(f'{rate:g}' for rate in rates)}, Post-LN is best at {post.peak_lr:g} and Pre-LN at "
        f"{pre.peak_lr:g}; there Pre-LN's last loss less Post-LN's is {with_interval(difference)} nats, the best of a "
        f"few on the same validation text.{caveat(found.curves)}",
        holds={"De-En": between(difference, greatest=COMPETITIVE_NATS)},
    )
