"""A clip so far below the gradient that the learning rate is not the one that was written."""

from collections.abc import Iterator
from math import hypot

from ...result import Finding, Severity
from ..clipping import Clipping, epsilon_of
from ..needs import a_clip, an_optimizer, gradients
from ..rules import Patient, Rule


def clip_hides_rate(patient: Patient) -> Iterator[Finding]:
    """A gradient that is a thousand times the clip: with SGD the rate is a thousand times smaller than it looks."""
    if patient.optimizer is None or patient.clip_norm is None:
        return
    norm = hypot(*patient.observed.gradient_norms.values())
    if not norm:
        return
    sizes = {name: parameter.numel() for name, parameter in patient.model.named_parameters()}
    entries = sum(sizes.get(name, 0) for name in patient.observed.gradient_norms)
    for group in patient.optimizer.param_groups:
        rate = float(group.get("lr") or 0.0)
        if not rate > 0:
            continue
        clipping = Clipping(
            gradient_norm=norm,
            clip_norm=patient.clip_norm,
            rate=rate,
            epsilon=epsilon_of(group),
            entries=max(1, entries),
        )
        if clipping.is_far_below:
            yield _finding(clipping, type(patient.optimizer).__name__)
            return


def _finding(clipping: Clipping, optimizer: str) -> Finding:
    told = (
        f"the gradient's norm is {clipping.gradient_norm:.3g} and it is clipped to {clipping.clip_norm:g}: "
        f"{1 / clipping.factor:,.0f} times less"
    )
    if clipping.hides_rate:
        return Finding(
            id="clip-hides-rate",
            severity=Severity.WARNING,
            where="",
            message=f"{told}. The first update of {optimizer} at a rate of {clipping.rate:.3g} is the one that a rate "
            f"of {clipping.effective_rate:.2g} makes without clipping",
            fix=f"clip near the gradient's own norm and take a rate near {clipping.effective_rate:.1g}; where the loss "
            "is a sum over tokens, take their mean",
        )
    return Finding(
        id="clip-hides-rate",
        severity=Severity.INFO,
        where="",
        message=f"{told}. {optimizer} divides by the gradient's size, so that this hides no rate, but every update "
        "weighs the same, whatever its gradient",
        fix="nothing, where this is meant; a clip near the gradient's own norm acts on outliers alone",
    )


PLACE = 120
RULES: tuple[Rule, ...] = (
    Rule(
        id="clip-hides-rate",
        severity=Severity.WARNING,
        title="a clip far below the gradient",
        explanation="With SGD a gradient that is always clipped makes the updates of a much smaller rate, so that "
        "rates found with one clip fail with another; Adam feels it through its ε alone.",
        reference="Zhang et al. 2020, arXiv:1905.11881: clipped gradient descent is descent at the rate "
        "min(η, ηγ/‖g‖); Kingma & Ba 2015, arXiv:1412.6980, section 2.1, for Adam",
        check=clip_hides_rate,
        needs=(an_optimizer, a_clip, gradients),
    ),
)
