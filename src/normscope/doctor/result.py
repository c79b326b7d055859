"""What is said of a model: findings, the rules that were asked, advice on its learning rate, and all of it together.

Losses are mean cross-entropies per token in nats, and a training length is counted in updates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from .record import ModelMeasurements, Stack, plain


class Severity(StrEnum):
    """How bad a finding is; the members stand from the least to the worst."""

    INFO = "info"
    """Worth knowing."""
    WARNING = "warning"
    """Likely unintended."""
    ERROR = "error"
    """Training is expected to fail or to lose much."""

    @property
    def rank(self) -> int:
        """The place in the order of severities; the worst has the highest."""
        return list(Severity).index(self)


UNKNOWN_WIRING = "unknown-wiring"
"""The rule that speaks of formulas that no registered placement has."""


NO_GRADIENT = "no-gradient"
"""The rule that speaks of a model that cannot be trained as it is run."""


class Health(StrEnum):
    """The worst severity among the findings, in a word."""

    HEALTHY = "healthy"
    """No finding, or notes alone."""
    UNKNOWN = "unknown wiring"
    """Notes alone, one of them of a formula that no registered placement has."""
    WARNINGS = "warnings"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a rule found in a model."""

    id: str
    """The id of the rule."""
    severity: Severity
    where: str
    """Path of a module, a stack or a parameter; "" for the model as a whole. Several: "layers.[0–3, 7].mlp" or
    "a, b and 10 more"."""
    message: str
    """What was seen, with its numbers, and what was expected."""
    fix: str
    """What to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRule:
    """A rule of the linter, and whether it was asked."""

    id: str
    asked: bool
    """A rule that was asked and is not among the findings found nothing."""
    reason: str
    """Why it was not asked, as a clause; "" where it was."""


def worst_of(findings: Sequence[Finding]) -> Severity | None:
    """The worst severity among the findings; None without any."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)


def verdict_of(findings: Sequence[Finding]) -> Health:
    """Errors or warnings where there are any, else healthy, unless a formula is unknown."""
    match worst_of(findings):
        case Severity.ERROR:
            return Health.ERRORS
        case Severity.WARNING:
            return Health.WARNINGS
        case _:
            unknown = any(finding.id == UNKNOWN_WIRING for finding in findings)
            return Health.UNKNOWN if unknown else Health.HEALTHY


