"""The paper's figure 5: BERT's validation loss over updates, and its checkpoints fine-tuned."""

from collections.abc import Mapping, Sequence

from normscope.report.words import number

from ..engine.claims import claim, of_one_seed
from ..engine.estimates import estimate
from ..engine.judging import Answer, answers, between
from ..engine.ladders import sources
from ..engine.page import Claim, Findings
from ..engine.pieces import Pieces
from ..engine.study import Study
from ..translation.runs import less, sooner
from .config import SCALES, Figure5Config, check_inputs
from .page import PANELS, conditions, data, figures, tables
from .planned import planned
from .pretraining import (
    Chance,
    PretrainingCurve,
    PretrainingCurves,
    cells_of,
    chance,
    ends,
    pretrained,
    shares,
)
from .tuning import TunedTask, spread_over_seeds, tuned_task

PUBLISHED_SHARE = 500 / 700
"""Updates of Pre-LN over those of Post-LN at the same loss; the paper's sentence has the two the
wrong way round.
"""
LEAST_SPREAD = 0.005
"""Half a point of accuracy: what papers report a gain by on these tasks is seldom less."""
_SOURCE = "Xiong et al. 2020, section 4.2 and figure 5"


def claims(
    config: Figure5Config,
    curves: PretrainingCurves,
    by_chance: Chance,
    tuned: Mapping[str, TunedTask],
) -> list[Claim]:
    """(a) in four parts, then (b) and (c) where these tasks were fine-tuned, and appendix A.3."""
    pre_trained = [
        _needs_none(config, curves, by_chance),
        _faster(config, curves, by_chance),
        _diverges(config, curves, by_chance),
        _takes_the_larger(config, curves, by_chance),
    ]
    if config.seeds == 1:
        pre_trained = of_one_seed(pre_trained)
    fine_tuned = [_ahead(config, one) for one in tuned.values()]
    if tuned:
        fine_tuned.append(_sensitive(tuned))
    return [*pre_trained, *fine_tuned]


def _needs_none(config: Figure5Config, curves: PretrainingCurves, by_chance: Chance) -> Claim:
    own = config.pairs[0]
    post, pre = (ends(curves[arm], by_chance.loss_nats) for arm in (own.post, own.pre))
    return claim(
        "(a) Pre-LN does without warm-up",
        "Without warm-up, Pre-LN ends at a validation loss no higher than Post-LN's with warm-up.",
        source=_SOURCE,
        value="Pre-LN's last loss less Post-LN's, in nats",
        holds={own.name: less(pre, post)},
        greatest=0.0,
        beside=f"Last losses: Post-LN {_several(post)}, Pre-LN {_several(pre)}; chance "
        f"{number(by_chance.loss_nats)}.",
    )


def _faster(config: Figure5Config, curves: PretrainingCurves, by_chance: Chance) -> Claim:
    reached = {
        pair.name: shares(pair, curves, updates=config.updates, chance_nats=by_chance.loss_nats)
        for pair in config.pairs
    }
    never = [
        f"{name}, in {row.count(None)} of {len(row)}"
        for name, row in reached.items()
        if None in row
    ]
    return claim(
        "(a) Pre-LN is faster",
        "Pre-LN reaches the loss that Post-LN ends at in fewer updates: 500,000 instead of "
        f"700,000, {number(PUBLISHED_SHARE)} of them.",
        source=_SOURCE,
        value="share of the updates after which Pre-LN reaches the loss that Post-LN ends at",
        holds={name: sooner(row) for name, row in reached.items()},
        greatest=1.0,
        beside=f"Never, by seeds: {'; '.join(never)}." if never else "",
    )


def _diverges(config: Figure5Config, curves: PretrainingCurves, by_chance: Chance) -> Claim:
    large = config.pairs[2].post
    last = [run.nll_nats[-1] if run.finished else None for run in curves[large]]
    words = ", ".join("not finite" if one is None else number(one) for one in last)
    return claim(
        "(a) Post-LN diverges at the larger rate",
        "At the rate at which Pre-LN is trained, Post-LN diverges in spite of its warm-up.",
        source="Xiong et al. 2020, section 4.1",
        value=f"last masked-token losses at rate {large.peak_lr:g}, in nats: {words}; the unigram "
        f"baseline is {number(by_chance.nll_nats)}",
        holds={"at this depth and rate": diverged(curves[large], by_chance.nll_nats)},
    )


def _takes_the_larger(config: Figure5Config, curves: PretrainingCurves, by_chance: Chance) -> Claim:
    both = config.pairs[2]
    post, pre = (ends(curves[arm], by_chance.loss_nats) for arm in (both.post, both.pre))
    return claim(
        "(a) Pre-LN takes the larger rate better",
        "At the larger rate Pre-LN without warm-up ends lower than Post-LN with it.",
        source=_SOURCE,
        value="Pre-LN's last loss less Post-LN's, in nats",
        holds={both.name: less(pre, post)},
        greatest=0.0,
        beside=f"Last losses: Post-LN {_several(post)}, Pre-LN {_several(pre)}.",
    )


