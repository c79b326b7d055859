"""The evidence for one model, the nearest first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ..placement import named, registered
from ..settings.tables import check_choice, spelled
from . import evidence as known
from .case import Distance, ModelToTrain, Theory, counts_for, distance, theory
from .evidence import BASELINE, EvidenceRow

GROUPS = get_args(known.Support)
SizeClass = Literal["near", "small-scale", "other size"]
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
        """The size class of the result: near the case, smaller, or different in another way."""
        if self.distance.is_near:
            return "near"
        return "small-scale" if self.distance.is_small_scale else "other size"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacementEvidence:
    """One placement and one question."""

    placement: str
    group: known.Support
    findings: Sequence[EvidenceRow]
    """The findings that count, the nearest first."""
    disagree: bool
    """True where one finding decides and another points the other way, so that the answer is
    undecided.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswers:
    """A question, with a claim for every placement that the model can have."""

    question: known.Question
    claims: Sequence[_PlacementEvidence]

    def of(self, group: known.Support) -> list[_PlacementEvidence]:
        """Returns the claims of a group, the strongest first."""
        found = [claim for claim in self.claims if claim.group == group]
        return sorted(found, key=lambda claim: claim.findings[0].mean if claim.findings else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceForModel:
    """The evidence for a case."""

    case: ModelToTrain
    asked: Sequence[str]
    """Placements that were named; empty where all are meant."""
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
        """Returns the size class of a result by the name of its setting."""
        return next(one.scale for one in self.measured if one.setting.name == setting)


def choose(
    case: ModelToTrain, placements: Sequence[str] = (), evidence: known.Evidence | None = None
) -> EvidenceForModel:
    """Returns the evidence for a case, about these placements or all that the model can have.

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

    def in_order(rate: known.BestRate) -> tuple[int, int, int]:
        return shown.index(rate.placement), place[rate.setting], rate.warmup_updates

    answers = [_answered(name, asked, place, evidence.findings, counts) for name in known.QUESTIONS]
    ahead = [claim.placement for claim in answers[0].of("supported")]
    shown = list(dict.fromkeys(asked if placements else [*ALWAYS, *ahead]))
    rates = [rate for rate in evidence.rates if rate.placement in shown and counts(rate)]
    return EvidenceForModel(
        case=case,
        asked=asked if placements else [],
        settings=evidence.settings,
        measured=measured,
        answers=answers,
        rates=sorted(rates, key=in_order),
        depths=[one for name in shown for one in evidence.depths if one.placement == name],
        depth_blocks=evidence.depth_blocks,
        advice=evidence.advice,
        theory=theory(case, shown),
        published=_published(case, asked if placements else []),
    )


def _placements(case: ModelToTrain, asked: Sequence[str]) -> list[str]:
    """Returns the registered names of the placements asked for, or all that the model can have."""
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
    """Returns what the findings that count say of a question, placement by placement."""
    claims = []
    for placement in placements:
        if name == "lower-loss" and placement == BASELINE:
            # Nothing is lower than itself.
            continue
        own = [one for one in findings if one.question == name and one.placement == placement]
        counting = sorted(filter(counts, own), key=lambda one: place[one.setting])
        claims.append(_placement_evidence(placement, counting))
    return QuestionAnswers(question=known.QUESTIONS[name], claims=claims)


def _placement_evidence(placement: str, findings: Sequence[EvidenceRow]) -> _PlacementEvidence:
    """Returns what findings of one placement and one question, the nearest first, come to."""
    decided = {one.answer for one in findings} - {"undecided"}
    leanings = {_leaning(one) for one in findings} - {None}
    disagree = bool(decided) and len(decided | leanings) > 1
    group: known.Support = "undecided"
    if not findings:
        group = "not known"
    elif decided and not disagree:
        group = decided.pop()
    return _PlacementEvidence(
        placement=placement, group=group, findings=findings, disagree=disagree
    )


def _leaning(finding: EvidenceRow) -> known.Support | None:
    """Returns the side on which the mean lies, whatever its interval; None for what decides nothing
    whatever its mean (one seed, one rate, runs that have not learned) and for a gain from warm-up
    that is there and small.
    """
    if finding.half_width is None or not finding.learned or not finding.leans:
        return None
    if finding.question == "lower-loss":
        return "supported" if finding.mean < 0 else "contradicted"
    if finding.mean <= 0:
        return "supported"
    return "contradicted" if finding.mean > known.NEEDS_NATS else None


def _published(case: ModelToTrain, placements: Sequence[str]) -> list[known.Published]:
    """Returns published results on the same kind of model, the nearest depth first; only on some
    placements where these were asked for.
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
    """Returns published results on the baseline under such an optimiser, at most twice or half as
    deep and as wide.
    """
    case = choice.case

    def is_near(one: known.Published) -> bool:
        of_depth = any(0.5 <= case.blocks / blocks <= 2 for blocks in one.blocks)
        of_width = any(0.5 <= case.width / width <= 2 for width in one.width)
        counts = not one.optimizer or counts_for(case.optimizer, one.optimizer)
        return of_depth and of_width and counts

    return [one for one in choice.published if BASELINE in one.placements and is_near(one)]
