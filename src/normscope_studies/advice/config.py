"""How much is trained to fit the doctor's advice, and to judge it."""

from dataclasses import dataclass

from ..engine.study import Scale
from .cases.case import Case
from .cases.families import cases


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceConfig:
    """Cases and the length of their trainings."""

    cases: tuple[Case, ...]
    updates: int = 200
    """Of a training; one with a warm-up is longer by that."""
    probe_updates: int = 60
    """Of a whole probe of rates, and of a range test beside it."""
    warmup_ladder: tuple[int, ...] = (10, 20, 40, 80, 160)
    """Warm-ups that are tried, in updates."""
    text_file: str = "corpora/wikipedia.txt"
    """Running text, for characters and pieces."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, for translation."""
    processes: int = 0
    """Cases at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        if len({case.family for case in self.cases}) < 3:
            raise ValueError(
                "cases must be of at least three families, because each is judged by a rule fitted to the others"
            )
        if min(self.updates, self.probe_updates) < 1 or self.processes < 0:
            raise ValueError("updates and probe_updates must be at least 1, processes at least 0")
        if list(self.warmup_ladder) != sorted(set(self.warmup_ladder)) or min(self.warmup_ladder, default=1) < 1:
            raise ValueError(f"warmup_ladder must rise from at least 1, got {self.warmup_ladder}")

    @property
    def places(self) -> dict[str, str]:
        """Where the texts are, as what is measured takes them."""
        return {"text_file": self.text_file, "corpus": self.corpus}


def _small(placement: str, initialisation: str) -> Case:
    return Case(
        architecture="decoder",
        text="toy",
        initialisation=initialisation,
        placement=placement,
        blocks=1,
        width=32,
        tokens=128,
        length=32,
    )


SCALES = {
    "smoke": Scale(
        config=AdviceConfig(
            cases=tuple(
                _small(placement, scheme)
                for scheme in ("xavier-uniform", "normal-0.02", "megatron")
                for placement in ("post-ln", "pre-ln")
            ),
            updates=40,
            probe_updates=30,
            warmup_ladder=(8,),
        ),
        decides=False,
    ),
    "cpu": Scale(config=AdviceConfig(cases=tuple(cases()))),
    "paper": Scale(config=AdviceConfig(cases=tuple(cases()), updates=2000, warmup_ladder=(100, 400, 1000))),
}
