"""Weights that are not finite, do not belong to the placement, or are the same in every block."""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from ....measure.passes import has_arithmetic
from ....placement import Placement, named
from ...record import Stack
from ...result import Severity
from ...trace.forward import NonfiniteWeight
from ..initial_weights import MatrixGain, typical, weighed
from ..patient import Patient, initial_weights, listed, numbered
from ..rule import Fault, rule, stack_rule
from ..structure import shape_of, wanted


@rule("nonfinite-weights", bears_nonfinite=True)
def nonfinite_weights(patient: Patient) -> Iterator[Fault]:
    """Parameters with infinite or NaN entries; -inf alone may be meant, as a mask or as the bias of
    a class.
    """
    for severity in (Severity.ERROR, Severity.WARNING):
        found = [
            one
            for one in patient.nonfinite
            if one.only_minus_infinity == (severity is Severity.WARNING)
        ]
        if found:
            entries = sum(one.entries for one in found)
            yield Fault(
                severity=severity,
                where=found,
                message=f"{entries} of {sum(one.of for one in found)} entries of these "
                f"{_kinds(patient, found)} are "
                f"{'-inf' if severity is Severity.WARNING else 'infinite or NaN'}. What is "
                "said of the structure is read with 0 in their place; gradients, advice and "
                "the other rules are left out",
                fix=_fix(patient, found),
            )


def _kinds(patient: Patient, found: list[NonfiniteWeight]) -> str:
    buffers = {name for name, _ in patient.model.named_buffers()} & {one.name for one in found}
    return (
        "parameters"
        if not buffers
        else "buffers"
        if len(buffers) == len(found)
        else "parameters and buffers"
    )


def _fix(patient: Patient, found: list[NonfiniteWeight]) -> str:
    if _kinds(patient, found) == "buffers":
        return (
            "compute them after the model is built or loaded: no training changes a buffer, "
            "and torch.empty and to_empty leave whatever was in memory"
        )
    if all(one.only_minus_infinity for one in found):
        return (
            "if it is a mask, register it as a buffer, which no optimiser updates; if not, draw "
            "the weights again"
        )
    missing = [
        one.name
        for one in found
        if patient.loading is not None and one.name in patient.loading.missing
    ]
    if missing:
        return (
            f"the checkpoint lacks {listed(missing)}: initialise what it does not hold, or load "
            "another one"
        )
    return (
        "go back to a checkpoint from before they appeared, or initialise them: torch.empty and "
        "to_empty leave whatever was in memory"
    )


TOLERANCE = 1.5
"""Factor by which a matrix may be larger or smaller than wanted. Uniform, normal and truncated
draws of one scale agree within 5 %; drawing a packed matrix as a whole makes its parts √2 smaller
than Glorot's."""

_SAID: Mapping[str, str] = {
    "value": "value",
    "output": "attention output",
    "ffn_in": "first feed-forward",
    "ffn_out": "last feed-forward",
}
"""Queries and keys are not judged: no placement scales them, and their size moves no branch's
scale.
"""


