"""Trained weights that belong to another model: norms it lacks or has beyond it, or another
wiring.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from ....measure.passes import has_arithmetic
from ...identify.stacks import wired_like
from ...record import Stack
from ...result import Severity
from ...trace.forward import norm_parameters
from ..losses import MUCH_LOWER, gained
from ..patient import Patient, a_checkpoint, trained_weights
from ..rule import Fault, rule
from . import gains

_LIKE_A_NORM = re.compile(r"norm|(?<![a-z])ln(?![a-z])", re.IGNORECASE)
"""The names of norms: of a tensor that only the checkpoint has, nothing but its name is known."""
FEWEST_LIKES = 2
"""Norms of the same width that must have been trained before one that was not stands out."""


@rule("checkpoint-tensors", a_checkpoint)
def checkpoint_tensors(patient: Patient) -> Iterator[Fault]:
    """Weights of a stack that the checkpoint lacks, and norms that the model lacks."""
    if patient.loading is None:
        return
    norms = _stream_norms(patient)
    lacking = [name for name in patient.loading.missing if name.rpartition(".")[0] in norms]
    if lacking:
        yield Fault(
            where=lacking,
            message=f"the model has {len(lacking)} gains and shifts of norms that the checkpoint "
            "lacks: it was trained without these norms",
        )
    used = {name for sublayer in patient.sublayers() for name in sublayer.measured.parameters}
    weights = [name for name in patient.loading.missing if name in used and name not in lacking]
    if weights:
        yield Fault(
            where=weights,
            message=(
                f"the checkpoint lacks {len(weights)} weights of the stacks' sub-layers, which are "
                "as they were drawn"
            ),
            fix="load a checkpoint of this model, and compare the names of its tensors with the "
            "model's",
        )
    unexpected = [name for name in patient.loading.unexpected if _LIKE_A_NORM.search(name)]
    if unexpected:
        yield Fault(
            where=unexpected,
            message=f"the checkpoint has {len(unexpected)} tensors of norms that the model has no "
            "place for: it was trained with norms that the model lacks",
        )


@rule("untrained-norm")
def untrained_norm(patient: Patient) -> Iterator[Fault]:
    """A norm whose gain and shift are exactly as they were made, while all its likes have been
    trained.
    """
    unused = set(patient.observed.unused_parameters)
    by_width: dict[int, dict[str, bool]] = {}
    for path, own in _stream_norms(patient).items():
        if not any(f"{path}.{name}" in unused for name in own):
            width = max(tensor.numel() for tensor in own.values())
            # All 1, or all 0: a gain or a shift, or a gain that is counted from 1.
            initial = [
                bool((one == one[0]).all()) and float(one[0]) in (0.0, 1.0) for one in own.values()
            ]
            by_width.setdefault(width, {})[path] = all(initial)
    for width, norms in by_width.items():
        fresh = [path for path, initial in norms.items() if initial]
        trained = len(norms) - len(fresh)
        if fresh and trained >= max(FEWEST_LIKES, 2 * len(fresh)):
            yield Fault(
                where=fresh,
                message=(
                    "every gain is exactly its initial value and every shift exactly 0, while the "
                    f"{trained} other norms of width {width} have been trained: the weights come "
                    "from a model without "
                )
                + ("this norm" if len(fresh) == 1 else f"these {len(fresh)} norms"),
            )


def _stream_norms(patient: Patient) -> Mapping[str, dict[str, torch.Tensor]]:
    """Returns the parameters of norms of a stream's width, by the path of the module and their own
    names.
    """
    widths = {stack.width for stack in patient.stacks}
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        if parameter.ndim == 1 and parameter.numel() in widths and parameter.numel() > 1:
            path, _, own = name.rpartition(".")
            found.setdefault(path, {})[own] = parameter.detach()
    return found


# D = width of the stream


FEWEST = 4
"""Sub-layers with another after them, below which there is too little to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alignment:
    """The alignment of a stack's norms with its sub-layers, one by one but for the last."""

    own: tuple[float, ...]
    """Correlation, over features, of the gains of the sub-layer's norm with the sizes of the
    columns of the matrices that read its input. Training makes them grow together where the norm
    stands in front of these matrices: for y = W (γ ∘ n) the gradient flow keeps γ_i² - ‖W_:i‖² (Du
    et al. 2018, arXiv:1806.00900, for layers in a row)."""
    following: tuple[float, ...]
    """The same with the matrices of the sub-layer after it, in front of which the norm of Post-LN
    stands.
    """

    shifts: float | None
    """Mean correlation of a norm's shifts with the biases that its own sub-layer adds to the
    stream. Where the norm stands behind the sum, as in Post-LN, the loss's gradients with respect
    to the two are one vector, but for the norm's Jacobian between them, and both start at 0;
    elsewhere nothing ties them. None without shifts or biases."""

    @property
    def difference(self) -> float:
        """The mean difference: above 0 where norms were trained in front of their own sub-layers,
        as Pre-LN's; below 0 for Post-LN's.
        """
        return fmean(self._differences)

    @property
    def certainty(self) -> float:
        """The distance of the difference from 0 in standard errors over sub-layers."""
        error = stdev(self._differences) / math.sqrt(len(self._differences))
        return abs(self.difference) / error if error else float("inf")

    @property
    def _differences(self) -> list[float]:
        return [a - b for a, b in zip(self.own, self.following, strict=True)]


