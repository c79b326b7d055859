"""Trainings that no rule was fitted to: other placements, initial weights and depths, and Muon.

Which trainings are foretold: those that rules are fitted to, and others that they are judged on.

Trainings that are foretold: fitted to those of the study of advice, judged on families left out and on others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from normscope.doctor.advise.rule import EarlyRule, shipped_rule
from normscope.doctor.advise.short_run import ShortRun

from ..advice.cases import AdviceConfig, Families, cases, rate_of
from ..advice.ladder import TrainedCase, piece_of
from ..advice.measuring import judged_of, known_of, probed_of, side_by_side, warmup_cases, warmup_of
from ..advice.study import SCALES as ADVICE_SCALES
from ..advice.study import conditions as conditions_of_trainings
from ..advice.tasks import task_of
from ..engine.models import settings_of
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .foretelling import foretold, left_out_foretold, odds, without_constants
from .measure import changes_along, known_in, predicted_change, trials_at, vocabulary_of
from .page import SETS, ForecastsByWay, claims, data, figures, tables
from .ways import EARLY, FACTS, FACTS_AND_EARLY, FORMULA_ALONE, MEASURED, PREDICTED, CaseLook, ways

HELD_OUT: Families = {
    ("decoder", "pieces", "paper"): "post-ln 6x48:adamw; sub-ln 4x48:muon; keel 6x32:adamw; x0-residual 4x48:lion; "
    "lns 8x32:adam",
    ("decoder", "toy", "normal-by-width"): "pre-ln 16x32:adamw; reordered 6x32:adamw; layer-scale 4x64:radam; "
    "scale-norm 4x48:sgd; siamese-norm 4x32:adam",
    ("decoder", "characters", "small-attention"): "admin-constant 6x48:adamw; gpt2 8x48:adamw; mhc 3x32:lion; "
    "post-ln 3x96:adam; normformer 4x48:sgd",
    ("encoder-decoder", "toy", "small-attention"): "post-ln 3x48:adam; olmo-2 3x32:adamw; sub-ln 4x32:lion; "
    "lns 3x48:radam; pre-ln 2x64:sgd",
    ("encoder-decoder", "multi30k", "paper"): "post-ln 3x32:adam; admin-constant 2x48:adamw; keel 2x32:radam; "
    "zaya 3x32:lion; scale-norm 2x48:sgd",
    ("encoder-decoder", "multi30k", "normal-by-width"): "pre-ln 3x48:muon; reordered 2x32:adam; minicpm 2x48:lion; "
    "layer-scale 3x32:adamw",
}
"""As `FAMILIES` of the study of advice: none of these families is one of those, and of the placements
Post-LN and Pre-LN alone are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationTrainingsConfig(AdviceConfig):
    """`cases` are the held-out ones."""

    known: str = "results/advice/results.json"
    """Results of `normscope study advice`, whose trainings everything is fitted to; on the same texts."""
    trial_updates: int = 12
    """Of the short trainings that are looked at."""

    def __post_init__(self) -> None:
        # Without an argument it would look for the class that slots replaced.
        AdviceConfig.__post_init__(self)
        if not 1 < self.trial_updates <= self.updates:
            raise ValueError("trial_updates must be more than 1, and no more than updates")


_SMOKE = settings_of(ADVICE_SCALES["smoke"].config, "cases", "updates", "probe_updates", "warmup_ladder")
SCALES = scales(
    AmplificationTrainingsConfig,
    every={"cases": tuple(cases(HELD_OUT))},
    smoke=_SMOKE | {"trial_updates": 6},
    paper={"updates": 2000, "warmup_ladder": (100, 400, 1000)},
)


_SHOWN = (FORMULA_ALONE, PREDICTED, MEASURED, FACTS, EARLY, FACTS_AND_EARLY)


