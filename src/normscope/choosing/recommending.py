"""What we would do with a model that is to be trained: placement, peak rate and warm-up, in a line each.

Each line says how sure that is and what would make it surer. The rate is the one that the doctor names too.
"""

from dataclasses import asdict, dataclass
from typing import Any

from ..report.words import interval, learning_rate, surer_rate
from .case import counts_for
from .choice import EvidenceForModel, PlacementEvidence
from .evidence import BASELINE, EvidenceRow
from .rates import RateFacts, TypicalRate, recipes, typical_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recommendation:
    """One of the three."""

    what: str
    """Placement, peak rate or warm-up."""
    says: str
    sure: str
    """How sure that is, and whence."""
    surer: str
    """What would make it surer."""

    def __str__(self) -> str:
        return f"{self.what}: {self.says}. {self.sure} Surer: {self.surer}."


def recommended(choice: EvidenceForModel) -> list[_Recommendation]:
    """Placement, peak rate, warm-up."""
    placement, line = _placement(choice)
    found = typical_rate(RateFacts.of_case(choice.case, placement))
    return [line, _rate(found, choice.case.optimizer), _warmup(choice, placement, found)]


def plain(choice: EvidenceForModel) -> dict[str, Any]:
    """As docs/choosing.md describes it under "As data"."""
    found = asdict(choice)
    del found["settings"]
    for one, measured in zip(found["measured"], choice.measured, strict=True):
        one["scale"] = measured.scale
    return {**found, "recommended": [asdict(one) for one in recommended(choice)]}


def _near(choice: EvidenceForModel, claim: PlacementEvidence) -> list[EvidenceRow]:
    return [one for one in claim.findings if choice.scale(one.setting) == "near"]


def _placement(choice: EvidenceForModel) -> tuple[str, _Recommendation]:
    """The lowest that ends below the baseline in a result near this size, else the baseline."""
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    supported = lower.of("supported")
    near = [claim for claim in supported if _near(choice, claim)]
    if near:
        name, found = near[0].placement, _near(choice, near[0])[0]
        said = (
            f"Measured near this size: it ends {interval(found.mean, found.half_width)} nats from {BASELINE}, "
            f"{found.seeds} seeds (results/{found.setting}), the lowest of many that are each judged by itself."
        )
        tried = f"`normscope compare` of {name} and {BASELINE} on your text, with three seeds"
    else:
        name, own = BASELINE, supported[:1]
        read = [
            one
            for one in recipes()
            if (one.model, one.placement) == (choice.case.model, BASELINE)
            and counts_for(choice.case.optimizer, one.optimizer)
        ]
        others = f" It is what others train such models with ({read[0].citation})." if read else ""
        smaller = (
            f" In far smaller trainings {own[0].placement} ends lowest, "
            f"{interval(own[0].findings[0].mean, own[0].findings[0].half_width)} nats from it "
            f"(results/{own[0].findings[0].setting}): a reason to try it."
            if own
            else ""
        )
        said = f"Not sure: nothing of ours compares placements near this size.{others}{smaller}"
        tried = f"`normscope compare` of {BASELINE} and {own[0].placement if own else 'another'} on your text"
    return name, _Recommendation(what="Placement", says=name, sure=said, surer=tried)


def _rate(found: TypicalRate | None, optimizer: str) -> _Recommendation:
    surer = surer_rate(found and found.rate, compared="FILE.py:FUNCTION", optimizer=optimizer)
    if found is None:
        return _Recommendation(
            what="Peak rate",
            says="not known under this optimiser",
            sure="Nothing near this width was trained with it, as far as we know.",
            surer=surer,
        )
    return _Recommendation(
        what="Peak rate",
        says=f"{learning_rate(found.rate, 2)}, between {learning_rate(found.low, 2)} and "
        f"{learning_rate(found.high, 2)}",
        sure=found.stands_on,
        surer=surer,
    )


def _warmup(choice: EvidenceForModel, placement: str, typical: TypicalRate | None) -> _Recommendation:
    (asked,) = (one for one in choice.answers if one.question.name == "no-warmup")
    near = [
        finding
        for claim in asked.claims
        if claim.placement == placement and claim.group in ("supported", "contradicted")
        for finding in _near(choice, claim)
    ]
    surer = "`normscope compare --warmup-updates 0,N` at your rate"
    if near:
        found = near[0]
        without = found.answer == "supported"
        return _Recommendation(
            what="Warm-up",
            says="none needed" if without else "yes, as long as in that result",
            sure=f"Measured: near this size the loss without it less that with it is "
            f"{interval(found.mean, found.half_width)} (results/{found.setting}).",
            surer=surer,
        )
    said = typical.warmup if typical is not None else ""
    return _Recommendation(
        what="Warm-up",
        says=said or "not known",
        sure=f"Nothing of ours near this size decides whether {placement} needs one, or how short a one suffices.",
        surer=surer,
    )
