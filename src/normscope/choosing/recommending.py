"""What we would do with a model that is to be trained: placement, peak rate and warm-up, in a line each.

Each line says how sure that is and what would make it surer. Evidence of ours counts where its size is near; else what
others have trained models of the kind with, read at the place cited, the nearest in width and depth first.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..report.words import interval, learning_rate
from .case import counts_for
from .choice import EvidenceForModel, PlacementEvidence
from .evidence import BASELINE, BestRate, EvidenceRow, Published

WITHIN = 3.0
"""A rate is named with a range of this factor to either side: `results/advice` judges the instant advice by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
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


def recommended(choice: EvidenceForModel) -> list[Recommendation]:
    """Placement, peak rate, warm-up."""
    placement, line = _placement(choice)
    recipes = _recipes(choice)
    return [line, _rate(choice, placement, recipes), _warmup(choice, placement, recipes)]


def plain(choice: EvidenceForModel) -> dict[str, Any]:
    """As docs/choosing.md describes it under "As data"."""
    found = asdict(choice)
    del found["settings"]
    for one, measured in zip(found["measured"], choice.measured, strict=True):
        one["scale"] = measured.scale
    return {**found, "recommended": [asdict(one) for one in recommended(choice)]}


def _near(choice: EvidenceForModel, claim: PlacementEvidence) -> list[EvidenceRow]:
    return [one for one in claim.findings if choice.scale(one.setting) == "near"]


def _placement(choice: EvidenceForModel) -> tuple[str, Recommendation]:
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
            for one in choice.published
            if one.checked == "read" and BASELINE in one.placements and counts_for(choice.case.optimizer, one.optimizer)
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
    return name, Recommendation(what="Placement", says=name, sure=said, surer=tried)


def _recipes(choice: EvidenceForModel) -> list[Published]:
    """Of the same optimiser, with a rate, the nearest in width and depth first."""
    case = choice.case

    def away(one: Published) -> float:
        sizes = ((case.width, one.width), (case.blocks, one.blocks))
        return sum(min((abs(math.log(own / other)) for other in others), default=9.0) for own, others in sizes)

    known = [one for one in choice.published if one.peak_lr and one.checked == "read"]
    return sorted((one for one in known if counts_for(case.optimizer, one.optimizer)), key=away)


def _rate(choice: EvidenceForModel, placement: str, recipes: Sequence[Published]) -> Recommendation:
    near = [one for one in choice.rates if one.placement == placement and choice.scale(one.setting) == "near"]
    if near:
        best = min(near, key=_loss)
        edge = ", at the ladder's end, so that a better one may lie beyond" if best.at_an_end else ""
        rate, said = best.peak_lr, f"Measured: the best of a ladder near this size{edge} (results/{best.setting})."
    elif recipes:
        one = recipes[0]
        rate = one.peak_lr or 0.0
        size = f"{one.blocks[0]} blocks of width {one.width[0]:,}"
        said = f"Not sure: the nearest recipe that we read, {size} ({one.citation}), and no comparison of rates."
    else:
        return Recommendation(
            what="Peak rate",
            says="not known under this optimiser",
            sure="Nothing near was measured, and no recipe that we read has one.",
            surer="`normscope doctor MODEL --probe 60`, which names a rate for your model from short trainings",
        )
    return Recommendation(
        what="Peak rate",
        says=f"{learning_rate(rate)}, between {learning_rate(rate / WITHIN)} and {learning_rate(rate * WITHIN)}",
        sure=said,
        surer="`normscope doctor MODEL --probe 60`, which reads a rate from short trainings of your model",
    )


def _loss(rate: BestRate) -> float:
    return math.fsum(rate.loss_nats) / len(rate.loss_nats)


def _warmup(choice: EvidenceForModel, placement: str, recipes: Sequence[Published]) -> Recommendation:
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
        return Recommendation(
            what="Warm-up",
            says="none needed" if without else "yes, as long as in that result",
            sure=f"Measured: near this size the loss without it less that with it is "
            f"{interval(found.mean, found.half_width)} (results/{found.setting}).",
            surer=surer,
        )
    if told := [one for one in recipes if one.warmup]:
        one = told[0]
        return Recommendation(
            what="Warm-up",
            says=one.warmup,
            sure=f"Not sure: the nearest recipe ({one.citation}); nothing of ours near this size decides whether "
            f"{placement} needs one.",
            surer=surer,
        )
    return Recommendation(
        what="Warm-up",
        says="1 % of the updates",
        sure=f"A guess: nothing near decides whether {placement} needs one, and so short a one costs little.",
        surer=surer,
    )
