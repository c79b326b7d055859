"""Diagnoses as the doctor gives them, with numbers such as real models have: one is healthy, the
others are not.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from normscope.doctor.diagnose import Diagnosis
from normscope.doctor.learned import Learned, LearningCurve
from normscope.doctor.measured import ModelMeasurements, SublayerMeasurements
from normscope.doctor.record import Stack, StackTheory, StreamConnection, StreamWeights, Sublayer
from normscope.doctor.result import (
    Advice,
    AskedRule,
    Finding,
    RateOfBatch,
    RateRange,
    Severity,
)
from normscope.doctor.trace.code_places import CodePlace

_SHARES = {"attention": 0.31, "cross_attention": 0.22, "feed_forward": 0.44}
_MODULES = {"attention": "attention", "cross_attention": "crossattention", "feed_forward": "mlp"}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A stack, and the gradients of its parameters."""

    stack: Stack
    gradients: dict[str, float] = field(default_factory=dict)


def made(
    name: str,
    *,
    blocks: int = 12,
    placement: str = "post-ln",
    kinds: tuple[str, ...] = ("attention", "feed_forward"),
    norm: str = "layer-norm",
    epsilon: float | None = 1e-12,
    final_norm: bool = False,
    formula: str = "x ← norm({kind}(x) + x)",
    growth: float = 0.0,
    gradient_slope: float = 0.0,
    also: tuple[str, ...] = (),
    confidence: Literal["sure", "unsure"] = "sure",
    parallel: bool = False,
    theory: bool = False,
    loss: bool = True,
    width: int = 768,
    connection: StreamConnection | None = None,
) -> Made:
    """growth: of E‖x‖²/d from sub-layer to sub-layer, 0 for a stream that norms keep at 1."""
    sublayers, gradients = [], {}
    predicted: tuple[list[float], list[float], list[float | None]] = ([], [], [])
    for i in range(blocks * len(kinds)):
        block, kind = i // len(kinds) + 1, kinds[i % len(kinds)]
        stream, wobble = 1 + growth * i, math.sin(7.3 * i)
        correlation = 1 - 0.9 * math.exp(-0.06 * i)
        share = _SHARES[kind] / (1 + growth * i)
        gradient = 0.8 * math.exp(gradient_slope * block) * (1.6 if kind == "feed_forward" else 1)
        weight = f"{name + '.' if name else ''}{block - 1}.{_MODULES[kind]}.weight"
        gradients[weight] = gradient
        sublayers.append(
            Sublayer(
                name=weight.removesuffix(".weight"),
                kind=kind,
                block=block,
                placement=placement,
                also=also,
                confidence=confidence,
                formula=formula.replace("{kind}", kind),
                skip_scale=1.0,
                branch_scale=1.0,
                parallel=parallel,
                connection=connection,
                measured=SublayerMeasurements(
                    stream_square=stream * (1 + 0.03 * wobble * bool(growth)),
                    branch_square=share / (1 - share) * stream,
                    sum_square=stream / (1 - share),
                    correlation=correlation,
                    share=share,
                    parameters=(weight,),
                    matrices=(weight,),
                    gradient_norm=gradient * (1 + 0.06 * wobble) if loss else None,
                    reaches_output=True,
                ),
            )
        )
        for curve, value in zip(
            predicted, (stream * 1.02, min(1.0, correlation * 1.05), gradient), strict=True
        ):
            curve.append(value)
    streams, correlations, norms = map(tuple, predicted)
    stack = Stack(
        name=name,
        blocks=blocks,
        placement=placement,
        norm=norm,
        norm_epsilon=epsilon,
        final_norm=final_norm,
        embedding_norm=not growth,
        width=width,
        streams=1 if connection is None else connection.streams,
        streams_start_equal=None if connection is None else True,
        sublayers=tuple(sublayers),
        source_square=1.0,
        end_square=1.0 if final_norm or not growth else 1 + growth * len(sublayers),
        predicted=StackTheory(
            stream_square=streams, correlation=correlations, gradient_norm=norms,
            assumptions=(
                "independent Gaussian weights, attention that averages, a width far above the "
                "depth."
            ),
        ) if theory else None,
    )  # fmt: skip
    return Made(stack=stack, gradients=gradients if loss else {})


