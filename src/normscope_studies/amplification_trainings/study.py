"""The prediction of trainings by the change of the first update: claims, conditions, data."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from normscope.data.opening import open_corpus
from normscope.report.words import counted, number
from normscope.tasks.translation import TRANSLATION

from ..engine import checks
from ..engine.claims import judged
from ..engine.judging import LEARNED_NATS, Answer, answers
from ..engine.ladders import in_words, machines, sources
from ..engine.page import Claim, Findings
from ..engine.pieces import Pieces
from ..engine.study import Study
from .config import SCALES, AmplificationTrainingsConfig
from .foretelling import DEPTH, MEASURED, PREDICTED, RATE, WAYS
from .measure import STACKS
from .models import ClimbedModel, climbed_models
from .page import figures, of_blocks, tables
from .skill import (
    AREA,
    ERROR,
    LEFT_OUT,
    LOSS,
    MEASURES,
    ForetoldTrainings,
    FoundByChange,
    SkillGain,
    foretell,
)


def run(config: AmplificationTrainingsConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    checks.refuse_missing(config.corpus, "corpus", "normscope data prepare")
    first = config.training(config.placements[0], config.depths[0])
    corpus = open_corpus(first.data)
    unigram = TRANSLATION.chance_nats(corpus)
    models = climbed_models(config, corpus, unigram, pieces)
    trainings = [one for model in models if model.learned for one in model.trainings()]
    found = {change: foretell(trainings, change) for change in (MEASURED, PREDICTED)}
    cells = [one.cell for model in models for row in model.runs for one in row]
    trained_by = {}
    for cell in cells:
        # Models of two depths have runs of one name.
        for name, source in sources([cell]).items():
            trained_by[f"{cell.above.name}/{name}"] = source
    machine = {"Machine": machines(cells), "Trained by": in_words(trained_by)}
    return Findings(
        conditions=_conditions(config, models) | machine,
        claims=claims(config, found),
        figures=figures(config, models),
        tables=tables(found, models),
        data={
            "unigram_nats": unigram,
            "trainings": [asdict(one) for one in trainings],
            "gains": _gains(config, found),
            "runs": trained_by,
        },
    )


_SAID = (
    "Liu et al. 2020, arXiv:2004.08249, section 4: the amplification of small changes makes "
    "trainings unstable"
)


class _Comparison(NamedTuple):
    """A way to foretell, one that it is held against, and by which measure."""

    way: str
    other: str
    measure: str


_ASKED = (
    _Comparison(MEASURED, RATE, LOSS),
    _Comparison(PREDICTED, RATE, LOSS),
    _Comparison(MEASURED, RATE, AREA),
    _Comparison(PREDICTED, RATE, AREA),
    _Comparison(MEASURED, RATE, ERROR),
    _Comparison(PREDICTED, RATE, ERROR),
    _Comparison(MEASURED, DEPTH, LOSS),
    _Comparison(PREDICTED, DEPTH, LOSS),
)
_MORE = 1e-9
"""A gain below this is the rounding of two fits that are one: nothing is foretold beyond."""
_TITLES = {
    LOSS: "foretells which trainings fail",
    AREA: "tells trainings that fail from others",
    ERROR: "foretells how high trainings end",
}


def claims(config: AmplificationTrainingsConfig, found: FoundByChange) -> list[Claim]:
    """Makes the claims that the change by the first update does better than the rate alone, and
    than rate and depth.
    """
    return [_claim(config, found[asked.way], asked) for asked in _ASKED]


def _claim(
    config: AmplificationTrainingsConfig, found: ForetoldTrainings | None, asked: _Comparison
) -> Claim:
    way = WAYS[asked.way]
    other = WAYS[asked.other]
    measure = MEASURES[asked.measure]
    parts, holds = [], dict[str, Answer]()
    for left_out in LEFT_OUT:
        if found is None:
            parts.append(f"{left_out}: too few models learned")
            holds[left_out] = None
            continue
        gain = found.gain(left_out, *asked, fewest=config.fewest_placements)
        own = found.skill(left_out, asked.way, asked.measure)
        others = found.skill(left_out, asked.other, asked.measure)
        parts.append(
            f"{left_out}: {number(own, 3)} and {number(others, 3)} {measure.unit}, better by "
            f"{_shown(config, gain, found)}"
        )
        holds[left_out] = answers(gain.low, gain.high, _MORE, math.inf)[0]
    return judged(
        name=f"The {asked.way} change {_TITLES[asked.measure]}, beside the {asked.other}",
        statement=(
            f"Of trainings that the fit has not seen, {way.told} foretell more than {other.told}, "
            f"judged by {measure.told}."
        ),
        source=_SAID if asked.other == RATE else "NormScope",
        found="; ".join(parts),
        holds=holds,
    )


def _shown(config: AmplificationTrainingsConfig, gain: SkillGain, found: ForetoldTrainings) -> str:
    value = number(gain.value, 3)
    if not math.isnan(gain.low):
        return f"{value} ({number(gain.low, 3)} to {number(gain.high, 3)})"
    count = len(found.rows_of)
    if count < config.fewest_placements:
        return f"{value}, of {counted(count, 'placement')}, which are too few for an interval"
    return f"{value}, without an interval, as too few trainings fail"


def _gains(config: AmplificationTrainingsConfig, found: FoundByChange) -> list[dict[str, Any]]:
    """Returns the gains of every claim, by what was left out; without those that could not be
    asked.
    """
    gains = []
    for asked in _ASKED:
        there = found[asked.way]
        if there is None:
            continue
        for left_out in LEFT_OUT:
            gain = there.gain(left_out, *asked, fewest=config.fewest_placements)
            gains.append({**asked._asdict(), "left_out": left_out, **gain._asdict()})
    return gains


def _conditions(
    config: AmplificationTrainingsConfig, models: Sequence[ClimbedModel]
) -> dict[str, str]:
    return (
        _of_trainings(config, models[0].unigram_nats) | _of_foretelling(config) | _left_out(models)
    )


def _of_trainings(config: AmplificationTrainingsConfig, unigram: float) -> dict[str, str]:
    warmup = "no warm-up"
    if config.warmup_updates:
        warmup = f"a warm-up of {counted(config.warmup_updates, 'update')}"
    return {
        "Models": (
            f"encoder-decoders of {', '.join(map(str, config.depths))} blocks in each stack, width "
            f"{config.width}, feed-forward {config.ffn_width}, {config.heads} heads, initial "
            "weights as each placement's source draws them"
        ),
        "Text": f"{config.corpus}; unigram baseline {number(unigram, 3)} nats",
        "Tokens": f"batches of {config.max_tokens}",
        "Training": (
            f"{config.updates:,} updates of {config.optimizer} at {len(config.peak_lrs)} rates, "
            f"{config.peak_lrs[0]:g} to {config.peak_lrs[-1]:g}, {warmup}, then in a straight line "
            "to 0; gradients not clipped"
        ),
        "Failed": (
            f"a training that ends less than {LEARNED_NATS:g} nats below the unigram baseline, at "
            "a rate at or above its model's best; below it such a training is slow, and has not "
            "failed"
        ),
        "Gradient normalisation": "mean label-smoothed loss per target token",
        "Logarithm": "natural: losses in nats; of base 10 in what is foretold from",
        "Seeds": f"{config.seeds}: weights and batches",
    }


def _of_foretelling(config: AmplificationTrainingsConfig) -> dict[str, str]:
    return {
        "Change": (
            "E(f* − f)² of the logits by the first update of all weights, over the rate's square: "
            "measured on the run's own first batch, in float64; predicted from the formula of an "
            f"encoder of {STACKS} times as many blocks, at random targets"
        ),
        "Foretold": (
            "by a logistic regression whether it fails, and by a linear one with squares and "
            "products where it ends, of logarithms, standardised, with a penalty; fitted to the "
            "trainings of other placements, or of other depths"
        ),
        "Spread": (
            "intervals are of 95 %, percentiles over 2,000 resamples of placements, each with all "
            f"its trainings; fewer than {config.fewest_placements} placements decide nothing"
        ),
    }


def _left_out(models: Sequence[ClimbedModel]) -> dict[str, str]:
    made = {}
    unlearned = [f"{one.title} of {of_blocks(one.blocks)}" for one in models if not one.learned]
    if unlearned:
        made["Left out"] = f"learned at no rate: {'; '.join(unlearned)}"
    refused = dict.fromkeys(one.title for one in models if one.predicted is None)
    if refused:
        made["Not predicted"] = (
            f"{', '.join(refused)}: left out where the predicted change is asked about"
        )
    return made


STUDY = Study(
    title="Does the change by the first update foretell the training?",
    question=(
        "Does how far one update moves a model's output, measured or predicted from its formula, "
        "foretell which trainings fail and how high they end, beyond what the rate alone tells?"
    ),
    help="Do changes by one update foretell trainings?",
    scales=SCALES,
    run=run,
)
