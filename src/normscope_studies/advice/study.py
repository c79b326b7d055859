"""The doctor's advice: fitted to short trainings, and judged on families of models that it has not seen."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from normscope.doctor.advise.rule import Rule

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .claims import claims
from .conditions import conditions
from .config import SCALES, AdviceConfig
from .figures import figures
from .fit import families, fitted, left_out
from .measuring import judged_of, known_of, probed_of
from .partial import partly
from .probing import fitted_probe
from .side_by_side import side_by_side
from .tables import data, tables
from .trained.tasks import task_of
from .truth import Known
from .warmup import warmup_cases, warmup_of


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a text or a corpus that is not there."""
    for case in {(case.architecture, case.text): case for case in config.cases}.values():
        task_of(case, config.text_file, config.corpus)
    make = partial(side_by_side, processes=config.processes, pieces=pieces)
    known = make(partial(known_of, config), config.cases, stage="cases")
    usable = [one for one in known if one.learned]
    rules = _rules(usable, config)
    found = make(partial(probed_of, config), [(one, rules[one.case.family]) for one in usable], stage="probes")
    rules = {
        family: replace(
            rules[family], probe=fitted_probe([one for one in found if one.family != family], config.probe_updates)
        )
        for family in families(usable)
    }
    judged = make(partial(judged_of, config), [(one, rules[one.family]) for one in found], stage="range tests")
    warmups = make(partial(warmup_of, config), warmup_cases(usable), stage="warm-ups")
    rule = replace(fitted(usable, horizon_updates=config.updates), probe=fitted_probe(found, config.probe_updates))
    early = partly(usable, config.updates)
    return Findings(
        conditions=conditions(config, known),
        claims=claims(judged, warmups),
        figures=figures(judged),
        tables=tables(known, judged, warmups, early),
        data=data(rule, known, judged, warmups, early),
    )


def _rules(usable: Sequence[Known], config: AdviceConfig) -> dict[str, Rule]:
    """By family, each fitted to all others."""
    return {left[0].case.family: fitted(rest, horizon_updates=config.updates) for rest, left in left_out(usable)}


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
