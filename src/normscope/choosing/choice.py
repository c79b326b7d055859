"""The evidence for one model, the nearest first, and what we would do with it: placement, peak rate
and warm-up.

Each of the three says how sure it is and what would make it surer. The rate is the one that the
doctor names too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from ..placement import named, registered
from ..report.words import counted, interval, learning_rate, rates_command, surer_rate
from ..settings.tables import check_choice, spelled
from . import evidence as known
from .case import Distance, ModelToTrain, Theory, counts_for, distance, theory
from .evidence import BASELINE, EvidenceRow
from .rates import (
    STEPS,
    WRONG_COST,
    RateFacts,
    TypicalRate,
    nearest,
    recipes,
    typical_rate,
    usual_warmup,
)

GROUPS = get_args(known.Support)
SizeClass = Literal["near", "small-scale", "other size"]
_OWN = "FILE.py:FUNCTION --warmup-updates"
ALWAYS = (BASELINE, "post-ln")
"""Placements that everybody asks about: rates and theory are told of them beside those that the
evidence supports.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountingResult:
    """A result that counts for the case, and how far away it is."""

    setting: known.EvidenceSetting
    distance: Distance
    optimizers: Sequence[str]

    @property
    def scale(self) -> SizeClass:
        """Whether its size is near the case's, smaller, or otherwise unlike it."""
        if self.distance.is_near:
            return "near"
        return "small-scale" if self.distance.is_small_scale else "other size"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacementEvidence:
    """One placement and one question."""

    placement: str
    group: known.Support
    findings: Sequence[EvidenceRow]
    """Those that count, the nearest first."""
    disagree: bool
    """Whether one decides and another points the other way, so that it is undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswers:
    """A question, with a claim for every placement that the model can have."""

    question: known.Question
    claims: Sequence[_PlacementEvidence]

    def of(self, group: known.Support) -> list[_PlacementEvidence]:
        """The claims of a group, the strongest first."""
        found = [claim for claim in self.claims if claim.group == group]
        return sorted(found, key=lambda claim: claim.findings[0].mean if claim.findings else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceForModel:
    """What is known for a case."""

    case: ModelToTrain
    settings: Mapping[str, known.EvidenceSetting]
    """Everything that was measured, whatever the model, by name."""
    measured: Sequence[_CountingResult]
    """Results of the same kind of model and optimiser, the nearest first."""
    answers: Sequence[QuestionAnswers]
    rates: Sequence[known.BestRate]
    depths: Sequence[known.Depth]
    depth_blocks: int
    advice: Sequence[known.AdviceClaim]
    theory: Theory
    published: Sequence[known.Published]

    def scale(self, setting: str) -> SizeClass:
        """Of a result by the name of its setting."""
        return next(one.scale for one in self.measured if one.setting.name == setting)


def choose(
    case: ModelToTrain, placements: Sequence[str] = (), evidence: known.Evidence | None = None
) -> EvidenceForModel:
    """The evidence for a case, about these placements or all that the model can have.

    evidence: what the package holds, where none is given. Raises ValueError for an unknown
    placement or optimiser, and for a placement that is not defined for the kind of model.
    """
    evidence = evidence or known.stored()
    case = replace(case, optimizer=spelled(case.optimizer, evidence.optimizers))
    check_choice("optimizer", case.optimizer, evidence.optimizers)
    asked = _placements(case, placements)
    measured = _measured(case, evidence)
    place = {one.setting.name: at for at, one in enumerate(measured)}

    def counts(one: EvidenceRow | known.BestRate) -> bool:
        return one.setting in place and counts_for(case.optimizer, one.optimizer)

    lower, *_ = answers = [
        _answered(name, asked, place, evidence.findings, counts) for name in known.QUESTIONS
    ]
    ahead = [claim.placement for claim in lower.of("supported")]
    shown = list(dict.fromkeys(asked if placements else [*ALWAYS, *ahead]))
    rates = [rate for rate in evidence.rates if rate.placement in shown and counts(rate)]
    return EvidenceForModel(
        case=case,
        settings=evidence.settings,
        measured=measured,
        answers=answers,
        rates=sorted(
            rates,
            key=lambda rate: (
                shown.index(rate.placement),
                place[rate.setting],
                rate.warmup_updates,
            ),
        ),
        depths=[one for name in shown for one in evidence.depths if one.placement == name],
        depth_blocks=evidence.depth_blocks,
        advice=evidence.advice,
        theory=theory(case, shown),
        published=_published(case, asked if placements else []),
    )


def _placements(case: ModelToTrain, asked: Sequence[str]) -> list[str]:
    """Those asked for by their registered names, or all that the model can have."""
    if not asked:
        return [name for name, placement in registered().items() if case.model in placement.models]
    found = [named(name) for name in asked]
    for placement in found:
        if case.model not in placement.models:
            where = " and ".join(placement.models)
            raise ValueError(
                f"{placement.name} is not defined for {case.model} models; it is for {where}"
            )
    return list(dict.fromkeys(placement.name for placement in found))


def _measured(case: ModelToTrain, evidence: known.Evidence) -> list[_CountingResult]:
    found = []
    for name, setting in evidence.settings.items():
        seen: list[EvidenceRow | known.BestRate] = [*evidence.findings, *evidence.rates]
        under = sorted({one.optimizer for one in seen if one.setting == name})
        counting = [optimizer for optimizer in under if counts_for(case.optimizer, optimizer)]
        if setting.model == case.model and counting:
            found.append(
                _CountingResult(
                    setting=setting, distance=distance(case, setting), optimizers=counting
                )
            )
    return sorted(found, key=lambda one: one.distance.total)


def _answered(
    name: known.QuestionName,
    placements: Sequence[str],
    place: Mapping[str, int],
    findings: Sequence[EvidenceRow],
    counts: Callable[[EvidenceRow], bool],
) -> QuestionAnswers:
    claims = []
    # Nothing is lower than itself.
    for placement in (one for one in placements if name != "lower-loss" or one != BASELINE):
        own = [one for one in findings if one.question == name and one.placement == placement]
        counting = sorted(filter(counts, own), key=lambda one: place[one.setting])
        decided = {one.answer for one in counting} - {"undecided"}
        disagree = bool(decided) and len(decided | {_leaning(one) for one in counting} - {None}) > 1
        group: known.Support = (
            "not known"
            if not counting
            else "undecided"
            if disagree or not decided
            else decided.pop()
        )
        claims.append(
            _PlacementEvidence(
                placement=placement, group=group, findings=counting, disagree=disagree
            )
        )
    return QuestionAnswers(question=known.QUESTIONS[name], claims=claims)


def _leaning(finding: EvidenceRow) -> known.Support | None:
    """The side on which the mean lies, whatever its interval; None for what decides nothing
    whatever its mean, one seed and runs that have not learned, and for a gain from warm-up that is
    there and small."""
    if finding.half_width is None or not finding.learned:
        return None
    if finding.question == "lower-loss":
        return "supported" if finding.mean < 0 else "contradicted"
    return (
        "supported"
        if finding.mean <= 0
        else "contradicted"
        if finding.mean > known.NEEDS_NATS
        else None
    )


def _published(case: ModelToTrain, placements: Sequence[str]) -> list[known.Published]:
    """Of the same kind of model, the nearest depth first; of some placements alone where these were
    asked for.
    """
    found = [one for one in known.published() if one.model == case.model]
    if placements:
        found = [one for one in found if set(one.placements) & set(placements)]

    def away(one: known.Published) -> float:
        return min(
            (max(case.blocks / blocks, blocks / case.blocks) for blocks in one.blocks),
            default=float("inf"),
        )

    return sorted(found, key=away)


def published_near(choice: EvidenceForModel) -> list[known.Published]:
    """Those of the baseline under such an optimiser, at most twice or half as deep and as wide."""
    case = choice.case
    return [
        one
        for one in choice.published
        if BASELINE in one.placements
        and any(0.5 <= case.blocks / blocks <= 2 for blocks in one.blocks)
        and any(0.5 <= case.width / width <= 2 for width in one.width)
        and (not one.optimizer or counts_for(case.optimizer, one.optimizer))
    ]


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

    @property
    def why(self) -> str:
        return f"{self.what}. {self.sure} Surer: {self.surer}."


def recommended(choice: EvidenceForModel) -> list[_Recommendation]:
    """Placement, peak rate, warm-up."""
    placement, line = _placement(choice)
    found = typical_rate(RateFacts.of_case(choice.case, placement), choice.case.model)
    return [line, _rate(found, choice.case.optimizer), _warmup(choice, placement, found)]


def plain(choice: EvidenceForModel) -> dict[str, Any]:
    """As docs/choosing.md describes it under "As data"."""
    found = asdict(choice)
    del found["settings"]
    for one, measured in zip(found["measured"], choice.measured, strict=True):
        one["scale"] = measured.scale
    return {**found, "recommended": [asdict(one) for one in recommended(choice)]}


def _carries(choice: EvidenceForModel, found: EvidenceRow) -> bool:
    """Whether a result is near the case and as deep, and the case's length is known: depth is what
    placements differ in, and a placement that leads in short trainings need not in long ones."""
    deepest = choice.settings[found.setting].blocks[1]
    return (
        choice.scale(found.setting) == "near"
        and choice.case.blocks <= deepest
        and choice.case.tokens is not None
    )


def _placement(choice: EvidenceForModel) -> tuple[str, _Recommendation]:
    """The lowest that ends below the baseline in a result that carries, else the baseline."""
    (lower,) = (one for one in choice.answers if one.question.name == "lower-loss")
    for claim in lower.of("supported"):
        for found in (
            one for one in claim.findings if one.answer == claim.group and _carries(choice, one)
        ):
            sure = (
                f"Measured near this size: it ends {_below(found)} {BASELINE}, {found.seeds} seeds "
                f"(results/{found.setting}). Several were compared, each judged by itself."
            )
            surer = (
                f"`normscope compare` of {claim.placement} and {BASELINE} on your text, with three "
                "seeds"
            )
            return claim.placement, _Recommendation(
                what="Placement", says=claim.placement, sure=sure, surer=surer
            )
    return BASELINE, _baseline(choice, lower)


def _baseline(choice: EvidenceForModel, lower: QuestionAnswers) -> _Recommendation:
    """Who else has it, and what is worth a comparison with it."""
    supported, case = lower.of("supported"), choice.case
    near = {one.setting.name for one in choice.measured if one.scale == "near"}
    compared = [
        claim.placement for claim in lower.claims if near & {one.setting for one in claim.findings}
    ]
    said = ["Not sure: nothing of ours compares placements near this size."]
    if compared:
        leads = any(
            one.answer == "supported" and one.setting in near
            for claim in supported
            for one in claim.findings
        )
        ends = "some end" if leads else "none surely ends"
        said = [
            f"Of {counted(len(compared), 'placement')} that we compared with it near this size "
            f"{ends} below it."
        ]
    read = [
        one
        for one in recipes()
        if one.model == case.model and counts_for(case.optimizer, one.optimizer)
    ]
    read = [one for one in read if not one.of_images]
    if near_recipe := nearest(RateFacts.of_case(case, BASELINE), read):
        having = sum(one.placement == BASELINE for one in read)
        said.append(
            f"Published recipes for such models that have it: {having} of {len(read)}. The nearest "
            f"in size has {near_recipe.placement}: {near_recipe.citation}."
        )
    # What ends above the baseline in any result that counts is not worth a training of the user's.
    worth = [claim for claim in supported if all(one.mean < 0 for one in claim.findings)]
    for other in worth[:1] or lower.of("contradicted")[:1]:
        found = next(one for one in other.findings if one.answer == other.group)
        ends = (
            f"{other.placement} ends {_below(found)} {BASELINE}, and in no result above it: a "
            "reason to try it"
        )
        if not worth:
            ends = f"it ends {_below(replace(found, mean=-found.mean))} {other.placement}"
        said.append(f"{_trained_at(choice, found)} {ends}.")
    surer = (
        f"`normscope compare` of {BASELINE} and {worth[0].placement if worth else 'another'} on "
        "your text"
    )
    surer += "; say how long you train (`--tokens`)" * (case.tokens is None)
    return _Recommendation(what="Placement", says=BASELINE, sure=" ".join(said), surer=surer)


def _trained_at(choice: EvidenceForModel, found: EvidenceRow) -> str:
    at = choice.settings[found.setting]
    return f"In trainings of {at.blocks[0]} blocks of width {at.width[0]} (results/{at.result})"


def _below(found: EvidenceRow) -> str:
    return f"{interval(-found.mean, found.half_width)} nats per token (95 %) below"


def _rate(found: TypicalRate | None, optimizer: str) -> _Recommendation:
    says, sure = (
        "not known under this optimiser",
        "Nothing near this width was trained with it, as far as we know.",
    )
    if found is not None:
        rate, low, high = (learning_rate(one, 2) for one in (found.rate, found.low, found.high))
        wrong = (
            f"In small trainings half the best rate cost {WRONG_COST[0.5]:g} % of the gain and "
            f"twice it {WRONG_COST[2.0]:g} % (results/advice): in doubt the lower."
        )
        says, sure = (
            f"{rate}, between {low} and {high}",
            " ".join([found.stands_on, wrong, *STEPS.get(optimizer, ())]),
        )
    surer = surer_rate(
        None if found is None else found.rate, compared=f"{_OWN} N", optimizer=optimizer
    )
    return _Recommendation(what="Peak rate", says=says, sure=sure, surer=surer)


def _warmup(
    choice: EvidenceForModel, placement: str, typical: TypicalRate | None
) -> _Recommendation:
    (asked,) = (one for one in choice.answers if one.question.name == "no-warmup")
    says = (
        ", ".join(usual_warmup(typical.warmups))
        if typical is not None and typical.warmups
        else "not known"
    )
    sure = f"Nothing of ours near this size decides whether {placement} needs one."
    decided = [
        one
        for one in asked.claims
        if one.placement == placement and one.group in ("supported", "contradicted")
    ]
    for found in [one for claim in decided for one in claim.findings if one.answer == claim.group][
        :1
    ]:
        ends = (
            f"the loss without one less that with it is {interval(found.mean, found.half_width)} "
            "nats per token"
        )
        if near := _carries(choice, found):
            says = (
                "none needed" if found.answer == "supported" else "yes, as long as in that result"
            )
        sure = (
            f"{'Measured near this size.' if near else sure} {_trained_at(choice, found)} {ends} "
            "(95 %)."
        )
    surer = rates_command(
        typical.rate if typical else None, compared=f"{_OWN} 0,N", optimizer=choice.case.optimizer
    )
    return _Recommendation(what="Warm-up", says=says, sure=sure, surer=surer)
