"""How much is trained to fit the doctor's advice, and to judge it."""

from dataclasses import dataclass

from ...data.parallel.opening import TOY
from ..protocol.scale import Scale
from .cases import Case, calibration_cases, evaluation_cases, warmup_cases


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceConfig:
    """Cases and the length of their trainings."""

    calibration: tuple[Case, ...]
    """What constants are fitted to."""
    evaluation: tuple[Case, ...]
    """What they are judged by."""
    warmups: tuple[Case, ...]
    """Of the calibration's: what the length of a warm-up is fitted to."""
    updates: int = 150
    """Of a training on the toy language."""
    corpus_updates: int = 250
    """Of one on another corpus, whose vocabulary is larger."""
    max_tokens: int = 512
    """Of a batch."""
    warmup_ladder: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    """Warm-ups that are tried, in updates; trainings with one are longer by it."""
    warmup_steps: tuple[int, ...] = (1, 3)
    """Steps of the ladder of rates beyond the largest that trains without warm-up, where one is looked for."""
    processes: int = 0
    """Cases at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        for name in ("calibration", "evaluation"):
            if len(getattr(self, name)) < 2:
                raise ValueError(f"{name} needs at least two cases")
        if set(self.calibration) & set(self.evaluation):
            raise ValueError("no case may be in both calibration and evaluation")
        if not set(self.warmups) <= set(self.calibration):
            raise ValueError("warmups must be among the cases of the calibration")
        if min(self.updates, self.corpus_updates, self.max_tokens) < 1 or self.processes < 0:
            raise ValueError("updates, corpus_updates and max_tokens must be at least 1, processes at least 0")
        if list(self.warmup_ladder) != sorted(set(self.warmup_ladder)) or min(self.warmup_ladder, default=1) < 1:
            raise ValueError(f"warmup_ladder must rise from at least 1, got {self.warmup_ladder}")

    def updates_of(self, case: Case) -> int:
        return self.updates if case.corpus == TOY else self.corpus_updates


MULTI30K = "corpora/multi30k_deen"


def _small(placement: str, seed: int) -> Case:
    return Case(placement=placement, blocks=1, width=32, seed=seed)


SCALES = {
    "smoke": Scale(
        config=AdviceConfig(
            calibration=(_small("post-ln", 1), _small("pre-ln", 1)),
            evaluation=(_small("post-ln", 2), _small("pre-ln", 2)),
            warmups=(_small("post-ln", 1),),
            updates=60,
            warmup_ladder=(16,),
            warmup_steps=(1,),
        ),
        decides=False,
    ),
    "cpu": Scale(
        config=AdviceConfig(
            calibration=tuple(calibration_cases(MULTI30K)),
            evaluation=tuple(evaluation_cases(MULTI30K)),
            warmups=tuple(warmup_cases()),
        )
    ),
    "paper": Scale(
        config=AdviceConfig(
            calibration=tuple(calibration_cases(MULTI30K)),
            evaluation=tuple(evaluation_cases(MULTI30K)),
            warmups=tuple(warmup_cases()),
            updates=2000,
            corpus_updates=4000,
            max_tokens=4096,
            warmup_ladder=(16, 64, 256, 1024),
        )
    ),
}