def diagnosis(
    target: str,
    *stacks: Made,
    parameters: int = 109_482_240,
    loss: float | None = 10.41,
    stand_in: bool = False,
    findings: tuple[Finding, ...] = (),
    advice: Advice | None = None,
    silenced: tuple[str, ...] = (),
) -> Diagnosis:
    return Diagnosis(
        target=target,
        parameters=parameters,
        stacks=tuple(stack.stack for stack in stacks),
        measured=ModelMeasurements(
            loss_nats=loss,
            loss_is_stand_in=stand_in,
            classes=30522 if loss else None,
            logit_deviation=0.553 if loss else None,
            gradient_norms={
                name: norm for stack in stacks for name, norm in stack.gradients.items()
            },
        ),
        findings=findings,
        advice=advice,
        silenced=silenced,
        rules=(
            AskedRule(id="dilution", asked=True, reason=""),
            *(AskedRule(id=name, asked=False, reason="it was silenced") for name in silenced),
        ),
    )


def advice(
    *, best: float = 4.1e-4, wanted: float | None = 3e-3, batch_tokens: float | None = 131_072
) -> Advice:
    """From known rates, with a range of three times to either side, also without a batch."""
    usual = RateRange(low=best / 3, high=best * 3)
    return Advice(
        optimizer="adamw",
        confidence=0.87,
        basis=(
            "By a law over 43 published recipes and 4 ladders of short trainings of ours. It holds "
            "most."
        ),
        median_rate=5.2e-4,
        recipes=43,
        ladders=4,
        best_rate=best,
        best_interval=usual,
        batch_tokens=batch_tokens,
        rates_by_batch=_three(best) if batch_tokens is None else (),
        recipe_rate=best / 2,
        wanted_rate=wanted,
        wanted_place=None if wanted is None else _place(wanted, usual),
        usual_warmup_shares=(0.002, 0.01, 0.05),
        notes=("nadam is taken for one like Adam",),
    )


def _three(best: float) -> tuple[RateOfBatch, ...]:
    """Of batches that are four times apart, the middle one of which has that rate."""
    return (
        RateOfBatch(batch_tokens=2.0**15, rate=best / 2),
        RateOfBatch(batch_tokens=2.0**17, rate=best),
        RateOfBatch(batch_tokens=2.0**19, rate=best * 2),
    )


def _place(rate: float, good: RateRange) -> Literal["in range", "above", "below", "unknown"]:
    return "below" if rate < good.low else "above" if rate > good.high else "in range"


def unknown_advice() -> Advice:
    """For an optimiser with which no model of that width is known."""
    return Advice(
        optimizer="sgd",
        confidence=0.87,
        unknown=(
            "neither recipes nor trainings of ours with this optimiser are known near this width"
        ),
        wanted_rate=3e-4,
        wanted_place="unknown",
    )


FINAL_NORM = Finding(
    id="missing-final-norm",
    severity=Severity.ERROR,
    where="model.layers",
    message=(
        "the stream leaves the last of 24 blocks with E‖x‖²/d = 8.2 and no norm; pre-ln ends with "
        "one"
    ),
    fix="add a LayerNorm between the last block and the output projection",
)
DILUTED = Finding(
    id="diluted-sublayers",
    severity=Severity.WARNING,
    where="model.layers.18.attention, model.layers.19.attention and 4 more",
    message=(
        "these sub-layers are less than 4.2 % of the sum that they are added to, against 31 % in "
        "the first block"
    ),
    fix="scale the branches of late blocks, or norm their output as peri-ln does",
)
PLACED = replace(
    DILUTED,
    built_at=CodePlace(file="models/own.py", line=41),
    called_at=CodePlace(file="models/own.py", line=57),
)
BETAS = Finding(
    id="large-second-moment-decay",
    severity=Severity.INFO,
    where="",
    message="Adam's second moment decays with 0.999: it remembers about 1,000 updates",
    fix="0.95 to 0.98 is common for Transformers",
)


def healthy() -> Diagnosis:
    return diagnosis(
        "BertForMaskedLM", made("bert.encoder.layer", also=("ds-init", "ds-init-code"), theory=True)
    )


