"""The doctor's advice on rates: what it costs at the end of whole trainings, beside what others
would name.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from normscope.choosing.law import ADAM, RateFacts
from normscope.measure import Estimate
from normscope.optim import OPTIMIZERS
from normscope.report.words import percentage

from ..engine.claims import judged
from ..engine.estimates import clustered_proportion, with_interval
from ..engine.judging import all_hold, answers, holm
from ..engine.page import Claim, Findings
from ..engine.pieces import Pieces, side_by_side
from ..engine.study import Study, scales
from . import rules
from .cases import AdviceCase, AdviceConfig, cases, rate_of
from .ladder import Ladder, at_rate, ladder_from, nats, piece_of
from .looks import facts_about, range_test
from .page import NORMED, Advised, by_warmup, data, figures, lost_by_usual_warmup, tables
from .tasks import MASKED, VALID_TOKENS, task_of
from .training import installed, train_package

ALL_RUNGS, THREE = "all rungs of the ladder", "half the naive rate, it and twice it"


def looked_at(config: AdviceConfig, ladder: Ladder, pieces: Pieces) -> rules.Looked:
    """Returns what is known of a case before its whole trainings."""
    case = ladder.case
    seen = piece_of(case, "facts", config, pieces, facts_about)
    swept = piece_of(
        case, "range-test", config, pieces, range_test, updates=config.range_test_updates
    )
    return rules.Looked(
        ladder=ladder,
        facts=RateFacts(**seen["facts"]),
        parameters=seen["parameters"],
        finders={rules.LIGHTNING: swept["lightning"], rules.LR_FINDER: swept["lr_finder"]},
    )


def named_for(
    config: AdviceConfig, asked: tuple[rules.Looked, Sequence[rules.Looked]], pieces: Pieces
) -> dict[str, rules.NamedRate]:
    """Returns what every rule names for a case, and what a training at it ends at. asked: the case,
    and all of them.
    """
    one, others = asked
    found = {}
    for way, rate in rules.without_training(one, others).items():
        if rate is None:
            continue
        end = one.ladder.at(rate)
        if way in rules.TRAINED:
            share = rules.FOLKLORE_WARMUP if way == rules.FOLKLORE else None
            named = float(f"{10**rate:.3g}")
            end = nats(
                at_rate(
                    one.case, named, config, pieces, updates=one.ladder.updates, warmup_share=share
                )
            )
        found[way] = rules.NamedRate(looked=one, rate=rate, nats=end)
    first = next(other for other in others if other.case.family == one.case.family)
    if first is one and one.optimizer == ADAM:
        for way, package in rules.PACKAGED.items():
            if package in installed():
                given = {"package": package, "updates": one.ladder.updates}
                end = piece_of(
                    one.case,
                    f"{one.ladder.updates}_{package}",
                    config,
                    pieces,
                    train_package,
                    **given,
                )
                found[way] = rules.NamedRate(looked=one, rate=None, nats=nats(end))
    return found


def compared(looked: Sequence[rules.Looked]) -> dict[str, dict[int, list[rules.NamedRate]]]:
    """Rungs that are chosen after so many updates, of all and of three, by those updates."""
    three = [(one, rules.about_naive(one, looked)) for one in looked]
    of_all: dict[int, list[rules.NamedRate]] = {}
    of_three: dict[int, list[rules.NamedRate]] = {}
    for updates in rules.LOOKS:
        of_all[updates] = [rules.compared_at(one, updates) for one in looked]
        of_three[updates] = [
            rules.compared_at(one, updates, tried) for one, tried in three if tried
        ]
    return {ALL_RUNGS: of_all, THREE: of_three}


def warmed(config: AdviceConfig, one: rules.Looked, pieces: Pieces) -> dict[float, float]:
    """Returns the losses by warm-up, at the best rung."""
    rate, updates = rate_of(one.ladder.best_step), one.ladder.updates
    return {
        share: nats(at_rate(one.case, rate, config, pieces, updates=updates, warmup_share=share))
        for share in config.warmup_shares
    }


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training; wherever it is stopped, about as much is there of every family.

    Raises UserError for a text or a corpus that is not there.
    """
    for case in {(case.model, case.text): case for case in config.cases}.values():
        task_of(case, **config.places, seed=1)
    make = partial(side_by_side, processes=config.processes, pieces=pieces)
    ladders = make(partial(_ladder, config), config.cases, stage="ladders")
    looked = make(
        partial(looked_at, config), [one for one in ladders if one.learned], stage="looks"
    )
    each = make(partial(named_for, config), [(one, looked) for one in looked], stage="named rates")
    warmups = dict(
        zip(
            (one.case for one in looked),
            make(partial(warmed, config), looked, stage="warm-ups"),
            strict=True,
        )
    )
    by_way: dict[str, list[rules.NamedRate]] = {}
    for one in each:
        for way, rate in one.items():
            by_way.setdefault(way, []).append(rate)
    advised = Advised(
        ladders=ladders,
        looked=looked,
        named=by_way,
        looks=compared(looked),
        warmups=warmups,
    )
    return Findings(
        conditions=conditions(config, ladders),
        claims=claims(advised),
        figures=figures(advised),
        tables=tables(advised),
        data=data(advised),
    )