RatePlace = Literal["in range", "above", "below", "undecided", "unknown"]
"""Where a rate lies to the range of good ones: undecided where the interval of that range does not say, unknown where
there is no range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates from `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTraining:
    """One short training of the model on the user's own batches."""

    rate: float
    """Its peak learning rate."""
    updates: int
    """How many were made; fewer than planned where its loss was not finite."""
    warmup_updates: int = 0
    """Over how many of them the rate rose linearly to its peak."""
    losses: tuple[float | None, ...]
    """Of each update's batch before the update, in nats; None where it was not finite."""
    spread: float | None
    """How far the outputs for different tokens lie apart at its end, over how far they did at its start."""
    outcome: Literal["learns", "unsettled", "stuck", "not finite"]
    """unsettled: its loss rose, or is not below its start; stuck: it hardly tells tokens apart at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupAdvice:
    """How long a linear warm-up carries the wanted rate, tested by short trainings of a ladder of lengths."""

    tried: tuple[ShortTraining, ...]
    shortest_updates: int | None
    """In a short training; None where none of those that were tried carries the rate."""
    named_updates: int | None
    """That are advised: longer by a margin, since whole trainings fail where short ones do not yet."""


FAR = 4.0
"""No published rate lies further above the range of known rates than this: a test counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which learning rate models like this one are trained with, or trains this one best, and what becomes of the
    wanted one."""

    optimizer: str
    source: Literal["known rates", "probe"]
    """What the answer was read from: rates that others and we have trained other models with, or short trainings of
    this very model."""
    horizon_updates: int | None = None
    """The training length, in updates, that a probe's best rate is foreseen for; known rates are of whole trainings."""
    regret_nats: float | None = None
    """By how much a good rate's loss may end above that of the best, of a probe."""
    confidence: float
    """How often `best_interval` holds the best rate, such as 0.9; of known rates, a published one."""
    basis: str = ""
    """What a known rate comes from, as sentences; "" of a probe."""
    recipes: int = 0
    """Published ones under this optimiser near this width, behind a known rate ..."""
    ladders: int = 0
    """... and ladders of short trainings of ours."""
    unknown: str = ""
    """Why there is no answer, as a clause; the rates below are None then."""
    best_rate: float | None = None
    """The peak rate that is known of models like this one; of a probe, the constant rate that is expected to end with
    the lowest loss."""
    best_interval: RateRange | None = None
    good_range: RateRange | None = None
    """Of a probe, rates that are expected to end within `regret_nats` of the best; else the interval."""
    wanted_rate: float | None = None
    """The peak rate that was asked about."""
    wanted_place: RatePlace | None = None
    """None where no rate was asked about."""
    wanted_warmup_updates: int | None = None
    """Over how many updates the training's own warm-up rises to the wanted rate; None where that is not known."""
    wanted_training: ShortTraining | None = None
    """A short training at that rate, without warm-up; None without a probe."""
    warmup: WarmupAdvice | None = None
    """None without a probe."""
    usual_warmup_shares: tuple[float, ...] = ()
    """Of a training's updates, in recipes under this optimiser for residual sums like these, rising."""
    probed: tuple[ShortTraining, ...] = ()
    """The short trainings that the best rate was read from, without those of `warmup`."""
    updates_used: int = 0
    """By all short trainings together."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the answer."""

    @property
    def is_too_high(self) -> bool:
        """Whether the wanted rate is likely none to start with, without warm-up: a short training at it failed, or it
        lies above the probe's range, or above that of known rates by more than `FAR`."""
        if self.wanted_training is not None and self.wanted_training.outcome in ("stuck", "not finite"):
            return True
        if self.wanted_rate is None or self.wanted_place != "above":
            return False
        return self.source == "probe" or self.good_range is None or self.wanted_rate > FAR * self.good_range.high

    @property
    def own_warmup(self) -> Literal["none", "carries", "too short", "untested"]:
        """What short trainings say of the training's own warm-up; what is advised, or longer, carries the rate.

        none: it has none, as far as is known; too short: one as long did not carry it; untested: neither.
        """
        own = self.wanted_warmup_updates or 0
        if not own:
            return "none"
        tried = () if self.warmup is None else self.warmup.tried
        shortest = None if self.warmup is None else self.warmup.shortest_updates
        named = None if self.warmup is None else self.warmup.named_updates
        if named is not None and own >= named:
            return "carries"
        failed = [one.warmup_updates for one in tried if shortest is None or one.warmup_updates < shortest]
        return "too short" if failed and own <= max(failed) else "untested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that was found out about a model: what its page, the terminal and JSON are written from."""

    target: str
    """What was looked at: the class of the model, or what the user named."""
    parameters: int
    stacks: tuple[Stack, ...]
    measured: ModelMeasurements
    findings: tuple[Finding, ...]
    """The worst first."""
    silenced: tuple[str, ...] = ()
    """Ids of rules that were not asked because the user does not want to hear of them."""
    trained: bool = False
    """Whether the weights have been trained, as far as it shows; theory is of random weights, and says nothing then."""
    rules: tuple[AskedRule, ...] = ()
    """Every rule of the linter, whether it was asked, and why not."""
    advice: Advice | None = None
    """None where it was not asked for, or no loss can be taken."""
    asked: str = field(default="TARGET", compare=False, metadata={"json": False})
    """What a command that looks at the same model names it."""
    probe_needs: str = field(default="", compare=False, metadata={"json": False})
    """What `--probe` asks for first, as ", once my_model.py has batches()"; empty where it has all."""

    @property
    def verdict(self) -> Health:
        return verdict_of(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The verdict and all fields as plain values, as docs/doctor-json.md describes them."""
        return {"verdict": self.verdict.value, **plain(self)}
