"""The doctor's advice: judged by short trainings of families of models that it was not fitted to."""

import math
from collections.abc import Sequence
from functools import partial

from normscope.evidence.estimates import clustered_proportion, proportion
from normscope.evidence.judging import all_hold, answers
from normscope.optim import OPTIMIZERS
from normscope.report.words import percentage

from ..engine.claims import judged
from ..engine.page import Claim
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .cases import AdviceCase, AdviceConfig, cases
from .fit import CONFIDENCE, Judgement, NamedRate, families, fitted_probe, law_without, left_out, partly
from .ladder import REGRET_NATS, STUCK_SHARE, TrainedCase
from .measuring import Warmup, judged_of, known_of, probed_of, side_by_side, warmup_cases, warmup_of
from .page import data, figures, tables
from .tasks import MASKED, VALID_TOKENS, task_of

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


def conditions(config: AdviceConfig, known: Sequence[TrainedCase]) -> dict[str, str]:
    count = sum(len(one.outcomes) for one in known)
    return {
        "models": "decoders, encoders and encoder-decoders, heads of 16, feed-forward twice the width, LayerNorm "
        "unless the norm is the placement's own, no dropout; three schemes of initial weights, with the placement's "
        "gains",
        "texts": f"the toy language, characters and 400 pieces of {config.text_file}, Multi30k ({config.corpus}); "
        f"decoders learn the next token, encoders the text itself, of which {MASKED:.0%} is masked",
        "trainings": f"{count} of {config.updates} updates of 256 or 512 tokens; constant rate from the first update "
        "on, nothing clipped; one seed a case",
        "optimisers": f"betas (0.9, 0.98); SGD with momentum {OPTIMIZERS['sgd'].usual_momentum}, AdamW with weight "
        f"decay {OPTIMIZERS['adamw'].usual_weight_decay}, no other decay",
        "rates": "factors of four up and down from the optimiser's usual, then a factor of two on both sides of the "
        "best",
        "best, good, stuck": f"by the mean cross-entropy at the end, on about {VALID_TOKENS:,} held-out target tokens, "
        f"natural logarithm, no label smoothing; good: within {REGRET_NATS:g} nats of the lowest; stuck: gained less "
        f"than {STUCK_SHARE:.0%} of what the best gained over knowing how frequent tokens are. A named rate counts as "
        "stuck where it lies above all rungs that are not, from half-way on; it is not trained itself",
        "cases": f"{len(known)} in {len(families(known))} families of architecture, text and initial weights, each "
        f"family judged by constants fitted to the others; {sum(not one.learned for one in known)} learned at no rate",
        "probes": f"{config.probe_updates} updates in all, of batches in another order than the trainings",
        "gradient normalisation": "of the mean loss per target token",
    }


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a text or a corpus that is not there."""
    for case in {(case.architecture, case.text): case for case in config.cases}.values():
        task_of(case, config.text_file, config.corpus)
    make = partial(side_by_side, processes=config.processes, pieces=pieces)
    known = make(partial(known_of, config), config.cases, stage="cases")
    usable = [one for one in known if one.learned]
    laws = {left[0].case.family: law_without(rest) for rest, left in left_out(usable)}
    found = make(partial(probed_of, config), [(one, laws[one.case.family]) for one in usable], stage="probes")
    rules = {
        family: fitted_probe([one for one in found if one.family != family], config.probe_updates, config.updates)
        for family in families(usable)
    }
    judged = make(partial(judged_of, config), [(one, rules[one.family]) for one in found], stage="range tests")
    warmups = make(partial(warmup_of, config), warmup_cases(usable), stage="warm-ups")
    rule = fitted_probe(found, config.probe_updates, config.updates)
    early = partly(usable, config.updates)
    return Findings(
        conditions=conditions(config, known),
        claims=claims(judged, warmups),
        figures=figures(judged),
        tables=tables(known, judged, warmups, early),
        data=data(rule, known, judged, warmups, early),
    )


def _small(placement: str, initialisation: str) -> AdviceCase:
    return AdviceCase(
        architecture="decoder",
        text="toy",
        initialisation=initialisation,
        placement=placement,
        blocks=1,
        width=32,
        tokens=128,
        length=32,
    )


SCALES = scales(
    AdviceConfig,
    every={"cases": tuple(cases())},
    smoke={
        "cases": tuple(
            _small(placement, scheme)
            for scheme in ("xavier-uniform", "normal-0.02", "megatron")
            for placement in ("post-ln", "pre-ln")
        ),
        "updates": 40,
        "probe_updates": 30,
        "warmup_ladder": (8,),
    },
    paper={"updates": 2000, "warmup_ladder": (100, 400, 1000)},
)
STUDY = Study(about=ABOUT, scales=SCALES, run=run)