def run(config: AmplificationTrainingsConfig, pieces: Pieces) -> Findings:
    """One piece a training, and one a look. Raises UserError for a text, a corpus or results that are not there."""
    fitted_to = known_in(Path(config.known))
    for case in {
        (case.architecture, case.text): case for case in (*config.cases, *(one.case for one in fitted_to))
    }.values():
        task_of(case, config.text_file, config.corpus)
    make = partial(side_by_side, processes=config.processes, pieces=pieces)
    known = make(partial(known_of, config), config.cases, stage="held-out cases")
    usable = [one for one in known if one.learned]
    rule = shipped_rule()
    probed = make(partial(probed_of, config), [(one, rule) for one in usable], stage="probes")
    judged = make(partial(judged_of, config), [(one, rule) for one in probed], stage="range tests")
    warmups = make(partial(warmup_of, config), warmup_cases(usable), stage="warm-ups")
    seen = [one for one in fitted_to if one.learned]
    looked = make(partial(_looked, config), [*seen, *usable], stage="looks")
    asked = ways(config.trial_updates)
    fit, held_out = looked[: len(seen)], looked[len(seen) :]
    of_set = dict(zip(SETS, (fit, held_out), strict=True))
    found: ForecastsByWay = {
        name: {way.name: left_out_foretold(way, fit) if some is fit else foretold(way, fit, some) for way in asked}
        for name, some in of_set.items()
    }
    raw = {name: {way.name: without_constants(way, some) for way in asked} for name, some in of_set.items()}
    early_rule = EarlyRule(odds=odds(asked[-1], fit), updates=config.trial_updates)
    return Findings(
        conditions=_conditions(config, fitted_to, known, looked),
        claims=claims(found, judged, warmups),
        figures=figures(found, _SHOWN),
        tables=tables(found, raw, judged, warmups),
        data=data(found, raw, known, looked, judged, warmups, asked, early_rule),
    )


def _looked(config: AmplificationTrainingsConfig, known: TrainedCase, pieces: Pieces) -> CaseLook:
    case = known.case
    steps = sorted(known.outcomes)
    asked = partial(piece_of, case, config=config, pieces=pieces)
    vocabulary = asked("vocabulary", measure=vocabulary_of)
    settings = {**asdict(case), **config.places, "vocabulary": vocabulary}
    predicted = pieces.get(f"{case.name}/predicted", settings, predicted_change, case, vocabulary=vocabulary)
    along: dict[str, Any] = asked("along", measure=changes_along)
    updates = config.trial_updates
    trials = asked(f"trials-{updates}", measure=trials_at, steps=steps, updates=updates)
    return CaseLook(
        known=known,
        predicted=predicted,
        rates=along["rates"],
        changes=along["changes"],
        trials={step: _trial(rate_of(step), table) for step, table in zip(steps, trials, strict=True)},
    )


def _trial(rate: float, table: Mapping[str, Sequence[float | None]]) -> ShortRun:
    """What was not finite is null in a piece."""
    losses, spreads = (
        tuple(math.nan if value is None else value for value in table[name]) for name in ("losses", "spreads")
    )
    return ShortRun(rate=rate, warmup_updates=0, losses=losses, spreads=spreads)


def _conditions(
    config: AmplificationTrainingsConfig,
    fitted_to: Sequence[TrainedCase],
    known: Sequence[TrainedCase],
    looked: Sequence[CaseLook],
) -> dict[str, str]:
    """As of the trainings; what everything is fitted to, and how a family is judged."""
    found = conditions_of_trainings(config, known)
    learned = sum(one.learned for one in fitted_to)
    held_out = sum(one.learned for one in known)
    found["cases"] = (
        f"{learned} of {len(fitted_to)} that learned, of {config.known}, each family judged by constants fitted to the "
        f"others; {len(known)} held-out ones, of which {held_out} learned, judged by constants fitted to all of those"
    )
    found["without a prediction"] = f"{sum(one.predicted is None for one in looked)} cases, left out of that way alone"
    found["intervals"] = "95 %, over cases, by leaving out one at a time"
    return found


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
