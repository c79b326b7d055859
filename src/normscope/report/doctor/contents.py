"""What a diagnosis says, as plain values: the page, the terminal and the JSON are written from these and nothing else.

Squares are means over all tokens, divided by the width d of the stream, so that 1 is what a norm gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from typing import Any, Literal

from .advice import Advice
from .connection import Connection


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


class Verdict(StrEnum):
    """The worst severity among the findings, in a word."""

    HEALTHY = "healthy"
    """No finding, or notes alone."""
    WARNINGS = "warnings"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a rule found in a model."""

    id: str
    """The id of the rule."""
    severity: Severity
    where: str
    """Path of a module, a stack or a parameter; "" for the model as a whole. Several: "a, b and 10 more"."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SublayerMeasurements:
    """One sub-layer F at work."""

    stream_square: float
    """E‖x‖²/d of the stream that F is added to, before any scale."""
    branch_square: float
    """E‖F(x)‖²/d as it is added, scales and norms of the branch included."""
    sum_square: float
    """E‖·‖²/d of the residual sum, before a norm that follows it."""
    correlation: float | None
    """Mean cosine similarity between the stream's vectors at different tokens of one sequence; None for one token."""
    share: float
    """Squared norm of what is added over that plus the squared norm of the scaled skip."""
    parameters: tuple[str, ...]
    """Names of the parameters that F is computed with."""
    gradient_norm: float | None
    """Frobenius norm of the loss's gradient with respect to F's weight matrices, those of products and convolutions;
    biases and the gains of norms are left out. None without a loss, and without a matrix that is trained."""
    reaches_output: bool
    """Whether the model's output is computed from the branch's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """One sub-layer F, how it is joined to the stream, and what was measured in it."""

    name: str
    """Path of the module that computes F, or of the one with its last weight matrix; "" where no module does."""
    kind: str
    """attention, cross_attention, feed_forward, convolution or mixer."""
    block: int
    """Counted from 1; 0 for a branch between the embedding and the first block."""
    placement: str
    """Name of a registered placement, or "" where none computes this."""
    also: tuple[str, ...]
    """Further registered placements that have this formula here."""
    scaled_placement: str = ""
    """Where none computes this, the one that would if nothing multiplied the branch; "" where there is none either."""
    confidence: Literal["sure", "unsure"]
    """Of the name. unsure: there is none, or nothing that is observed tells it from one of those in `also`."""
    formula: str
    """What was observed, x being the stream before the sub-layer."""
    skip_scale: float | None
    """What x is multiplied with in the residual sum, a vector's mean; None where x is not one of its addends."""
    branch_scale: float | None
    """The same of F(x)."""
    parallel: bool
    """Whether it reads the same x as another sub-layer of its block, and both are added at once."""
    connection: Connection | None
    """With several streams that are kept in one tensor; None of one stream."""
    measured: SublayerMeasurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The mean-field prediction for a stack whose placement was found, with one entry a sub-layer."""

    stream_square: tuple[float, ...]
    """E‖x‖²/d before each sub-layer."""
    correlation: tuple[float, ...]
    """Mean cosine similarity between different tokens' vectors there."""
    gradient_norm: tuple[float | None, ...]
    """Of each sub-layer's weight matrices, up to one factor for the whole stack that is fitted to what was measured.
    None where one of them is frozen, where sub-layers share their weights, and where theory has no gradient."""
    assumptions: str
    """What the prediction takes for granted, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One residual stream from its source to its last sum or norm."""

    name: str
    """Path of the innermost module around all of its sub-layers; "" where that is the model."""
    blocks: int
    placement: str
    """The placement of most of its sub-layers, "" where that is none."""
    scaled_placement: str = ""
    """Where that is "", the commonest of its sub-layers."""
    norm: str
    """layer-norm, rms-norm, scale-norm, sphere-norm, dyt or derf, the commonest of several; "" without any."""
    norm_epsilon: float | None
    final_norm: bool
    """Whether a norm follows that the placement's blocks do not have."""
    embedding_norm: bool
    """Whether what enters the first sub-layer comes out of a norm."""
    width: int
    streams: int
    """How many streams of that width it is, kept in one tensor."""
    streams_start_equal: bool | None
    """Whether these start as copies of each other; None of one stream, and where nothing was computed."""
    sublayers: tuple[Sublayer, ...]
    end_read_by: Literal["norm", "weights", "output"]
    """What comes after the last sum."""
    memory: int | None
    """Number in the model's stacks, from 0, of the one that its cross-attention reads."""
    memory_normed: bool
    """False where cross-attention reads another stack's values with no norm between."""
    continues: int | None
    """Number of an earlier stack of the same shape that its source is computed from without a sum."""
    cut_by: str | None
    """The kind of sub-layer that computes its source there."""
    source_square: float
    """E‖x_0‖²/d of what enters the first sub-layer of the first block."""
    end_square: float
    """E‖·‖²/d of the stack's result, a final norm included."""
    predicted: Prediction | None
    """None where the placement is not known, theory has no model of it, or the weights have been trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurements:
    """What was measured of the whole model."""

    loss_nats: float | None
    """Mean loss per token; None where no loss can be taken."""
    loss_is_stand_in: bool
    """Whether it is the loss on random targets, because none was given."""
    classes: int | None
    """Size of the output's last dimension where it is logits; None where that is not known."""
    logit_deviation: float | None
    """Standard deviation of the logits about each token's mean, root mean square over tokens."""
    gradient_norms: Mapping[str, float]
    """Frobenius norm by parameter; empty without a loss."""
    unused_parameters: tuple[str, ...]
    """Names of the parameters that no operation of the forward pass read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisContents:
    """Everything that a page, a terminal or a JSON file says about a model."""

    target: str
    """What was looked at: the class of the model, or what the user named."""
    parameters: int
    stacks: tuple[Stack, ...]
    measured: ModelMeasurements
    findings: tuple[Finding, ...]
    """The worst first."""
    silenced: tuple[str, ...]
    """Ids of rules that were not asked because the user does not want to hear of them."""
    trained: bool
    """Whether the weights have been trained, as far as it shows; theory is of random weights, and says nothing then."""
    rules: tuple[AskedRule, ...]
    """Every rule of the linter."""
    advice: Advice | None
    """None where it was not asked for, or no loss can be taken."""

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The verdict and all fields as plain values, as docs/doctor-json.md describes them."""
        return {"verdict": self.verdict.value} | asdict(self, dict_factory=_plain)


def worst_of(findings: Sequence[Finding]) -> Severity | None:
    """The worst severity among the findings; None without any."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Errors or warnings where there are any, else healthy."""
    match worst_of(findings):
        case Severity.ERROR:
            return Verdict.ERRORS
        case Severity.WARNING:
            return Verdict.WARNINGS
        case _:
            return Verdict.HEALTHY


def _plain(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in pairs}
