"""Which trainings are foretold: those that rules are fitted to, and others that they are judged on."""

from dataclasses import dataclass

from ..advice.cases.families import cases
from ..advice.config import SCALES as ADVICE_SCALES
from ..advice.config import AdviceConfig
from ..engine.study import Scale
from .held_out import HELD_OUT


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


SCALES = {
    "smoke": Scale(
        config=AmplificationTrainingsConfig(
            cases=ADVICE_SCALES["smoke"].config.cases,
            updates=40,
            probe_updates=30,
            warmup_ladder=(8,),
            trial_updates=6,
        ),
        decides=False,
    ),
    "cpu": Scale(config=AmplificationTrainingsConfig(cases=tuple(cases(HELD_OUT)))),
    "paper": Scale(
        config=AmplificationTrainingsConfig(cases=tuple(cases(HELD_OUT)), updates=2000, warmup_ladder=(100, 400, 1000))
    ),
}
