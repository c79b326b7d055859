"""Steps beside the stream: a feed-forward's curve, a softmax of logits or the shift of targets at
the wrong place, and trainable factors on branches: gates at 0 that cannot leave it, that grew too
large, or that are flat."""

import math
from collections.abc import Iterator
from statistics import fmean

from ....report.words import joined, kind_name
from ...observe.parameters import FLAT
from ...record import Stack, Sublayer
from ...result import Severity
from ...trace.operations import Origin
from ..patient import Patient, gates_at_zero, initial_weights, listed
from ..rule import Fault, rule, stack_rule
from ..structure import in_blocks


@stack_rule("misplaced-curve")
def misplaced_curve(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Feed-forwards of several matrices with no curve at all, with one on what they add, or two
    in a row."""
    feeding = [one for one in in_blocks(stack) if one.kind == "feed_forward"]
    for where, said in (
        (
            "none",
            "multiply several matrices with nothing but sums between them, which is one matrix",
        ),
        ("last", "end in a nonlinearity, behind their last matrix, and add what it leaves"),
        (
            "twice",
            "take a nonlinearity of what a nonlinearity has left, with no matrix between the two",
        ),
    ):
        # Of a formula that no placement has, what is taken for a branch may be a part of one, as in
        # a GRU's gates.
        found = [
            one
            for one in feeding
            if one.measured.curves == where and (one.placement or one.scaled_placement)
        ]
        if found:
            yield Fault(
                where=found,
                message=f"{len(found)} of {len(feeding)} sub-layers, {kind_name('feed_forward')}, "
                f"{said}",
            )


@rule("scores-not-logits")
def scores_not_logits(patient: Patient) -> Iterator[Fault]:
    """Outputs that sum to 1, or are never below 0, in a loss of their softmax."""
    seen = patient.observed
    if seen.scores_are and not seen.loss_is_stand_in:
        probable = seen.scores_are == "probabilities"
        yield Fault(
            where=type(patient.model).__name__,
            message="the loss is a cross-entropy of the outputs, and these "
            + (
                "are probabilities: they sum to 1 already, a softmax before a softmax"
                if probable
                else "are cut off at 0"
            ),
            fix="return the last matrix's product as it is"
            + (", or take the loss of the log-probabilities" * probable),
        )


@rule("targets-misplaced")
def targets_misplaced(patient: Patient) -> Iterator[Fault]:
    """A model whose attention hides later tokens, and a loss whose targets are inputs at another
    place than the next.
    """
    seen = [
        one for sublayer in patient.sublayers() if (one := sublayer.measured.attention) is not None
    ]
    causal = any(one.sees_later == 0 and one.sees_earlier for one in seen) and not any(
        one.sees_later for one in seen
    )
    places = patient.observed.target_places
    if causal and places in _MISPLACED:
        yield Fault(
            where=type(patient.model).__name__,
            message="attention hides later tokens, and the loss's targets are "
            + _MISPLACED[places],
            fix=_SHIFT + _ITSELF if places == _TWICE else _SHIFT,
        )


_SHIFT = "shift once: compare logits[:, :-1] with ids[:, 1:]"
_ITSELF = ", and hand unshifted labels to a model that shifts them itself"
_TWICE = 2
_MISPLACED = {
    -1: "the tokens one place earlier, which each output has read",
    0: "the very tokens that the model is given",
    2: "the tokens two places later",
}
"""The words for a target by its distance in places from its token."""


@rule("dead-gate")
def dead_gates(patient: Patient) -> Iterator[Fault]:
    """Gates that start at 0 are fine as long as they can leave it; this is about those that
    cannot.
    """
    opening: list[Sublayer] = []
    dead: dict[str, list[Sublayer]] = {}
    for stack in patient.stacks:
        for sublayer in [one for one in stack.sublayers if one.is_shut_by_gate]:
            why = _why_dead(patient, stack, sublayer)
            (dead.setdefault(why, []) if why else opening).append(sublayer)
    for why, places in dead.items():
        yield Fault(
            where=places,
            message=f"branches that are multiplied by 0 and will be for ever: {len(places)}. {why}",
            fix="make the gate an nn.Parameter that requires a gradient, use it itself in the "
            "forward pass and not its .data or a detached copy, let nothing else on its branch "
            "start at 0, and give it to the optimiser",
        )
    # A schedule that moves a number is not seen in one pass; one of our own, in trainings and
    # `attach`, is known to.
    is_ours = any(
        type(module).__module__ == "normscope.model.placed" for module in patient.model.modules()
    )
    unknown = [one for one in opening if one.measured.shut_by and not (one.placement and is_ours)]
    if unknown:
        by = listed(name for one in unknown for name in one.measured.shut_by)
        known = sorted({one.placement for one in unknown} - {""})
        here = (
            f"as {joined(known)} has one" if known else "and no registered placement has one here"
        )
        yield Fault(
            severity=Severity.WARNING,
            where=unknown,
            message=f"branches that a buffer multiplies by 0: {len(unknown)}. A buffer never opens "
            f"unless a schedule moves it, {here}: {by}",
            fix="make the gate an nn.Parameter; where a schedule of your own moves it, silence the "
            "rule",
        )
    opening = [one for one in opening if one not in unknown]
    if opening:
        held = sum(not _is_trained(one) for one in opening)
        yield Fault(
            severity=Severity.INFO,
            where=opening,
            message="branches that a gate multiplies by 0 at first, so that blocks start as the "
            f"identity: {len(opening)}. Gates that are buffers and follow a schedule, or never "
            f"open: {held}",
            fix="nothing, where a schedule moves the buffers; keep weight decay off gates that are "
            "trained",
        )


def _is_trained(of: Sublayer) -> bool:
    gate = of.formula.gate
    return gate is not None and gate.origin == Origin.TRAINABLE


def _why_dead(patient: Patient, stack: Stack, of: Sublayer) -> str:
    """Returns the reason why the gate of a branch stays at 0, as a sentence; "" where it may leave
    0.
    """
    if not _is_trained(of):
        # A buffer may follow a schedule, as the branch's factor of BranchNorm does.
        gate = of.formula.gate
        return "The factor is no trainable parameter" if gate is None or gate.is_constant else ""
    gates = of.measured.gates or _nearest(patient, stack, of.name)
    moved = [name for name in gates if patient.gets_gradient(name)]
    if not gates or not of.measured.reaches_loss:
        return ""
    if not moved:
        return "The gradient of their gates is exactly 0"
    held = patient.optimizer is None or any(
        id(patient.weights[name]) in patient.held for name in moved
    )
    return "" if held else "The optimiser does not hold their gates"


def _nearest(patient: Patient, stack: Stack, path: str) -> list[str]:
    """Returns the trainable gates at 0 that share the longest part of their path with a
    sub-layer's; several where none is closer.

    For a gate that the recorded products do not tell, as one that is read through .data: gates are
    kept beside the branch, in its block, or in a list of their own for all blocks.
    """
    shared = {
        name: _in_common(path.split("."), name.split("."))
        for name in gates_at_zero(patient.model, stack.width)
    }
    return [name for name, length in shared.items() if length == max(shared.values())]


def _in_common(one: list[str], other: list[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


_CAIT = ((18, 0.1), (24, 1e-5))
"""LayerScale's start up to a depth, as CaiT's authors chose it; 1e-6 beyond."""
_STARTS_LARGE = 3.0
"""Factor above it that is another start: a third of a decade."""


@stack_rule("gate-start", initial_weights)
def gate_start(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Trained factors of all branches that start at 1, beside what their depth asks for."""
    places = in_blocks(stack)
    scales = [abs(one.branch_scale or 0.0) for one in places if _is_trained(one)]
    if len(scales) < len(places) or not scales or not all(map(math.isfinite, scales)):
        return
    vectors = all(one.formula.gate is not None and one.formula.gate.vector for one in places)
    # Gates without norms are ReZero's; those beside norms are LayerScale's where they are vectors.
    layer_scale = next((start for depth, start in _CAIT if stack.blocks <= depth), 1e-6)
    wanted = layer_scale if stack.norm else 0.0
    found = math.exp(fmean(math.log(scale) for scale in scales)) if min(scales) > 0 else 0.0
    if found <= max(wanted * _STARTS_LARGE, 0.1) or (stack.norm and not vectors):
        return
    deep = stack.blocks > _CAIT[0][0]
    yield Fault(
        severity=Severity.WARNING if deep or not stack.norm else Severity.INFO,
        where=places,
        message=f"the trained factors of {len(scales)} branches start at {found:.3g}; with "
        f"{stack.blocks} blocks "
        + (
            f"CaiT starts LayerScale at {wanted:.2g}"
            if stack.norm
            else "and no norm, ReZero starts its gates at 0"
        ),
        fix=f"start them at {wanted:.2g}, unless weights that were trained from there are loaded "
        "next",
    )


_SHUT = 0.05
"""Root mean square of a gate that starts as good as shut."""


@rule("condition-gate-open", initial_weights)
def open_condition_gates(patient: Patient) -> Iterator[Fault]:
    """Gates that a condition makes, as those of adaLN-Zero, and that start open."""
    gates = patient.observed.conditioned_gates
    found = {name: size for name, size in gates.items() if size > _SHUT}
    if found:
        yield Fault(
            where=found,
            message=f"{len(found)} of {len(gates)} matrices that make the gates of branches from a "
            f"condition start them at up to {max(found.values()):.2g} (root mean square), where "
            "adaLN-Zero starts them at 0 and every block as the identity",
        )


LARGEST_GATE = 10.0
"""Ten times the factor 1 of a branch without a gate; those of ReZero and LayerScale start at 0 to
0.1.
"""
WHOLE_SHARE = 0.99


@rule("saturated-gate")
def saturated_gates(patient: Patient) -> Iterator[Fault]:
    """Trained factors so large that a branch takes the place of the stream it should add to."""
    large = [
        one
        for one in patient.sublayers()
        if _is_trained(one)
        and abs(one.branch_scale or 0.0) > LARGEST_GATE
        and one.measured.share > WHOLE_SHARE
    ]
    if large:
        scale = max(abs(one.branch_scale or 0.0) for one in large)
        share = min(one.measured.share for one in large)
        yield Fault(
            where=large,
            message=f"branches with trained gates of up to {scale:.3g}, that make up at least "
            f"{share:.1%} of the sum's square: {len(large)}. The skip path carries next to "
            "nothing there",
        )


@rule("flat-gate")
def flat_gates(patient: Patient) -> Iterator[Fault]:
    """Parameters that start where the σ or tanh that is taken of them has lost its slope."""
    flat = patient.observed.flat_gates
    if flat:
        drawn = not patient.trained
        yield Fault(
            severity=Severity.WARNING if drawn else Severity.INFO,
            where=flat,
            message=(
                f"parameters whose σ or tanh has less than {FLAT:.0%} of its greatest slope, in "
                f"{min(flat.values()):.0%} of their entries or more: {len(flat)}. Their gradients "
                "are smaller by as much"
            )
            + ("" if drawn else "; a training may have led them there"),
            fix="start them nearer to 0, within 3 for σ and 1.5 for tanh, or reach an almost open "
            "or shut gate by a constant outside the curve"
            if drawn
            else "nothing, where they are meant to be open or shut for good",
        )
    shut = patient.observed.shut_gates
    if shut and not patient.trained:
        yield Fault(
            where=shut,
            message=(
                f"a σ or softplus of what a token is that is shut for every token and entry, with "
                f"a mean of {max(shut.values()):.2g} and less than {FLAT:.0%} of its greatest "
                "slope: what it multiplies is next to nothing, and so is the gradient that would "
                "open it"
            ),
            fix="start its bias nearer to 0, within 3; the bias of a state space's step so that "
            "steps lie between 0.001 and 0.1",
        )
