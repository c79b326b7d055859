"""The statements about a model: findings, the rules that were checked, advice on its learning rate,
and all of it together.

Losses are mean cross-entropies per token in nats, and a training length is counted in updates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from .measured import ModelMeasurements
from .record import Stack, plain
from .trace.code_places import CodePlace


class Severity(StrEnum):
    """The severity of a finding; the members stand from the least to the worst."""

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
    """A model with no finding, or with notes alone."""
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
    """Path of a module, a stack or a parameter; "" for the model as a whole. Several: "layers.[0–3,
    7].mlp" or "a, b and 10 more"."""
    message: str
    """The observation, with its numbers, and what was expected."""
    fix: str
    """The change to make."""
    built_at: CodePlace | None = None
    """The place in the user's code where the first module of `where` was built or set; None where
    no watched code of the user's did it.
    """
    called_at: CodePlace | None = None
    """The place in the user's code where that module, or the one around it, is called first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRule:
    """A rule of the linter, and whether it was asked."""

    id: str
    asked: bool
    """A rule that was asked and is not among the findings found nothing."""
    reason: str
    """The reason why it was not checked, as a clause; "" where it was."""


def worst_of(findings: Sequence[Finding]) -> Severity | None:
    """Returns the worst severity among the findings; None without any."""
    return max(
        (finding.severity for finding in findings), key=lambda severity: severity.rank, default=None
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates from `low` to `high`."""

    low: float
    high: float


FAR = 3.0
"""The factor above the range of known rates beyond which no published rate lies: a test counts
them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOfBatch:
    """The best peak rate with batches of one size."""

    batch_tokens: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The learning rates with which models like this one are trained, and the position of the
    wanted one.
    """

    optimizer: str
    confidence: float
    """The share of published rates that `best_interval` holds without having been made from them,
    such as 0.85.
    """
    basis: str = ""
    """The sources of the rate, as sentences; "" without a rate."""
    carried: str = ""
    """The rate, and the smaller model, from which it was carried; "" for one of known rates."""
    recipes: int = 0
    """Published ones under this optimiser near this width, behind the rate ..."""
    ladders: int = 0
    """... and ladders of trainings of ours."""
    unknown: str = ""
    """The reason why there is no answer, as a clause; the rates below are None then."""
    best_rate: float | None = None
    """The peak rate that is known to be best of models like this one; where no batch is told, with
    the middle one of `rates_by_batch`.
    """
    best_interval: RateRange | None = None
    """The range of good rates; where no batch is given, it reaches from the range of the smallest
    batch to that of the largest.
    """
    batch_tokens: float | None = None
    """The tokens of one update, over all devices and accumulation; None where not known."""
    rates_by_batch: tuple[RateOfBatch, ...] = ()
    """The rates of three usual batches where no batch is given, rising; else empty."""
    recipe_rate: float | None = None
    """The rate with which people train such a model, by the same law: a habit, and no optimum."""
    median_rate: float | None = None
    """The naive one beside it: the plain median of those recipes and ladders."""
    wanted_rate: float | None = None
    """The peak rate that was asked about."""
    wanted_place: Literal["in range", "above", "below", "unknown"] | None = None
    """The position of that rate to the range of known ones, unknown without a range; None where no
    rate was asked about.
    """
    wanted_warmup_updates: int | None = None
    """The updates over which the training's own warm-up rises to the wanted rate; None where that
    is not known.
    """
    usual_warmup_shares: tuple[float, ...] = ()
    """The shares of a training's updates that are warm-up in recipes under this optimiser for
    residual sums like these, rising.
    """
    notes: tuple[str, ...] = ()
    """Reasons to doubt the answer."""

    @property
    def cautious_rate(self) -> float | None:
        """The best rate with the smallest usual batch where none is told: the one to lower a rate
        to that has failed.
        """
        return self.rates_by_batch[0].rate if self.rates_by_batch else self.best_rate

    @property
    def is_too_high(self) -> bool:
        """True where the wanted rate lies above the range by more than `FAR`."""
        span = self.best_interval
        return (
            self.wanted_rate is not None and span is not None and self.wanted_rate > FAR * span.high
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that was found out about a model: what its page, the terminal and JSON are written
    from.
    """

    target: str
    """The model that was examined: its class, or what the user named."""
    parameters: int
    stacks: tuple[Stack, ...]
    measured: ModelMeasurements
    findings: tuple[Finding, ...]
    """The findings: those that end a training first, then the worst; notes last."""
    silenced: tuple[str, ...] = ()
    """Ids of rules that were not asked because the user does not want to hear of them."""
    trained: bool = False
    """True where the weights have been trained, as far as it shows; theory is of random weights,
    and says nothing then.
    """
    rules: tuple[AskedRule, ...] = ()
    """The rules of the linter: whether each was checked, and why not."""
    advice: Advice | None = None
    """The advice on the learning rate; None where it was not asked for, or no loss can be taken."""
    compared: str = field(default="", compare=False, metadata={"json": False})
    """The argument with which `normscope compare` trains the same model; "" where no file describes
    it as it is.
    """

    @property
    def verdict(self) -> Health:
        return verdict_of(self.findings)

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict and all fields as plain values, as docs/doctor-json.md describes
        them.
        """
        return {"verdict": self.verdict.value, **plain(self)}