def _ladder(config: AdviceConfig, case: AdviceCase, pieces: Pieces) -> Ladder:
    return ladder_from(case, None, config.updates, config, pieces)


def claims(advised: Advised) -> list[Claim]:
    """All claims of the study."""
    return [
        *_of_known_rates(advised),
        *less_claims(_less_by_looking(advised)),
        _of_usual_warmup(advised),
        *less_claims(_less_by_warmup(advised)),
    ]


def _of_known_rates(advised: Advised) -> list[Claim]:
    """Judges what a training loses at the rate that known rates name: at most, and beside the
    median.
    """
    own, naive = advised.named[rules.KNOWN], advised.named[rules.NAIVE]

    def at_most(most: float, least: float) -> Claim:
        return share_claim(
            f"Known rates: {percentage(most, 0)} lost at most",
            f"At the rate that known rates name a training loses at most {percentage(most, 0)} of "
            f"what the best gains, in at least {percentage(least, 0)} of cases.",
            [(one.looked.case.family, one.regret <= most) for one in own],
            least=least,
        )

    beside_median = {("Known rates", "Known rates lose", _MEDIAN): rules.less_than(own, naive)}
    return [at_most(0.01, 0.8), at_most(0.02, 0.9), *less_claims(beside_median)]


def _less_by_looking(advised: Advised) -> dict[tuple[str, str, str], Estimate]:
    """Measures how much less than the median rate trainings lose that are compared before their
    end.
    """
    first = advised.looked[0].ladder.updates if advised.looked else 0
    less = {}
    for words, by_updates in advised.looks.items():
        for updates, chosen in by_updates.items():
            if updates < first:
                name = f"{words[0].upper()}{words[1:]} compared after {updates:,}"
                subject = (
                    f"Who compares trainings at {words} after {updates:,} of {first:,} updates, "
                    "and goes on with the one whose loss is lowest, loses"
                )
                less[name, subject, _MEDIAN] = rules.less_than(chosen, advised.named[rules.NAIVE])
    return less


def _of_usual_warmup(advised: Advised) -> Claim:
    losses = [
        (one.case.family, lost_by_usual_warmup(one, advised.warmups[one.case]))
        for one in advised.looked
    ]
    return share_claim(
        "Warm-up",
        "With 1 % of the updates, 8 % where residual sums are normed, a training loses at most "
        "1 % of what the best gains against the best of the warm-ups that were tried, in at "
        "least 85 % of cases.",
        [(family, lost <= 0.01) for family, lost in losses],
        least=0.85,
    )


def _less_by_warmup(advised: Advised) -> dict[tuple[str, str, str], Estimate]:
    """Measures how much less trainings lose with a longer warm-up than with each shorter one."""
    tried = by_warmup(advised.looked, advised.warmups)
    less = {}
    for group in NORMED:
        shares = [share for (of, share), there in tried.items() if of == group and there]
        for share, beside in itertools.combinations(reversed(shares), 2):
            name = f"Warm-up of {percentage(share, 0)} where {group}"
            subject = f"Where {group}, a warm-up over {percentage(share, 0)} of the updates loses"
            other = f"one over {percentage(beside, 0)}" if beside else "none"
            less[name, subject, other] = rules.less_than(tried[group, share], tried[group, beside])
    return less


_MEDIAN = "the median best rate of the optimiser in other families"


def less_claims(less: Mapping[tuple[str, str, str], Estimate]) -> list[Claim]:
    """Makes the claims that some things lose less than others do, in the mean over cases, judged
    together by Holm; less: by how much, for a name, what loses, and what it is compared with.
    """
    together = holm({key: (one, -math.inf, 0.0) for key, one in less.items()})
    made = []
    for (name, subject, beside), one in less.items():
        found = f"{with_interval(one)} of the best's gain beside it, over {one.count} families"
        if len(less) > 1:
            found += f"; {len(less)} such claims judged together, by Holm"
        made.append(
            judged(
                name=f"{name}: better than {'the median' if beside == _MEDIAN else beside}",
                statement=f"{subject} less than {beside} does, in the mean over cases.",
                source="NormScope",
                found=found,
                holds={"all": together[name, subject, beside]},
            )
        )
    return made


