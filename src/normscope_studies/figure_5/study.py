"""The paper's figure 5: BERT's validation loss over updates, and its checkpoints fine-tuned."""

from collections.abc import Mapping, Sequence

from normscope.compare.manifest import sources
from normscope.evidence.estimates import estimate
from normscope.evidence.judging import Answer, between
from normscope.report.words import number

from ..engine.claims import claim
from ..engine.page import Claim
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..translation.comparing import less, never, several, sooner, with_caveat
from . import ABOUT
from .config import SCALES, Figure5Config, check_inputs
from .page import conditions, data, figures, tables
from .trainings import (
    PretrainingCurve,
    PretrainingCurves,
    TunedTask,
    advantages,
    cells_of,
    chance,
    pretrained,
    shares,
    tuned_checkpoints,
)

PUBLISHED_SHARE = 500 / 700
"""Updates of Pre-LN over those of Post-LN at the same loss; the paper's sentence has the two the wrong way round."""
_SOURCE = "Xiong et al. 2020, section 4.2 and figure 5"
_PANELS = {"mrpc": "b", "rte": "c"}


def claims(
    config: Figure5Config, curves: PretrainingCurves, unigram: float, tuned: Mapping[str, TunedTask]
) -> list[Claim]:
    """(a) in three parts, then (b) and (c) where these tasks were fine-tuned."""
    own, large = config.pairs[0], config.pairs[2].post
    ends = {arm: [curve.loss_nats[-1] for curve in runs] for arm, runs in curves.items()}
    needs_none = claim(
        "(a) Pre-LN does without warm-up",
        "Without warm-up, Pre-LN ends at a validation loss no higher than Post-LN's with warm-up.",
        source=_SOURCE,
        value="Pre-LN's last loss less Post-LN's, in nats",
        holds={"each at its own rate": less(ends[own.pre], ends[own.post])},
        greatest=0.0,
        beside=f"Last losses: Post-LN {several(ends[own.post])}, Pre-LN {several(ends[own.pre])}.",
    )
    reached = {pair.name: shares(pair, curves) for pair in config.pairs}
    faster = claim(
        "(a) Pre-LN is faster",
        "Pre-LN reaches the loss that Post-LN ends at in fewer updates: 500,000 instead of 700,000, "
        f"{number(PUBLISHED_SHARE)} of them.",
        source=_SOURCE,
        value="share of the updates after which Pre-LN reaches the loss that Post-LN ends at",
        holds={name: sooner(row) for name, row in reached.items()},
        greatest=1.0,
        beside=never(reached),
    )
    last = [curve.nll_nats[-1] for curve in curves[large]]
    diverges = claim(
        "(a) Post-LN diverges at the larger rate",
        "At the rate at which Pre-LN is trained, Post-LN diverges in spite of its warm-up.",
        source=_SOURCE,
        value=f"last masked-token losses at rate {large.peak_lr:g}, in nats: {several(last)}; the unigram baseline is "
        f"{number(unigram)}",
        holds={"at this depth and rate": diverged(curves[large], unigram)},
    )
    return [
        *with_caveat([needs_none, faster, diverges], curves),
        *(_ahead(config, task, one) for task, one in tuned.items()),
    ]


def diverged(runs: Sequence[PretrainingCurve], unigram: float) -> Answer:
    """Whether the runs end no better than the unigram baseline; one that stopped at a non-finite value did."""
    finite = [run.nll_nats[-1] for run in runs if run.ended != "non-finite"]
    if len(finite) == len(runs):
        return between(estimate(finite), least=unigram)
    return True if len(runs) > 1 and all(nll >= unigram for nll in finite) else None


def _ahead(config: Figure5Config, task: str, tuned: TunedTask) -> Claim:
    return claim(
        f"({_PANELS.get(task, 'b')}) Pre-LN is ahead on {task.upper()}",
        f"Checkpoints of Pre-LN, fine-tuned on {task.upper()}, are more accurate than those of Post-LN after as many "
        "updates.",
        source=_SOURCE,
        value="accuracy of Pre-LN less that of Post-LN",
        holds={f"after {update:,} updates": one for update, one in advantages(config, tuned).items()},
        least=0.0,
        beside=f"Always the more frequent label: {number(tuned.majority)}.",
    )


def run(config: Figure5Config, pieces: Pieces) -> Findings:
    """Raises UserError for text or tasks that are not there, and for a training that fails."""
    check_inputs(config)
    cells = cells_of(config, pieces)
    curves = pretrained(config, cells, pieces)
    trained_by = sources(cells)
    by_chance = chance(config)
    tuned = {task: tuned_checkpoints(config, task, curves, pieces) for task in config.tasks}
    return Findings(
        conditions=conditions(config, curves, tuned, trained_by),
        claims=claims(config, curves, by_chance.nll_nats, tuned),
        figures=figures(curves, by_chance, tuned),
        tables=tables(config, curves, tuned),
        data=data(config, curves, by_chance, tuned) | {"runs": trained_by},
    )


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
