"""Configurations that were trained at several rates or one: each placement at its own best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..evidence import BASELINE, BestRate, EvidenceRow, EvidenceSetting, QuestionName
from .judged import paired


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One configuration, all of its seeds."""

    placement: str
    optimizer: str
    warmup_updates: int
    peak_lr: float
    losses: Sequence[float]
    source: str
    """JSON pointer to the losses; * stands for every entry of a list."""

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)


def own_best(setting: EvidenceSetting, arms: Sequence[Arm], note: str = "") -> Iterator[EvidenceRow | BestRate]:
    """The best rates, and what the losses there say.

    Where one rate was tried for all, that says who does without warm-up at that rate, and nothing of who ends lower:
    another rate may be the better one for either.
    """
    best = _best(arms)
    for key, arm in best.items():
        rates = [one.peak_lr for one in arms if _key(one) == key]
        if len(rates) > 1:
            yield BestRate(
                placement=arm.placement,
                optimizer=arm.optimizer,
                setting=setting.name,
                warmup_updates=arm.warmup_updates,
                peak_lr=arm.peak_lr,
                ladder=(min(rates), max(rates)),
                at_an_end=arm.peak_lr in (min(rates), max(rates)),
                loss_nats=list(arm.losses),
                source=arm.source,
            )
    for pair in dict.fromkeys((arm.placement, arm.optimizer) for arm in arms):
        own = [arm for key, arm in best.items() if key[:2] == pair]
        rates = sorted({arm.peak_lr for arm in arms if _key(arm)[:2] == pair})
        one_rate = f"at the rate {rates[0]:g} alone" if len(rates) == 1 else ""
        said = "; ".join(filter(None, [one_rate, note]))
        theirs = [arm for key, arm in best.items() if key[:2] == (BASELINE, pair[1])]
        cold = [arm for arm in own if arm.warmup_updates == 0]
        warm = [arm for arm in own if arm.warmup_updates]
        if cold and warm:
            yield _finding("no-warmup", setting, cold[0], warm[0], said)
        if theirs and pair[0] != BASELINE and not one_rate:
            first, second = (min(some, key=lambda arm: arm.mean) for some in (own, theirs))
            yield _finding("lower-loss", setting, first, second, said)


def _finding(question: QuestionName, setting: EvidenceSetting, first: Arm, second: Arm, note: str) -> EvidenceRow:
    return paired(
        question,
        placement=first.placement,
        optimizer=first.optimizer,
        setting=setting,
        losses=(first.losses, second.losses),
        source=[first.source, second.source],
        note=note,
    )


def _best(arms: Sequence[Arm]) -> dict[tuple[str, str, int], Arm]:
    """By placement, optimiser and warm-up, the arm with the lowest mean."""
    found: dict[tuple[str, str, int], Arm] = {}
    for arm in arms:
        key = _key(arm)
        if key not in found or arm.mean < found[key].mean:
            found[key] = arm
    return found


def _key(arm: Arm) -> tuple[str, str, int]:
    return arm.placement, arm.optimizer, arm.warmup_updates