@stack_rule("initialisation-unlike-placement", initial_weights)
def unlike_placement(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """DeepNorm, T-Fixup and Sub-LN are a wiring and the scale of the weights that go with it."""
    placement = named(stack.placement) if stack.placement else None
    defined = placement is not None and shape_of(patient.stacks, stack).model in placement.models
    if placement is None or not defined or not placement.initialisation.startswith("xavier-"):
        return
    # A sum without norms beside others with them is none of a placement that has no norms at all.
    formula = wanted(patient, stack)
    if formula is None or formula.has_norms or not stack.norm:
        yield from _unlike(patient, stack, placement)


def _fits(one: MatrixGain) -> bool:
    return 1 / TOLERANCE <= one.ratio <= TOLERANCE


def _unlike(patient: Patient, stack: Stack, placement: type[Placement]) -> Iterator[Fault]:
    judged = [one for one in weighed(patient, stack, placement, _fits) if one.role in _SAID]
    # A matrix of zeros is a branch that starts closed.
    wrong = [one for one in judged if not _fits(one) and one.gain > 0]
    if not wrong:
        return
    said = []
    for role, name in _SAID.items():
        some = [one for one in wrong if one.role == role]
        if some:
            found, wanted = (
                typical([one.gain for one in some]),
                typical([one.wanted for one in some]),
            )
            blocks = len({one.block for one in judged if one.role == role})
            out = len({one.block for one in some})
            said.append(f"{name} {found:.2f} in place of {wanted:.2f} ({out} of {blocks} blocks)")
    yield Fault(
        severity=_severity(wrong),
        where=listed(one.parameter for one in wrong) or stack.name,
        message=(
            f"{placement.title} with {stack.blocks} blocks draws each weight at its own multiple "
            f"of Glorot's √(2 / (inputs + outputs)), and these are others: {', '.join(said)}"
        ),
        fix="re-initialise these matrices with torch.nn.init.xavier_normal_(weight, gain=...), at "
        f"the gains of {placement.citation}: {_gains(wrong)}; parts of a packed matrix each on its "
        "own",
    )


def _severity(wrong: list[MatrixGain]) -> Severity:
    """Too large is the side on which depth makes training fail; too small is only likely
    unintended.

    Where the gain wanted is above 1 (Sub-LN), a smaller one is the choice of many models and costs
    stability nothing.
    """
    if any(one.gain > TOLERANCE * max(1.0, one.wanted) for one in wrong):
        return Severity.ERROR
    return Severity.INFO if all(one.ratio < 1 <= one.wanted for one in wrong) else Severity.WARNING


def _gains(wrong: list[MatrixGain]) -> str:
    return ", ".join(
        f"{typical([one.wanted for one in wrong if one.role == role]):.3f} for {name}"
        for role, name in _SAID.items()
        if any(one.role == role for one in wrong)
    )


@rule("identical-blocks")
def identical_blocks(patient: Patient) -> Iterator[Fault]:
    """Blocks that are copies of one drawn block; what is one and the same tensor, as in ALBERT, is
    no copy.
    """
    yield from _tied_by_copy(patient)
    for stack in patient.stacks:
        groups = _copies(stack, patient.weights)
        if not groups:
            continue
        stock = _is_torchs(patient.model, stack.name)
        parts = [
            f"every matrix of {numbered(others)} is a copy of that of block {first}"
            for first, *others in groups
        ]
        all_same = len(groups[0]) == stack.blocks
        yield Fault(
            # Blocks of a trained model may be doubled on purpose, to train a deeper one.
            severity=Severity.WARNING if not patient.trained else Severity.INFO,
            where=stack.name,
            message=(f"all {stack.blocks} blocks start with the same weights: " if all_same else "")
            + "; ".join(parts)
            + (
                ", as torch.nn.TransformerEncoder and TransformerDecoder make them of one layer"
                if stock
                else ""
            ),
            fix="re-initialise every block after it is built, e.g. for p in model.parameters(): if "
            "p.dim() > 1: torch.nn.init.xavier_uniform_(p), as torch.nn.Transformer does"
            if stock
            else "build a layer for every block rather than copy.deepcopy one, or initialise after "
            "copying",
        )


def _tied_by_copy(patient: Patient) -> Iterator[Fault]:
    """An output matrix that holds what an embedding holds, and is another parameter."""
    weights = patient.weights
    tables = [one.name for one in patient.observed.tables if one.name in weights]
    for name in [one.name for one in patient.observed.output_matrices if one.name in weights]:
        same = [
            other
            for other in tables
            if weights[other].data_ptr() != weights[name].data_ptr()
            and weights[other].shape == weights[name].shape
            and torch.equal(weights[other], weights[name])
        ]
        if same and not patient.trained:
            yield Fault(
                where=[name, *same],
                message=(
                    f"{name} starts as a copy of {same[0]} and is a parameter of its own: tied by "
                    "value, the two part at the first update"
                ),
                fix="tie the parameter and not its numbers: head.weight = embedding.weight",
            )


@rule("constant-weights", initial_weights)
def constant_weights(patient: Patient) -> Iterator[Fault]:
    """Matrices of sub-layers that are filled with one number other than 0, as a fill_ or a
    constant_ leaves them.
    """
    weights = patient.weights
    names = dict.fromkeys(
        name for sublayer in patient.sublayers() for name in sublayer.measured.matrices
    )
    matrices = {
        name: weights[name].detach()
        for name in names
        if name in weights and min(weights[name].shape) > 1
    }
    matrices_full = {
        name: w
        for name, w in matrices.items()
        if w.ndim > 1 and w.numel() and bool(w.flatten()[0] != 0)
    }
    found = {
        name: float(w.flatten()[0])
        for name, w in matrices_full.items()
        if _everywhere(w, lambda x: x == x[0])
    }
    if found:
        numbers = sorted(set(found.values()))
        yield Fault(
            where=found,
            message=(
                f"{len(found)} of {len(matrices)} matrices of sub-layers start with one number in "
                f"every entry, {', '.join(f'{number:.3g}' for number in numbers[:3])}"
            ),
            fix="draw them, e.g. by torch.nn.init.normal_(weight, std=0.02)",
        )
    sided = [
        name
        for name, w in matrices.items()
        if w.ndim > 1 and name not in found and _is_one_sided(w)
    ]
    if 2 * len(sided) > len(matrices):
        yield Fault(
            where=sided,
            message=(
                f"{len(sided)} of {len(matrices)} matrices of sub-layers have entries of one sign "
                "alone: every unit sums up its inputs, so that all compute nearly the same"
            ),
            fix="draw them about 0: torch.nn.init.uniform_(weight, -a, a), and not torch.rand, "
            "which draws from 0 to 1",
        )


@rule("drawn-shifts", initial_weights)
def drawn_shifts(patient: Patient) -> Iterator[Fault]:
    """Biases beside matrices of sub-layers that are drawn about 0, and much wider than
    1/√(inputs).
    """
    weights = patient.weights
    matrices = dict.fromkeys(
        name for sublayer in patient.sublayers() for name in sublayer.measured.matrices
    )
    pairs = [
        (name.rpartition(".")[0] + ".bias", name) for name in matrices if name.endswith(".weight")
    ]
    known = {
        bias: weights[bias].detach().double()
        for bias, name in pairs
        if bias in weights and name in weights and has_arithmetic(weights[bias])
    }
    inputs = {
        bias: weights[name][0].numel()
        for bias, name in pairs
        if bias in known and weights[name].ndim > 1
    }
    wide = {
        name: float(b.std())
        for name, b in known.items()
        if name in inputs and _is_wide(b, inputs[name])
    }
    if 2 * len(wide) > len(known):
        name, size = max(wide.items(), key=lambda one: one[1] * math.sqrt(inputs[one[0]]))
        yield Fault(
            where=wide,
            message=(
                f"{len(wide)} of {len(known)} biases are drawn with deviations up to {size:.3g}, "
                f"{size * math.sqrt(3 * inputs[name]):.3g} times those of torch's 1/√(inputs)"
            ),
        )


def _is_wide(bias: Tensor, inputs: int) -> bool:
    """Tells whether a bias is a draw about 0, as gates start at other means, and four times as wide
    as torch's default.
    """
    if bias.numel() < _FEW_SHIFTS:
        return False
    deviation = float(bias.std())
    about_0 = abs(float(bias.mean())) < 4 * deviation / math.sqrt(bias.numel())
    return about_0 and deviation > 4 / math.sqrt(3 * inputs)


_FEW_SHIFTS = 8


def _is_one_sided(weight: Tensor) -> bool:
    if weight.numel() < _MANY or not has_arithmetic(weight):
        return False
    one_sided = _everywhere(weight, lambda x: x >= 0) or _everywhere(weight, lambda x: x <= 0)
    return one_sided and bool(weight.any())


_MANY = 256
"""Entries that would be of one sign by chance in no draw about 0."""


def _everywhere(weight: Tensor, holds: Callable[[Tensor], Tensor]) -> bool:
    """Tells whether a condition holds for every entry: for most matrices the first few show that it
    does not.
    """
    entries = weight.flatten()
    return all(bool(holds(some).all()) for some in (entries[:_MANY], entries))


def _copies(stack: Stack, weights: Mapping[str, Tensor]) -> list[list[int]]:
    """Returns the blocks whose matrices are all equal and are other tensors, group by group, the
    largest group first.
    """
    matrices: dict[int, list[Tensor]] = {}
    for sublayer in stack.sublayers:
        names = sublayer.measured.parameters
        drawn = [weights[n].detach() for n in names if n in weights and weights[n].ndim > 1]
        matrices.setdefault(sublayer.block, []).extend(
            w for w in drawn if w.numel() and not _everywhere(w, lambda x: x == x[0])
        )
    groups: list[list[int]] = []
    for block in sorted(number for number in matrices if number > 0):
        alike = next(
            (group for group in groups if _all_copies(matrices[block], matrices[group[0]])), None
        )
        if alike is None:
            groups.append([block])
        else:
            alike.append(block)
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def _all_copies(some: list[Tensor], first: list[Tensor]) -> bool:
    return len(some) == len(first) > 0 and all(
        one.data_ptr() != other.data_ptr() and one.shape == other.shape and torch.equal(one, other)
        for one, other in zip(some, first, strict=True)
    )


def _is_torchs(model: nn.Module, path: str) -> bool:
    """Tells whether the module of that path, or one around it, is torch's own stack of copied
    layers.
    """
    parts = path.split(".") if path else []
    around = [model.get_submodule(".".join(parts[:n])) for n in range(len(parts) + 1)]
    return any(
        isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder) for module in around
    )
