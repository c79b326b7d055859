"""Epsilons of norms that the arithmetic loses, or that are larger than what they are added to."""

from collections.abc import Iterator

import torch
from torch import nn

from ...record import Sublayer
from ...result import Finding, Severity
from ..gradient_reach import Place, names
from ..rules import Patient, Rule


def norm_epsilon(patient: Patient) -> Iterator[Finding]:
    """Whether the ε of norms guards them at all, and whether it leaves them to normalise."""
    for stack in patient.stacks:
        if stack.norm_epsilon is not None:
            yield from _lost(patient, stack.name, stack.norm_epsilon)
    yield from _swamping(patient)


def _lost(patient: Patient, where: str, epsilon: float) -> Iterator[Finding]:
    least = torch.finfo(patient.dtype).smallest_normal * torch.finfo(patient.dtype).eps
    if not 0 < epsilon < least:
        return
    dtype = str(patient.dtype).removeprefix("torch.")
    inside = _in_float32(patient.model, epsilon)
    yield Finding(
        id="norm-epsilon",
        severity=Severity.INFO if inside else Severity.WARNING,
        where=where,
        message=f"ε is {epsilon:.2g}, and the least number above 0 in {dtype} is {least:.1g}: "
        + (
            "torch's own norms add it in float32, but one that is written out, or exported, adds 0"
            if inside
            else "added in that arithmetic it is 0, and a token of zeros becomes NaN"
        ),
        fix=f"take an ε of 1e-5 for {dtype}, or compute norms in float32",
    )


def _in_float32(model: nn.Module, epsilon: float) -> bool:
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    return any(m.eps is not None and abs(m.eps / epsilon - 1) < 0.2 for m in norms)


SWAMPED = 1.0
"""ε over the mean square that it is added to; at 1 the norm's output is 1/√2 of what it should be. GPT-2 starts at
0.012: embeddings and positions of N(0, 0.02²) under an ε of 1e-5."""


def _swamping(patient: Patient) -> Iterator[Finding]:
    worst: dict[str, list[tuple[float, Place]]] = {}
    for stack, sublayer in patient.sublayers():
        if stack.norm_epsilon and (square := _normed_square(sublayer)) is not None:
            ratio = stack.norm_epsilon / square if square > 0 else 0.0
            if ratio >= SWAMPED:
                worst.setdefault(stack.name, []).append((ratio, (stack, sublayer)))
    for some in worst.values():
        ratio, (stack, sublayer) = max(some, key=lambda one: one[0])
        square = _normed_square(sublayer)
        yield Finding(
            id="norm-epsilon",
            severity=Severity.WARNING,
            where=names([place for _, place in some]),
            message=f"the norm at {sublayer.name} adds ε = {stack.norm_epsilon:.2g} to a mean square of {square:.2g}, "
            f"so that its output is {(1 + ratio) ** -0.5:.2g} times what a norm gives",
            fix="draw the embedding, or the weights before this norm, larger, or take a smaller ε (1e-12 holds in "
            "float32 and bfloat16)",
        )


def _normed_square(sublayer: Sublayer) -> float | None:
    """Mean square of what the sub-layer's norm on the stream reads; None where none is certain to read the stream."""
    if sublayer.formula.sum_is_normed:
        return sublayer.measured.sum_square
    return sublayer.measured.stream_square if sublayer.formula.reads_norm else None


PLACE = 100
RULES: tuple[Rule, ...] = (
    Rule(
        id="norm-epsilon",
        severity=Severity.WARNING,
        title="an ε that is lost, or that swamps what it is added to",
        explanation="Below the dtype's least number it guards nothing; near the mean square of the stream it turns the "
        "norm into a mere factor, and the placement is not the one that was written.",
        reference="Ba et al. 2016, arXiv:1607.06450, section 3; IEEE 754: binary16 ends at 2^-24 = 6e-8",
        check=norm_epsilon,
    ),
)
