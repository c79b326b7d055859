"""Measures what the law of known rates loses on published ladders whose shape of model it was not
fitted to, beside naive answers.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from normscope.choosing.law import CRITICAL, CriticalBatch, KnownRate, RateLaw, known_rates
from normscope.choosing.rates import WITHIN
from normscope.measure import Estimate
from normscope.report.chart import Panel
from normscope.report.words import percentage

from ..engine.claims import claim, judged
from ..engine.estimates import jackknife, proportion
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, line, table
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .ladders import SOURCE, PublishedSweep, read_sweeps
from .rules import LAW, STEP_LAW, RateRule, law_without, law_without_shape, naive_rules

GOAL_NATS = 0.003
"""The most that the median ladder may lose."""
GOAL_SHARE = 0.8
"""The least share of ladders whose best rate the range holds."""
_OFF = (0.25, 0.5, 2.0, 4.0)
"""Factors to the best rate, of which is told what they lose."""
EDGES = (98_304, 204_800, 409_600)
"""Tokens a batch that part the table's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLawConfig:
    """The sweeps that are read, and the critical batches that are tried. Raises ValueError for what
    leaves nothing to leave out.
    """

    ladders: str = "corpora/dense_lr_bs_loss.csv"
    """The published table."""
    shapes: tuple[str, ...] = ("7x960", "10x1280", "13x1280")
    """Blocks x width of the models that are read; the others are kept for a judge."""
    critical_tokens: tuple[float, ...] = (2.5e5, 5e5, 1e6, 2e6)
    """Critical batches, in a training of 2e10 tokens, that are tried."""
    critical_powers: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5)
    """Powers of the training's length that are tried."""

    def __post_init__(self) -> None:
        if len(self.shapes) < 2:
            raise ValueError(f"shapes: give two or more, so that one is left out: {self.shapes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A rule on ladders."""

    rule: str
    batches: str
    """The sweeps that it is about, in words."""
    count: int
    median_nats: float
    ninetieth_nats: float
    held: int
    """Best rates within the range about what it names."""
    times_best: float
    """Geometric mean of what it names over the best rate."""


def run(config: RateLawConfig, pieces: Pieces) -> Findings:
    """Reads, fits and judges; nothing is trained. Raises UserError for a file that is not there."""
    sweeps = [
        one
        for one in read_sweeps(Path(config.ladders))
        if f"{one.blocks}x{one.width}" in config.shapes
    ]
    others = [one for one in known_rates() if one.kind != "published ladder"]
    tried = _grid(config, sweeps, others)
    chosen = min(tried, key=lambda one: tried[one])
    rules = {LAW: law_without_shape(sweeps, others, CRITICAL), **naive_rules()}
    judged = [
        _judge(name, rule, words, some)
        for words, some in _by_batch(sweeps).items()
        for name, rule in rules.items()
    ]
    apart = _left_out_apart(sweeps, others)
    return Findings(
        conditions=_conditions(config, sweeps, chosen),
        claims=_claims(sweeps, rules),
        figures=[_figure(sweeps, rules)],
        tables=[_table(judged), _grid_table(tried), _table(apart, "Left out by what else")],
        data={
            "ladders": [_ladder(one) for one in sweeps],
            "judged": [asdict(one) for one in judged],
            "left_out": [asdict(one) for one in apart],
            "critical": [
                {"tokens": one.tokens, "power": one.power, "mean_nats": mean}
                for one, mean in tried.items()
            ],
            "off_median_nats": {f"{factor:g}": _median_off(sweeps, factor) for factor in _OFF},
            "law": _law_data(sweeps, others),
        },
    )


def _median_off(sweeps: Sequence[PublishedSweep], factor: float) -> float:
    """Returns the median of what a rate loses that is so many times the best."""
    return statistics.median(one.regret(factor * one.best_rate) for one in sweeps)


def _grid(
    config: RateLawConfig, sweeps: Sequence[PublishedSweep], others: Sequence[KnownRate]
) -> dict[CriticalBatch, float]:
    """Returns the mean loss on shapes left out, by the critical batch."""
    found = {}
    for tokens in config.critical_tokens:
        for power in config.critical_powers:
            critical = CriticalBatch(tokens=tokens, power=power)
            rule = law_without_shape(sweeps, others, critical)
            found[critical] = statistics.fmean(one.regret(rule(one)) for one in sweeps)
    return found


def _by_batch(sweeps: Sequence[PublishedSweep]) -> dict[str, list[PublishedSweep]]:
    """Returns all ladders, then those of each span of batches that has any, in words."""
    spans: defaultdict[int, list[PublishedSweep]] = defaultdict(list)
    for one in sweeps:
        spans[sum(one.batch_tokens > edge for edge in EDGES)].append(one)
    names = [
        f"at most {EDGES[0]:,}",
        *(f"{low + 1:,} to {high:,}" for low, high in pairwise(EDGES)),
        f"above {EDGES[-1]:,}",
    ]
    return {"all": list(sweeps)} | {names[place]: spans[place] for place in sorted(spans)}


def _judge(name: str, rule: RateRule, batches: str, sweeps: Sequence[PublishedSweep]) -> _Judged:
    lost = sorted(one.regret(rule(one)) for one in sweeps)
    ratios = [rule(one) / one.best_rate for one in sweeps]
    return _Judged(
        rule=name,
        batches=batches,
        count=len(sweeps),
        median_nats=statistics.median(lost),
        ninetieth_nats=lost[min(len(lost) - 1, math.ceil(0.9 * len(lost)) - 1)],
        held=sum(1 / WITHIN <= ratio <= WITHIN for ratio in ratios),
        times_best=statistics.geometric_mean(ratios),
    )


def _left_out_apart(sweeps: Sequence[PublishedSweep], others: Sequence[KnownRate]) -> list[_Judged]:
    """Judges the law fitted without the largest batches, the smallest, and every ladder."""
    parts: dict[str, Callable[[PublishedSweep], bool]] = {
        "batches above 1,000,000": lambda one: one.batch_tokens > 1e6,
        f"batches up to {EDGES[0]:,}": lambda one: one.batch_tokens <= EDGES[0],
        "every published ladder": lambda one: True,
    }
    judged = []
    for words, left_out in parts.items():
        some = [one for one in sweeps if left_out(one)]
        if some:
            rule = law_without(left_out, sweeps, others, CRITICAL)
            judged.append(_judge(LAW, rule, words, some))
    return judged


def _groups(sweeps: Sequence[PublishedSweep]) -> list[list[PublishedSweep]]:
    """Returns ladders of one shape and length together: they are of one model and one text."""
    found: defaultdict[tuple[str, float], list[PublishedSweep]] = defaultdict(list)
    for one in sweeps:
        found[one.family, one.tokens].append(one)
    return list(found.values())


def _claims(sweeps: Sequence[PublishedSweep], rules: Mapping[str, RateRule]) -> list[Claim]:
    groups = _groups(sweeps)
    law = rules[LAW]

    def median_of(some: Sequence[Sequence[PublishedSweep]]) -> float:
        return statistics.median(one.regret(law(one)) for group in some for one in group)

    less = {
        name: _less(groups, law, rule)
        for name, rule in rules.items()
        if name not in (LAW, STEP_LAW)
    }
    return [
        claim(
            "The median ladder loses little",
            f"On ladders of a shape that it was not fitted to the law loses at most {GOAL_NATS:g} "
            "nats in the median.",
            source="NormScope",
            value="median of what is lost, nats",
            holds={"all": jackknife(groups, median_of)},
            greatest=GOAL_NATS,
        ),
        claim(
            "Better than naive answers",
            "It loses less than 1e-3, 3e-4, the median of recipes near the width and the "
            "formula of Kaplan et al. 2020.",
            source="NormScope",
            value="what it loses less what they lose, mean, nats",
            holds=less,
            greatest=0.0,
        ),
        _range_claim(sweeps, law),
    ]


def _range_claim(sweeps: Sequence[PublishedSweep], law: RateRule) -> Claim:
    held = sum(1 / WITHIN <= law(one) / one.best_rate <= WITHIN for one in sweeps)
    low, high = proportion(held, len(sweeps))
    return judged(
        name="The range holds the best rate",
        statement=f"A range of a factor of {WITHIN:g} to either side holds the best rate of at "
        f"least {percentage(GOAL_SHARE, 0)} of ladders.",
        source="NormScope",
        found=f"{held} of {len(sweeps)} (95 % interval {percentage(low)} to {percentage(high)}, "
        "each ladder for itself)",
        holds={"all": True if low >= GOAL_SHARE else False if high < GOAL_SHARE else None},
    )


def _less(groups: Sequence[Sequence[PublishedSweep]], law: RateRule, rule: RateRule) -> Estimate:
    """Returns the mean of what the law loses less what a rule loses, over groups of ladders."""
    return jackknife(
        groups,
        lambda some: statistics.fmean(
            one.regret(law(one)) - one.regret(rule(one)) for group in some for one in group
        ),
    )


def _table(judged: Sequence[_Judged], title: str = "What each rule loses") -> StudyTable:
    return table(
        f"{title}, by tokens a batch",
        judged,
        [
            ("tokens a batch", lambda one: one.batches),
            ("rule", lambda one: one.rule),
            ("ladders", lambda one: one.count),
            ("median lost, nats", lambda one: one.median_nats),
            ("90 %, nats", lambda one: one.ninetieth_nats),
            (f"best rate within × {WITHIN:g}", lambda one: one.held),
            ("times the best rate", lambda one: one.times_best),
        ],
    )


def _grid_table(tried: Mapping[CriticalBatch, float]) -> StudyTable:
    return table(
        "Critical batches that were tried",
        list(tried.items()),
        [
            ("tokens, in a training of 2e10", lambda one: f"{one[0].tokens:g}"),
            ("power of the length", lambda one: one[0].power),
            ("mean lost on shapes left out, nats", lambda one: one[1]),
        ],
    )


def _figure(sweeps: Sequence[PublishedSweep], rules: Mapping[str, RateRule]) -> StudyFigure:
    """Draws best rates over the batch, a panel a shape, and what the law says of the longest."""
    by_family: defaultdict[str, list[PublishedSweep]] = defaultdict(list)
    for one in sweeps:
        by_family[one.family].append(one)
    panels = []
    for family, some in by_family.items():
        series = []
        for hue, tokens in enumerate(sorted({one.tokens for one in some})):
            there = sorted(
                (one for one in some if one.tokens == tokens), key=lambda one: one.batch_tokens
            )
            x = [float(one.batch_tokens) for one in there]
            best = [one.best_rate for one in there]
            said = [rules[LAW](one) for one in there]
            label = f"{tokens / 1e9:.0f}e9 tokens"
            series += [
                line(f"{label}, best", "measured", hue, x, best),
                line(f"{label}, law", "predicted", hue, x, said),
            ]
        panels.append(
            Panel(
                title=family.removeprefix("step-law "),
                xlabel="tokens a batch",
                ylabel="peak rate",
                log_x=True,
                log_y=True,
                series=series,
            )
        )
    return StudyFigure.of_panels(
        name="batches",
        title="Best rates of published ladders over the tokens of a batch",
        caption="The law was fitted without the shape it is drawn beside. The title of a panel is "
        "blocks x width, and the width of the feed-forward.",
        panels=panels,
        wide=True,
    )


def _conditions(
    config: RateLawConfig, sweeps: Sequence[PublishedSweep], chosen: CriticalBatch
) -> dict[str, str]:
    return {
        "ladders": f"{len(sweeps)} of {SOURCE}: Llama-like decoders under AdamW with a warm-up of "
        "2,000 updates and a cosine to 1e-5, sequences of 2,048 tokens",
        "shapes, blocks x width": ", ".join(config.shapes),
        "best rate": "the vertex of a parabola through the lowest rung and its neighbours",
        "lost": "against the lowest rung, on a line between rungs over the rate's logarithm",
        "fitted": "without the shape that the law is asked of; recipes have their own constant",
        "critical batch": f"{CRITICAL.tokens:g} tokens in a training of 2e10, with the power "
        f"{CRITICAL.power:g} of its length; of those tried {chosen.tokens:g} and "
        f"{chosen.power:g} lose least, in the mean",
        "intervals": "over groups of ladders of one shape and one length, jackknife",
    }


def _ladder(one: PublishedSweep) -> dict[str, Any]:
    return {
        "family": one.family,
        "width": one.width,
        "blocks": one.blocks,
        "batch_tokens": one.batch_tokens,
        "tokens": one.tokens,
        "best_rate": one.best_rate,
    }


def _law_data(sweeps: Sequence[PublishedSweep], others: Sequence[KnownRate]) -> dict[str, Any]:
    """Returns the constants of the law that is fitted to all."""
    fitted = RateLaw.fitted([*others, *(one.known for one in sweeps)])
    names = ("constant", "width", "sublayers", "normed_depth", "habit", "optimizers")
    return {name: getattr(fitted, name) for name in names}


STUDY = Study(
    title="How near does a law come to the best rates of published ladders?",
    question=(
        "What does the law of known rates lose on published ladders of learning rates whose shape "
        "of model it was not fitted to, by tokens a batch, beside naive answers?"
    ),
    help="How near is the law to published best rates?",
    scales=scales(RateLawConfig, smoke={"critical_powers": (0.4,)}, paper={}),
    run=run,
)