def broken() -> Diagnosis:
    """Pre-LN without its final norm."""
    stack = made(
        "model.layers",
        blocks=24,
        placement="pre-ln",
        epsilon=1e-5,
        formula="x ← x + {kind}(norm(x))",
        growth=0.15,
        gradient_slope=-0.07,
        also=("gpt2", "mix-ln", "scale-norm"),
    )
    return diagnosis(
        "HomemadeGPT",
        stack,
        findings=(FINAL_NORM, DILUTED, BETAS),
        stand_in=True,
        parameters=354_823_168,
    )


def encoder_decoder() -> Diagnosis:
    """With predictions, and a wanted rate that is too high."""
    shape = {"blocks": 6, "theory": True, "norm": "rms-norm", "epsilon": 1e-6, "width": 512}
    encoder = made(
        "encoder.block",
        placement="pre-ln",
        growth=0.3,
        final_norm=True,
        gradient_slope=-0.1,
        formula="x ← x + {kind}(norm(x))",
        **shape,
    )
    decoder = made("decoder.block", kinds=tuple(_SHARES), gradient_slope=0.35, **shape)
    found = diagnosis(
        "T5ForConditionalGeneration",
        encoder,
        decoder,
        parameters=60_506_624,
        findings=(DILUTED, PLACED, BETAS),
        advice=advice(wanted=6e-3, batch_tokens=None),
        silenced=("untied-embedding",),
    )
    return replace(found, learned=LEARNED)


LEARNED = Learned(
    task="to copy the 12 tokens of a source",
    verdict="learns",
    updates=150,
    rate=3e-3,
    chance_nats=3.4657,
    nats=0.0423,
    training_nats=0.0471,
    unknowable_nats=3.61,
    references=(0.0312,),
    reference="pre-ln, 6 + 6 blocks, width 512",
    curve=LearningCurve(updates=(50, 100, 150), nats=(3.41, 1.2, 0.05)),
    reference_curve=LearningCurve(updates=(50, 100), nats=(3.2, 0.031)),
    reference_rate=3e-3,
)


def streams() -> Diagnosis:
    """Four streams in one tensor, the second of which no sub-layer writes to."""
    stack = made(
        "model.layers",
        placement="mhc",
        growth=0.2,
        final_norm=True,
        formula="x ← connect(x) + expand({kind}(norm(collapse(x))))",
        connection=StreamConnection(
            streams=4,
            read=StreamWeights(made="token", total=1.0),
            mixing=StreamWeights(made="token", total=1.0),
            write=StreamWeights(made="trained", total=None, by_feature=True),
            from_doubly_stochastic=2.4e-7,
            one_side_alone=None,
            unwritten=(2,),
        ),
    )
    return diagnosis("DeepseekV4ForCausalLM", stack)


def unknown() -> Diagnosis:
    """No placement is known, no loss was given, and names are markup."""
    stack = made(
        "",
        blocks=2,
        placement="",
        norm="",
        epsilon=None,
        confidence="unsure",
        formula="a1 = x + {kind}(x); x ← norm(a1) - trained * a1",
        loss=False,
        parallel=True,
    )
    injected = Finding(
        id="unknown-placement",
        severity=Severity.WARNING,
        where="<b>block</b> & more",
        message="no registered placement computes a1 < x",
        fix="",
    )
    return diagnosis(
        "<script>alert(1)</script>", stack, loss=None, findings=(injected,), parameters=3
    )


def foreign() -> Diagnosis:
    """Healthy, and of an optimiser with which nothing near is known."""
    return replace(healthy(), advice=unknown_advice())


def with_stack(found: Diagnosis, number: int, **changes: Any) -> Diagnosis:
    """The same diagnosis with other values in one of its stacks."""
    stacks = list(found.stacks)
    stacks[number] = replace(stacks[number], **changes)
    return replace(found, stacks=tuple(stacks))


def with_sublayer(stack: Stack, number: int, **changes: Any) -> Stack:
    """The same stack with other values in one of its sub-layers; those of its measurements go
    there.
    """
    sublayers = list(stack.sublayers)
    old = sublayers[number]
    measured = {
        name: changes.pop(name) for name in list(changes) if name in SublayerMeasurements.__slots__
    }
    sublayers[number] = replace(old, **changes, measured=replace(old.measured, **measured))
    return replace(stack, sublayers=tuple(sublayers))


EXAMPLES = {
    "healthy": healthy,
    "broken": broken,
    "encoder-decoder": encoder_decoder,
    "streams": streams,
    "unknown": unknown,
    "foreign": foreign,
}