def alignment(patient: Patient, stack: Stack) -> _Alignment | None:
    """Measures the alignment of one stack; None where it is not known which norm belongs to which
    sub-layer, or there are too few.
    """
    weights = patient.weights
    matrices = [sublayer.measured.matrices for sublayer in stack.sublayers]
    columns = [
        _columns([weights[name] for name in names if name in weights], stack.width)
        for names in matrices
    ]
    norms = _block_norms(patient, stack.name, stack.width)
    sizes_of_gains = [vectors[0].abs() for vectors in norms]
    if (
        len(sizes_of_gains) != len(columns)
        or len(columns) <= FEWEST
        or any(one is None for one in columns)
    ):
        return None
    sizes = [one for one in columns if one is not None]
    biases = [_bias(weights, names, stack.width) for names in matrices]
    pairs = [
        (norm[1], b)
        for norm, b in zip(norms, biases, strict=True)
        if len(norm) == 2 and b is not None
    ]
    return _Alignment(
        own=tuple(map(_correlation, sizes_of_gains[:-1], sizes[:-1])),
        following=tuple(map(_correlation, sizes_of_gains[:-1], sizes[1:])),
        shifts=fmean(_correlation(*pair) for pair in pairs) if len(pairs) == len(norms) else None,
    )


def _block_norms(patient: Patient, path: str, width: int) -> list[list[torch.Tensor]]:
    """Returns the vectors of norms in the blocks of a stack, gains first, in the order in which the
    norms were built.
    """
    modules: dict[str, list[torch.Tensor]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        inside = name.removeprefix(f"{path}.") if path else name
        numbered = any(part.isdigit() for part in inside.split(".")[:-1])
        if name.startswith(path) and numbered and parameter.numel() == width:
            # A norm's shift comes after its gain.
            modules.setdefault(name.rpartition(".")[0], []).append(parameter.detach())
    return list(modules.values())


def _bias(
    weights: Mapping[str, torch.Tensor], matrices: Sequence[str], width: int
) -> torch.Tensor | None:
    """Returns the vector beside the last matrix of a sub-layer that is added to every token."""
    path, _, last = matrices[-1].rpartition(".")
    beside = [
        w
        for name, w in weights.items()
        if name.rpartition(".")[0] == path and name != f"{path}.{last}"
    ]
    found = [v.detach() for v in beside if v.shape == (width,) and has_arithmetic(v)]
    return found[0] if len(found) == 1 else None


def _columns(matrices: list[torch.Tensor], width: int) -> torch.Tensor | None:
    """(D): the size of what reads each feature of the input, over all matrices but the last, which
    makes the output.
    """
    reading = [
        matrix.detach().double()
        for matrix in matrices[:-1]
        if matrix.ndim == 2 and width in matrix.shape and has_arithmetic(matrix)
    ]
    if not reading:
        return None
    squares = [m.square().sum(0) if m.shape[1] == width else m.square().sum(1) for m in reading]
    return torch.stack(squares).sum(0).sqrt()


def _correlation(some: torch.Tensor, others: torch.Tensor) -> float:
    a, b = some.double(), others.double()
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-30))


