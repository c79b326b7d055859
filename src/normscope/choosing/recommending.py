"""The recommendation for one model: placement, peak rate and warm-up.

Each of the three says how sure it is and what would make it surer. The rate is the one that the
doctor names too.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..report.words import counted, interval, learning_rate, rates_command, surer_rate
from .case import ModelToTrain, counts_for
from .choice import EvidenceForModel, QuestionAnswers
from .evidence import BASELINE, EvidenceRow
from .law import RateFacts
from .rates import (
    STEPS,
    WRONG_COST,
    TypicalRate,
    nearest,
    typical_rate,
    usual_warmup,
)
from .recipes import recipes

_OWN = "FILE.py:FUNCTION --warmup-updates"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recommendation:
    """One of the three."""

    what: str
    """Placement, peak rate or warm-up."""
    says: str
    sure: str
    """The certainty of the recommendation, and its sources."""
    surer: str
    """The check that would make it more certain."""

    @property
    def why(self) -> str:
        return f"{self.what}. {self.sure} To check: {self.surer}."


def recommended(choice: EvidenceForModel) -> list[_Recommendation]:
    """Placement, peak rate, warm-up."""
    placement, line = _placement(choice)
    found = typical_rate(RateFacts.of_case(choice.case, placement), choice.case.model)
    rate = _rate(found, choice.case.optimizer)
    warmup = _warmup(choice, placement, found)
    others = _of_others(choice, placement, found)
    if others and found is not None:
        rates = [
            f"{name}: {_rate(one, choice.case.optimizer).says}" for name, one in others.items()
        ]
        rate = replace(rate, says=f"{rate.says}, with {placement}; {'; '.join(rates)}")
        shares = [
            f"{usual_warmup(one.warmups)[0]} with {name}"
            for name, one in others.items()
            if one.warmups and usual_warmup(one.warmups)[0] not in warmup.says
        ]
        if shares:
            warmup = replace(warmup, says=f"{warmup.says}, with {placement}; {'; '.join(shares)}")
    return [line, rate, warmup]


def _of_others(
    choice: EvidenceForModel, placement: str, found: TypicalRate | None
) -> dict[str, TypicalRate]:
    """Returns the usual rates of the other placements that were named, where they are others: what
    the doctor names for a model that has one of them.
    """
    others = {}
    for name in choice.asked:
        one = typical_rate(RateFacts.of_case(choice.case, name), choice.case.model)
        if one is None or found is None or name == placement:
            continue
        if learning_rate(one.rate, 2) != learning_rate(found.rate, 2):
            others[name] = one
    return others


def plain(choice: EvidenceForModel) -> dict[str, Any]:
    """Returns the answer as plain values, as docs/choosing.md describes it under "As data"."""
    found = asdict(choice)
    del found["settings"], found["asked"]
    for one, measured in zip(found["measured"], choice.measured, strict=True):
        one["scale"] = measured.scale
    return {**found, "recommended": [asdict(one) for one in recommended(choice)]}


def _carries(choice: EvidenceForModel, found: EvidenceRow) -> bool:
    """Tells whether a result is near the case and as deep, and the case's length is known:
    placements differ in depth, and one that leads in short trainings need not in long ones.
    """
    deepest = choice.settings[found.setting].blocks[1]
    return (
        choice.scale(found.setting) == "near"
        and choice.case.blocks <= deepest
        and choice.case.tokens is not None
    )


def _placement(choice: EvidenceForModel) -> tuple[str, _Recommendation]:
    """Returns the lowest that ends below the baseline in a result that carries, else the
    baseline.
    """
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    for claim in lower.of("supported"):
        for found in claim.findings:
            if found.answer != claim.group or not _carries(choice, found):
                continue
            sure = (
                f"Measured near this size: it ends {_below(found)} {BASELINE}, {found.seeds} seeds "
                f"(results/{found.setting}). Several were compared, each "
                "tested separately, without correction for multiple comparisons."
            )
            surer = _on_your_text(claim.placement, choice, seeds=3)
            return claim.placement, _Recommendation(
                what="Placement", says=claim.placement, sure=sure, surer=surer
            )
    return BASELINE, _baseline(choice, lower)


def _baseline(choice: EvidenceForModel, lower: QuestionAnswers) -> _Recommendation:
    """Recommends the baseline: who else has it, and what is worth a comparison with it."""
    said = [_compared_near(choice, lower), *_published_with_it(choice.case)]
    # What ends above the baseline in any result that counts is not worth a training of the user's.
    worth = []
    for claim in lower.of("supported"):
        if all(one.mean < 0 for one in claim.findings):
            worth.append(claim)
    for other in worth[:1] or lower.of("contradicted")[:1]:
        found = next(one for one in other.findings if one.answer == other.group)
        ends = (
            f"{other.placement} ends {_below(found)} {BASELINE}, and in no result above it: a "
            "reason to try it"
        )
        if not worth:
            ends = f"it ends {_below(replace(found, mean=-found.mean))} {other.placement}"
        said.append(f"{_trained_at(choice, found)} {ends}.")
    other_one = worth[0].placement if worth else "peri-ln"
    surer = _on_your_text(other_one, choice)
    if choice.case.tokens is None:
        surer += "; say how long you train (`--tokens`)"
    return _Recommendation(what="Placement", says=BASELINE, sure=" ".join(said), surer=surer)


def _on_your_text(placement: str, choice: EvidenceForModel, *, seeds: int = 1) -> str:
    """The command that compares a placement with the baseline on the user's own text."""
    command = f"normscope compare FILE.py:FUNCTION --placements {BASELINE},{placement}"
    if choice.case.optimizer != "adam":
        command += f" --optimizers {choice.case.optimizer}"
    if seeds > 1:
        command += f" --seeds {seeds}"
    return f"`{command}`"