def share_claim(
    name: str, statement: str, holds: Sequence[tuple[str, bool]], *, least: float
) -> Claim:
    """Makes the claim that the share of cases in which a statement holds is at least so large;
    holds: with the family of each, since cases of one are not independent.
    """
    families = [family for family, _ in holds]
    answered = [so for _, so in holds]
    count, total = sum(answered), len(answered)
    low, high = clustered_proportion(answered, families)
    return judged(
        name=name,
        statement=statement,
        source="NormScope",
        found=f"{count} of {total} ({percentage(count / total if total else None)}; 95 % interval "
        f"{percentage(low)} to {percentage(high)}, over {len(set(families))} families)",
        holds={"all": all_hold(answers(low, high, least, 1.0))},
    )


def conditions(config: AdviceConfig, found: Sequence[Ladder]) -> dict[str, str]:
    unlearned = sorted({one.case.name for one in found if not one.learned})
    return {
        "models": (
            "ours with LayerNorm unless the norm is the placement's own, feed-forwards twice as "
            "wide; GPT-2, Llama, OLMo 2, BERT, T5 and ViT of transformers, torch's layers, and one "
            "written by hand; heads of 16, no dropout"
        ),
        "texts": f"the toy language, characters and 400 pieces of {config.text_file}, progressions "
        f"modulo 64, a chain of second order, Multi30k ({config.corpus}), images of digits; "
        f"decoders learn the next token, encoders the text itself, of which {MASKED:.0%} is "
        "masked, encoder-decoders a translation or the second half of a row",
        "trainings": f"{sum(len(one.outcomes) + len(one.again) for one in found)} of ladders, of "
        f"{config.updates:,} updates; linear warm-up over 1 % of them, 8 % where residual sums "
        "are normed, then a cosine to a tenth unless the case says otherwise; nothing clipped",
        "optimisers": (
            f"betas (0.9, 0.98); SGD with momentum {OPTIMIZERS['sgd'].usual_momentum}, AdamW and "
            f"Muon with weight decay {OPTIMIZERS['adamw'].usual_weight_decay}, no other decay"
        ),
        "optimisers without a rate": (
            "Prodigy at 1 under the same schedule, Schedule-Free AdamW at its own 2.5e-3 with a "
            "tenth of the updates as warm-up, in the first case of each family that has Adam or "
            "AdamW there"
        )
        if set(rules.PACKAGED.values()) <= set(installed())
        else "left out where their packages (prodigyopt, schedulefree) are not installed",
        "rates": "factors of two, at least seven, until the best has two on either side",
        "seeds": "two, of weights and batches, at the best rung and its neighbours; else one",
        "loss": (
            f"mean cross-entropy at the end in nats, on about {VALID_TOKENS:,} held-out targets; "
            "gain: over a model of pairs of tokens, or of single ones where the best does not "
            "reach that"
        ),
        "cases": (
            f"{len(config.cases)} in {len({case.family for case in config.cases})} families of "
            "model, text and initial weights; what a rule is fitted to shares none of these with "
            "the case that it is judged on. "
        )
        + (
            f"Learned at no rate: {', '.join(unlearned)}"
            if unlearned
            else "All learned at some rate"
        ),
        "gradient normalisation": "of the mean loss per target token",
    }


_SIZES: dict[str, Any] = {"blocks": 1, "width": 16, "tokens": 64, "length": 16}
_SMALL = (
    AdviceCase(
        model="decoder",
        text="arithmetic",
        initialisation="xavier-uniform",
        placement="post-ln",
        **_SIZES,
    ),
    AdviceCase(
        model="encoder", text="markov", initialisation="normal-0.02", placement="pre-ln", **_SIZES
    ),
    AdviceCase(model="nanogpt", text="toy", initialisation="zero-head", **_SIZES),
)
SCALES = scales(
    AdviceConfig,
    every={"cases": tuple(cases()), "warmup_shares": (0.0, 0.01, 0.08)},
    smoke={"cases": _SMALL, "updates": 60, "range_test_updates": 30, "warmup_shares": (0.0, 0.05)},
    paper={"updates": 4_000},
)
STUDY = Study(
    title="Advice: which learning rate is best?",
    question=(
        "What does a training under a schedule lose at the rate that known rates or another rule "
        "name, and how does the best rate move with the length of the training and with its "
        "warm-up?"
    ),
    help="What does our advice on learning rates cost?",
    scales=SCALES,
    run=run,
)
