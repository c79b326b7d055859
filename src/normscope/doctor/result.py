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


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChange:
    """What the first update changes in a stack: one entry a sub-layer, in order; None where it is not finite.

    Squares are means over all tokens, over the width d. With x* and θ* after the update, F(x*; θ*) - F(x; θ) is the sum
    of the sub-layer's own change F(x; θ*) - F(x; θ) and the amplified one F(x*; θ*) - F(x; θ*), after Liu et al. 2020
    (arXiv:2004.08249, theorem 2); their squares add up to the total where the two are uncorrelated.
    """

    stream: tuple[float | None, ...]
    """E‖x* - x‖²/d of the stream that F is added to."""
    total: tuple[float | None, ...]
    """E‖F(x*; θ*) - F(x; θ)‖²/d of F as it is added, but for factors of the sum."""
    own: tuple[float | None, ...]
    amplified: tuple[float | None, ...]
    end: float | None
    """E‖·‖²/d of the change of the stack's result, a final norm included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChange:
    """What the first update changes at one rate."""

    rate: float
    """The wanted rate, else the one that is foreseen as the best from the first update."""
    stacks: tuple[StackChange, ...]
    """In the order of the diagnosis' stacks."""
    output: float | None
    """E‖f* - f‖² of the model's output over E‖f‖²; None without a tensor, or where that is 0 or not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which constant learning rate trains a model best, and what becomes of the wanted one."""

    optimizer: str
    source: Literal["first update", "probe"]
    """What the answer was read from: the first update and a rule fitted to other trainings, or short trainings of this
    very model."""
    horizon_updates: int
    """The training length, in updates, that the best rate is foreseen for."""
    regret_nats: float
    """By how much a good rate's loss may end above that of the best."""
    confidence: float
    """How often `best_interval` holds the best rate, such as 0.9."""
    unknown: str = ""
    """Why there is no answer, as a sentence; the rates below are None then."""
    distance: float | None = None
    """How far this model is from those that the rule was fitted to; None where that is not asked."""
    distance_limit: float | None = None
    """Beyond this distance the answer is unknown."""
    best_rate: float | None = None
    """The constant rate that is expected to end with the lowest loss."""
    best_interval: RateRange | None = None
    good_range: RateRange | None = None
    """Rates that are expected to end within `regret_nats` of the best."""
    stuck_rate: float | None = None
    """From here on a constant rate is likelier stuck than not."""
    wanted_rate: float | None = None
    """The peak rate that was asked about."""
    wanted_place: RatePlace | None = None
    """None where no rate was asked about."""
    wanted_warmup_updates: int | None = None
    """Over how many updates the training's own warm-up rises to the wanted rate; None where that is not known."""
    stuck_chance: float | None = None
    """The chance that the wanted rate gets stuck without warm-up."""
    wanted_training: ShortTraining | None = None
    """The short training at that rate which the chance was read from; None without a probe, where it was read from the
    first update."""
    warmup: WarmupAdvice | None = None
    """None without a probe."""
    rates: tuple[float, ...] = ()
    """Rising; what the next two are functions of."""
    loss_along_step: tuple[float | None, ...] = ()
    """Loss in nats after one update at each of `rates`; None where it is not finite."""
    stuck_chances: tuple[float, ...] = ()
    """The chance that a constant rate gets stuck without warm-up, at each of `rates`."""
    lowest_loss_rate: float | None = None
    """The rate at which the loss along the first update is lowest; None where no rate lowers it."""
    probed: tuple[ShortTraining, ...] = ()
    """The short trainings that the best rate was read from, without those of `warmup`."""
    updates_used: int = 0
    """By all short trainings together."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the answer."""
    change: FirstChange | None = None
    """None where the forward pass after the update takes other steps than the one before it."""

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

    @property
    def verdict(self) -> Health:
        return verdict_of(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The verdict and all fields as plain values, as docs/doctor-json.md describes them."""
        return {"verdict": self.verdict.value, **plain(self)}