def _compared_near(choice: EvidenceForModel, lower: QuestionAnswers) -> str:
    """Says how many placements we have compared with the baseline near this size, and whether one
    ends below it.
    """
    near = {one.setting.name for one in choice.measured if one.scale == "near"}
    compared = 0
    leads = False
    for claim in lower.claims:
        findings = [one for one in claim.findings if one.setting in near]
        if findings:
            compared += 1
        if claim.group == "supported":
            leads = leads or any(one.answer == "supported" for one in findings)
    if not compared:
        return "Not sure: nothing of ours compares placements near this size."
    ends = "some end" if leads else "none clearly ends"
    return (
        f"Of {counted(compared, 'placement')} that we compared with it near this size {ends} below "
        "it."
    )


def _published_with_it(case: ModelToTrain) -> list[str]:
    """Says how many published recipes for such models have the baseline; nothing without any."""
    read = [
        one
        for one in recipes()
        if one.model == case.model
        and counts_for(case.optimizer, one.optimizer)
        and not one.of_images
    ]
    closest = nearest(RateFacts.of_case(case, BASELINE), read)
    if not closest:
        return []
    having = sum(one.placement == BASELINE for one in read)
    return [
        f"Published recipes for such models that have it: {having} of {len(read)}. The nearest in "
        f"size has {closest.placement}: {closest.citation}."
    ]


def _trained_at(choice: EvidenceForModel, found: EvidenceRow) -> str:
    at = choice.settings[found.setting]
    return f"In runs of {at.blocks[0]} blocks of width {at.width[0]} (results/{at.result})"


def _below(found: EvidenceRow) -> str:
    return f"{interval(-found.mean, found.half_width)} nats per token (95 %) below"


def _rate(found: TypicalRate | None, optimizer: str) -> _Recommendation:
    says = "not known under this optimiser"
    sure = "Nothing near this width was trained with it, as far as we know."
    if found is not None:
        low, high = (learning_rate(one, 2) for one in (found.low, found.high))
        wrong = (
            f"Half the best rate cost {WRONG_COST[0.5]:g} % of the gain and twice it "
            f"{WRONG_COST[2.0]:g} % (results/advice): in doubt the lower."
        )
        says = f"{found.words}, between {low} and {high}"
        if not found.batch_told:
            says += " (say yours: `--batch-tokens`)"
        sure = " ".join([found.stands_on, wrong, *STEPS.get(optimizer, ())])
    surer = surer_rate(
        None if found is None else found.rate, compared=f"{_OWN} N", optimizer=optimizer
    )
    return _Recommendation(what="Peak rate", says=says, sure=sure, surer=surer)


def _warmup(
    choice: EvidenceForModel, placement: str, typical: TypicalRate | None
) -> _Recommendation:
    (asked,) = (one for one in choice.answers if one.question.name == "no-warmup")
    says = "not known"
    if typical is not None and typical.warmups:
        says = ", ".join(usual_warmup(typical.warmups))
    sure = f"Nothing of ours near this size decides whether {placement} needs one."
    found = _deciding(asked, placement)
    if found is not None:
        near = _carries(choice, found)
        if near and found.answer == "supported":
            says = "none needed"
        elif near:
            says = "yes, as long as in that result"
        ends = (
            f"the loss without one less that with it is {interval(found.mean, found.half_width)} "
            "nats per token"
        )
        whence = "Measured near this size." if near else sure
        sure = f"{whence} {_trained_at(choice, found)} {ends} (95 %)."
    surer = rates_command(
        typical.rate if typical else None, compared=f"{_OWN} 0,N", optimizer=choice.case.optimizer
    )
    return _Recommendation(what="Warm-up", says=says, sure=sure, surer=surer)


def _deciding(asked: QuestionAnswers, placement: str) -> EvidenceRow | None:
    """Returns the nearest result that decides a question for a placement."""
    for claim in asked.claims:
        if claim.placement == placement and claim.group in ("supported", "contradicted"):
            for found in claim.findings:
                if found.answer == claim.group:
                    return found
    return None
