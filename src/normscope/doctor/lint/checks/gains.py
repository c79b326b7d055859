"""Gains of norms that start at another number than 1, or were trained for a norm that adds 1 to them."""

from collections.abc import Callable, Iterator, Sequence

from ...record import NormGain
from ...result import Severity
from ..likes import repeated
from ..patient import Patient, at_initialisation, listed, parameters_by_name
from ..rule import Fault, rule

_OFF = 0.1
"""How far from 1 a gain may start."""


@rule(
    "gain-start",
    Severity.WARNING,
    title="norms whose gains start at neither 1 nor, on a branch, 0",
    why="A norm hands on vectors of its gain's size: at 2 every branch and the logits start twice as large as the "
    "initial weights were chosen for, at 0 in all norms nothing reaches the output.",
    reference="Ba et al. 2016, arXiv:1607.06450, section 3.1: gains start at 1; transformers, Gemma's RMSNorm: "
    "weights that start at 0 and a forward pass that adds 1",
)
def gain_start(patient: Patient) -> Iterator[Fault]:
    """Gains that every initialisation makes constant, at another constant than norms have."""
    if not at_initialisation(patient):
        return
    gains = _of_stream(patient)
    large = _most_or_a_row(patient, gains, lambda gain: gain.total > 1 + _OFF)
    if large:
        added = [gain for gain in large if gain.adds_one]
        yield Fault(
            where=listed(gain.name for gain in large),
            message=f"gains of {len(large)} of {len(gains)} norms start at {_range(large)}, where norms start at 1"
            + (f": the parameters start at {_own(added)}, and the forward pass adds 1" if added else ""),
            fix="start these parameters at 0, as the forward pass multiplies by 1 + w"
            if added
            else "start them at 1; a size that is meant belongs into the weights that read the norm",
        )
    shut = _most_or_a_row(patient, gains, lambda gain: gain.total == 0)
    shut = [] if _open_by_design(patient, shut) else shut
    if len(shut) > 1:
        yield Fault(
            where=listed(gain.name for gain in shut),
            message=f"the gains of {len(shut)} of {len(gains)} norms start at 0, and the forward pass multiplies by "
            "them as they are: of what they norm nothing goes on"
            + (", every branch and every logit starts at 0" if len(shut) == len(gains) else ""),
            fix="start them at 1, or multiply by 1 + w, as Gemma does with weights that start at 0",
        )
    small = _most_or_a_row(patient, gains, lambda gain: 0 < gain.total < 1 - _OFF)
    if small:
        yield Fault(
            severity=Severity.INFO,
            where=listed(gain.name for gain in small),
            message=f"gains of {len(small)} of {len(gains)} norms start at {_range(small)}, where norms start at 1",
            fix="nothing, where branches are meant to start small",
        )


def _most_or_a_row(patient: Patient, gains: Sequence[NormGain], is_odd: Callable[[NormGain], bool]) -> list[NormGain]:
    """The gains that start oddly, where these are most of all, or all of a row of three or more at one place of blocks.

    One norm unlike the others is another rule's.
    """
    odd = [gain for gain in gains if gain.constant and is_odd(gain)]
    if 2 * len(odd) > len(gains):
        return odd
    weights, by_name = parameters_by_name(patient), {gain.name: gain for gain in odd}
    rows = repeated({gain.name: weights[gain.name] for gain in gains if gain.name in weights})
    return [by_name[name] for row in rows if len(row) > 2 and by_name.keys() >= row.keys() for name in row]


def _open_by_design(patient: Patient, shut: Sequence[NormGain]) -> bool:
    """Whether each of these norms ends a branch, which then starts at 0, as Fixup's and ReZero's do."""
    names = {gain.name for gain in shut}
    ends = {
        name
        for stack in patient.stacks
        for use in stack.norm_uses
        for name in use.parameters
        if any(
            term.at == use.at and term.kind == "norm" and term.arguments[0].kind == "branch"
            for sublayer in stack.sublayers
            for term in sublayer.formula.segment.terms
        )
    }
    return bool(names) and names <= ends


_ALL_BUT = 0.9
"""Share of norms that must agree."""
_NEAR = 0.25
"""How far a convention's number may be off: trained gains move from their start by about that."""
_SIGNS = 0.1
"""Share of gains below 0. Trained from 1, hardly any comes to be; about 0, half are."""


@rule(
    "gain-convention",
    Severity.WARNING,
    title="gains trained for another norm than the one that reads them",
    why="Some norms multiply by w, others by 1 + w. Weights of the one in the other make every norm's output twice as "
    "large, or next to nothing, without any error.",
    reference="github.com/huggingface/transformers, Gemma: 'Gemma is (x * w) whilst Llama is x * (1 + w)' in its "
    "RMSNorm's comment; github.com/ggerganov/llama.cpp adds 1 to Gemma's norms in conversion",
)
def gain_convention(patient: Patient) -> Iterator[Fault]:
    """Trained gains that lie about 1 where the forward pass adds 1, or about 0 where it does not."""
    gains = patient.observed.norm_gains
    if at_initialisation(patient) or len(gains) < 3:
        return
    doubled = [gain for gain in gains if gain.adds_one and abs(gain.own - 1) < _NEAR]
    if _agree(doubled, gains):
        yield Fault(
            where=listed(gain.name for gain in doubled),
            message=f"{len(doubled)} of {len(gains)} norms have parameters about 1 (mean {_mean(doubled):.3g}), and "
            f"the forward pass adds 1 to them: they multiply by {1 + _mean(doubled):.3g}, not by about 1",
            fix="subtract 1 from these weights when they are loaded, or multiply by w and not by 1 + w",
        )
    lost = [gain for gain in gains if not gain.adds_one and abs(gain.own) < _NEAR and gain.own_size < 2 * _NEAR]
    if _agree([gain for gain in lost if gain.negative > _SIGNS or not gain.own_size], gains):
        yield Fault(
            where=listed(gain.name for gain in lost),
            message=f"{len(lost)} of {len(gains)} norms have parameters about 0 (mean {_mean(lost):.3g}, "
            f"{sum(gain.negative for gain in lost) / len(lost):.0%} of them negative), and the forward pass multiplies "
            "by them as they are: they were trained for norms that multiply by 1 + w",
            fix="add 1 to these weights when they are loaded, or multiply by 1 + w",
        )


def _of_stream(patient: Patient) -> list[NormGain]:
    """Those as wide as a stream: smaller ones are of queries and keys, which may have a temperature of their own."""
    widths = {stack.width for stack in patient.stacks}
    sizes = {name: parameter.numel() for name, parameter in patient.model.named_parameters()}
    return [gain for gain in patient.observed.norm_gains if sizes.get(gain.name) in widths]


def _agree(some: Sequence[NormGain], gains: Sequence[NormGain]) -> bool:
    return len(some) >= _ALL_BUT * len(gains)


def _mean(gains: Sequence[NormGain]) -> float:
    return sum(gain.own for gain in gains) / len(gains)


def _own(gains: Sequence[NormGain]) -> str:
    return f"{_mean(gains):.3g}"


def _range(gains: Sequence[NormGain]) -> str:
    low, high = min(gain.total for gain in gains), max(gain.total for gain in gains)
    return f"{low:.3g}" if high - low < 1e-6 else f"{low:.3g} to {high:.3g}"