def diverged(runs: Sequence[PretrainingCurve], unigram_nats: float) -> Answer:
    """Tells whether the runs end no better than the unigram baseline; one that stopped at a
    non-finite value did.
    """
    finite = [run.nll_nats[-1] for run in runs if run.finished]
    if len(finite) == len(runs):
        return between(estimate(finite), least=unigram_nats)
    return True if len(runs) > 1 and all(nats >= unigram_nats for nats in finite) else None


def _ahead(config: Figure5Config, tuned: TunedTask) -> Claim:
    post, pre = config.arms[:2]
    title = tuned.task.upper()
    holds: dict[str, Answer] = {}
    found: list[str] = []
    for update in config.tuned_updates:
        words = f"after {update:,} updates"
        if not (tuned.of(pre, update) and tuned.of(post, update)):
            holds[words] = None
            continue
        seeds = tuned.advantage(pre, post, update)
        rows = tuned.advantage_over_rows(pre, post, update)
        found.append(
            f"{words} {number(float(seeds.mean), 4)} ± {number(float(seeds.half_width), 4)} over "
            f"seeds, {number(rows.low, 4)} to {number(rows.high, 4)} over dev pairs"
        )
        # Two encoders of which neither tells the pairs apart say nothing of each other.
        learned = any(tuned.above_majority(arm, update).low > 0 for arm in (post, pre))
        over_rows = answers(rows.low, rows.high, 0.0, float("inf"))[0]
        holds[f"{words}, over seeds"] = between(seeds, least=0.0) if learned else None
        holds[f"{words}, over dev pairs"] = over_rows if learned else None
    return claim(
        f"({PANELS.get(tuned.task, 'b')}) Pre-LN is ahead on {title}",
        f"Checkpoints of Pre-LN, fine-tuned on {title}, are more accurate than those of Post-LN "
        "after as many updates.",
        source=_SOURCE,
        value="accuracy of Pre-LN less that of Post-LN: " + ("; ".join(found) or "not measured"),
        holds=holds,
        beside=f"The majority class has {number(tuned.majority, 4)}, and {_above(config, tuned)}.",
    )


def _above(config: Figure5Config, tuned: TunedTask) -> str:
    """Returns which checkpoints are above the majority class, in words."""
    every = [
        tuned.above_majority(arm, update).low > 0
        for update in config.tuned_updates
        for arm in config.arms[:2]
        if tuned.of(arm, update)
    ]
    return f"{sum(every)} of {len(every)} checkpoints are above it, over dev pairs"


def _sensitive(tuned: Mapping[str, TunedTask]) -> Claim:
    spread = spread_over_seeds(tuned)
    return claim(
        "fine-tuning depends on its seed",
        "Accuracies of one checkpoint, fine-tuned with different seeds, scatter by half a point or "
        "more (one standard deviation).",
        source="Xiong et al. 2020, appendix A.3",
        value="standard deviation over seeds of fine-tuning, of checkpoints above the majority "
        "class"
        if spread
        else "no checkpoint is above the majority class, so that nothing is known of seeds",
        holds={"all tasks": estimate(spread) if spread else None},
        least=LEAST_SPREAD,
    )


def _several(values: Sequence[float]) -> str:
    """Returns one number, or the range of several."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(min(values))} to {number(max(values))}"


def run(config: Figure5Config, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text or tasks that are not there, and for a training
    that fails.
    """
    check_inputs(config)
    cells = cells_of(config, pieces)
    curves = pretrained(config, cells, pieces)
    trained_by = sources(cells)
    by_chance = chance(config)
    tuned = {task: tuned_task(config, task, curves, pieces) for task in config.tasks}
    return Findings(
        conditions=conditions(config, cells, curves, tuned, trained_by),
        claims=claims(config, curves, by_chance, tuned),
        figures=figures(config, curves, by_chance, tuned),
        tables=tables(config, curves, by_chance, tuned),
        data=data(config, curves, by_chance, tuned) | {"runs": trained_by},
    )


STUDY = Study(
    title="BERT with Post-LN and Pre-LN: the paper's Figure 5",
    question="Does Pre-LN without warm-up reach a lower validation loss in fewer updates than "
    "Post-LN with it, also at the same rate, and are its checkpoints the better ones to fine-tune?",
    help="The paper's Figure 5: is BERT faster with Pre-LN?",
    scales=SCALES,
    run=run,
    reads_checkpoints=True,
    planned=planned,
)