LEAST_DIFFERENCE = 0.15
"""The smallest difference of correlations that counts; one of 64 unrelated features strays by 0.12,
and the mean over sub-layers by less.
"""
CLEARLY = 3.0
"""Standard errors of the difference from which there is a warning."""
SHIFTS_TOGETHER = 0.3
"""Mean correlation of shifts with biases from which norms stood behind their sums; half of what
small Post-LN models reach within 300 updates."""


@rule("contradicts-training", trained_weights)
def contradicts_training(patient: Patient) -> Iterator[Fault]:
    """A Post-LN checkpoint wired as Pre-LN, or the other way round: by its losses under both, else
    by its weights.

    Not where gains that are off by 1 explain it.
    """
    if any(True for _ in gains.gain_convention.check(patient)):
        return
    told = _by_losses(patient)
    if told is not None:
        yield from told
        return
    for stack in patient.stacks:
        wired = wired_like(stack)
        found = alignment(patient, stack) if wired else None
        trained = _trained_as(found) if found else ""
        if found and trained and trained != wired:
            yield Fault(
                severity=Severity.WARNING,
                where=stack.name,
                message=f"wired as {wired}, but trained as {trained}, as far as the weights tell: "
                f"{_evidence(found)}",
                fix=f"set the flag of the placement to {trained}, and compare losses on the data "
                "of the training",
            )


def _by_losses(patient: Patient) -> list[Fault] | None:
    """Returns the faults that the losses under both wirings show; None where they show nothing."""
    seen = patient.observed
    share = gained(seen, seen.rewired_loss_nats)
    if share is None:
        return None
    if share < 0:
        return []
    wired = wired_like(patient.stacks[0])
    other = "Post-LN" if wired == "Pre-LN" else "Pre-LN"
    fault = Fault(
        severity=Severity.ERROR if share >= MUCH_LOWER else Severity.WARNING,
        where=patient.stacks[0].name,
        message=f"wired as {wired}, but trained as {other}: on this batch the loss is "
        f"{seen.loss_nats:.2f} nats a token, and {seen.rewired_loss_nats:.2f} with the same "
        f"weights wired as {other}",
        fix=f"set the flag of the placement to {other}",
    )
    return [fault]


def _trained_as(found: _Alignment) -> str:
    """Pre-LN or Post-LN; "" where the weights do not say, or where what they say does not agree."""
    clear = abs(found.difference) >= LEAST_DIFFERENCE and found.certainty >= CLEARLY
    # Where gains lean the other way, shifts must go with biases as they hardly do by chance.
    least = SHIFTS_TOGETHER * (1 if found.difference <= 0 else 2)
    shifted = found.shifts is not None and found.shifts >= least
    if clear and found.difference > 0:
        return "" if shifted else "Pre-LN"
    return "Post-LN" if clear or shifted else ""


def _evidence(found: _Alignment) -> str:
    own, following = (sum(some) / len(some) for some in (found.own, found.following))
    words = (
        "the gains of its norms go with the columns of the matrices of their own sub-layers at a "
        f"mean correlation of {own:.2f}, and with those of the sub-layers after them at "
        f"{following:.2f} ({found.certainty:.1f} standard errors apart)"
    )
    if found.shifts is None:
        return words
    return (
        f"{words}; their shifts go with the biases of their own sub-layers' outputs at "
        f"{found.shifts:.2f}"
    )
