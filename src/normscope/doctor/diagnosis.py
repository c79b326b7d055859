"""What the doctor says: stacks, measurements, findings and advice, as data and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .identify.found import FoundStack
from .lint.rules import SEVERITIES, Finding, Severity
from .observe.observed import Observations

Verdict = Literal["healthy", "warnings", "errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The mean-field prediction for a stack whose placement was found, at the same places as `ObservedStack`."""

    stream_square: tuple[float, ...]
    """E‖x‖²/d before each sub-layer."""
    correlation: tuple[float, ...]
    """Mean cosine of different tokens' vectors there."""
    gradient_norm: tuple[float | None, ...]
    """Of each sub-layer's parameters, up to one factor for the whole stack that is fitted to what was measured."""
    assumptions: str
    """What the prediction takes for granted, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What an optimiser may do with the model from its first update on."""

    optimizer: str
    critical_rate: float | None
    """The rate at which the loss along the first update is lowest; None where no rate lowers it."""
    safe_rate: float
    """The largest constant rate that is expected to train without warm-up."""
    factor: float
    """Nineteen in twenty of the trainings the advice was judged by had their largest rate within this factor of it."""
    wanted_rate: float | None = None
    """The peak rate that was asked about."""
    divergence_chance: float | None = None
    """That the wanted rate diverges without warm-up."""
    warmup_updates: int | None = None
    """The shortest linear warm-up that is expected to carry the wanted rate; 0 where it needs none."""
    rates: tuple[float, ...] = ()
    """Rising; what the next two are functions of."""
    loss_along_step: tuple[float | None, ...] = ()
    """Loss in nats after one update at each of `rates`; None where it is not finite."""
    chances: tuple[float, ...] = ()
    """That a constant rate diverges without warm-up, at each of `rates`."""
    notes: tuple[str, ...] = ()
    """How far the model lies from those the advice was calibrated on, and other reasons to doubt it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that was found out about a model."""

    target: str
    """What was looked at: the class of the model, or what the user named."""
    parameters: int
    stacks: tuple[FoundStack, ...]
    observed: Observations
    predictions: tuple[Prediction | None, ...]
    """By stack; None where the placement is not known, or theory has no model of it."""
    findings: tuple[Finding, ...]
    """The worst first."""
    advice: Advice | None
    """None where it was not asked for, or no loss can be taken."""
    silenced: tuple[str, ...] = ()
    """Ids of rules that were not asked."""

    @property
    def verdict(self) -> Verdict:
        worst = worst_of(self.findings)
        return "errors" if worst == "error" else "warnings" if worst == "warning" else "healthy"

    def to_json(self) -> dict[str, Any]:
        """Plain values, as docs/doctor.md describes them."""
        stacks = []
        for stack, observed, predicted in zip(self.stacks, self.observed.stacks, self.predictions, strict=True):
            several = zip(stack.sublayers, observed.sublayers, strict=True)
            stacks.append(
                asdict(stack)
                | {"sublayers": [asdict(found) | {"measured": asdict(seen)} for found, seen in several]}
                | {"source_square": observed.source_square, "end_square": observed.end_square}
                | {"predicted": None if predicted is None else asdict(predicted)}
            )
        measured = asdict(self.observed)
        del measured["stacks"]
        return {
            "verdict": self.verdict,
            "target": self.target,
            "parameters": self.parameters,
            "stacks": stacks,
            "measured": measured,
            "findings": [asdict(finding) for finding in self.findings],
            "silenced": list(self.silenced),
            "advice": None if self.advice is None else asdict(self.advice),
        }


def worst_of(findings: Sequence[Finding]) -> Severity | None:
    """The worst severity among them; None without any."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=None)
