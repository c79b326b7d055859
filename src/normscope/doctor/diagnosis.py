"""What the doctor found out about a model, as data."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from ..report.doctor.advice import Advice
from ..report.doctor.connection import Connection, StreamWeights
from ..report.doctor.contents import (
    AskedRule,
    DiagnosisContents,
    Finding,
    ModelMeasurements,
    Prediction,
    Stack,
    Sublayer,
    SublayerMeasurements,
    Verdict,
    verdict_of,
)
from .identify import connected
from .identify.found import FoundStack, FoundSublayer
from .observe.observed import Observations, ObservedSublayer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that was found out about a model."""

    target: str
    """What was looked at: the class of the model, or what the user named."""
    parameters: int
    stacks: tuple[FoundStack, ...]
    observed: Observations
    predictions: tuple[Prediction | None, ...]
    """By stack; None where the placement is not known, theory has no model of it, or the weights are trained."""
    findings: tuple[Finding, ...]
    """The worst first."""
    advice: Advice | None
    """None where it was not asked for, or no loss can be taken."""
    silenced: tuple[str, ...] = ()
    """Ids of rules that were not asked because the user does not want to hear of them."""
    trained: bool = False
    """Whether the weights have been trained, as far as it shows."""
    rules: tuple[AskedRule, ...] = ()
    """Every rule, whether it was asked, and why not."""

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)

    def contents(self) -> DiagnosisContents:
        """What pages, terminal and JSON say: formulas as text, measurements beside what they are of."""
        seen = self.observed
        return DiagnosisContents(
            target=self.target,
            parameters=self.parameters,
            stacks=tuple(self._stacks()),
            measured=ModelMeasurements(
                loss_nats=seen.loss_nats,
                loss_is_stand_in=seen.loss_is_stand_in,
                classes=seen.classes,
                logit_deviation=seen.logit_deviation,
                gradient_norms=seen.gradient_norms,
                unused_parameters=seen.unused_parameters,
            ),
            findings=self.findings,
            silenced=self.silenced,
            trained=self.trained,
            rules=self.rules,
            advice=self.advice,
        )

    def _stacks(self) -> Iterator[Stack]:
        for stack, seen, predicted in zip(self.stacks, self.observed.stacks, self.predictions, strict=True):
            yield Stack(
                name=stack.name,
                blocks=stack.blocks,
                placement=stack.placement,
                scaled_placement=stack.scaled_placement,
                norm=stack.norm,
                norm_epsilon=stack.norm_epsilon,
                final_norm=stack.final_norm,
                embedding_norm=stack.embedding_norm,
                width=stack.width,
                streams=stack.streams,
                streams_start_equal=stack.streams_start_equal,
                sublayers=tuple(map(_sublayer, stack.sublayers, seen.sublayers)),
                end_read_by=stack.end_read_by,
                memory=stack.memory,
                memory_normed=stack.memory_normed,
                continues=stack.continues,
                cut_by=stack.cut_by,
                source_square=seen.source_square,
                end_square=seen.end_square,
                predicted=predicted,
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values, as docs/doctor-json.md describes them."""
        return self.contents().to_json()

    def plot(self) -> "Figure":
        """Every stack over depth, measured and predicted, as a matplotlib figure. Raises ValueError without a stack."""
        from ..report.chart_svg import panels_figure
        from ..report.doctor.notebook import stack_panels

        if not self.stacks:
            raise ValueError(f"{self.target} has no residual stream, so there is nothing to draw over depth")
        return panels_figure(stack_panels(self.contents()))

    def _repr_html_(self) -> str:
        from ..report.doctor.notebook import diagnosis_html

        return diagnosis_html(self.contents())


def _sublayer(found: FoundSublayer, seen: ObservedSublayer) -> Sublayer:
    return Sublayer(
        name=found.name,
        kind=found.kind,
        block=found.block,
        placement=found.placement,
        also=found.also,
        scaled_placement=found.scaled_placement,
        confidence=found.confidence,
        formula=str(found.formula),
        skip_scale=found.skip_scale,
        branch_scale=found.branch_scale,
        parallel=found.parallel,
        connection=None if found.connected is None else _connection(found.connected),
        measured=SublayerMeasurements(
            stream_square=seen.stream_square,
            branch_square=seen.branch_square,
            sum_square=seen.sum_square,
            correlation=seen.correlation,
            share=seen.share,
            parameters=seen.parameters,
            gradient_norm=seen.gradient_norm,
            reaches_output=seen.reaches_output,
        ),
    )


def _connection(found: connected.Connected) -> Connection:
    return Connection(
        read=_weights(found.collapse),
        mixing=_weights(found.connect),
        write=_weights(found.expand),
        from_doubly_stochastic=_computed(found.from_doubly_stochastic),
        one_side_alone=_computed(found.one_side_alone),
        unwritten=found.unwritten,
    )


@overload
def _weights(found: connected.StreamWeights) -> StreamWeights: ...


@overload
def _weights(found: connected.StreamWeights | None) -> StreamWeights | None: ...


def _weights(found: connected.StreamWeights | None) -> StreamWeights | None:
    if found is None:
        return None
    return StreamWeights(made=found.made, total=_computed(found.total), by_feature=found.by_feature)


def _computed(value: float | None) -> float | None:
    """None for what the meta device does not tell."""
    return None if value is None or math.isnan(value) else value
