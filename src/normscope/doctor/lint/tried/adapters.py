"""Low-rank adapters beside frozen matrices."""

from collections.abc import Iterator, Sequence

from torch import nn

from ...observe.parameters import size_of
from ...trace.forward import joined
from ..patient import Patient
from ..rule import Fault, rule

_MOST_AROUND = 8
"""Parameters of a module that adapts one matrix."""
_OPEN = 0.5
"""The size of the second factor over the first's from which on it is open; a training moves it from
0 by less.
"""


@rule("adapters-open")
def open_adapters(patient: Patient) -> Iterator[Fault]:
    """Pairs of trained factors beside a frozen matrix, none of which starts at 0."""
    pairs = [*low_rank_pairs(patient.model)]
    found = [
        second
        for first, second in pairs
        if _size(patient, second) > _OPEN * _size(patient, first) > 0
    ]
    yield from _open_bottlenecks(patient)
    if found:
        first = next(first for first, second in pairs if second == found[0])
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(pairs)} adapters both factors are drawn: {first} with a "
                f"deviation of {_size(patient, first):.2g}, {found[0]} with "
                f"{_size(patient, found[0]):.2g}"
            ),
        )


def _size(patient: Patient, name: str) -> float:
    return patient.size_of(patient.weights[name])


@rule("adapted-trained")
def trained_beside_adapters(patient: Patient) -> Iterator[Fault]:
    """Matrices that are trained beside their low-rank adapters, in a model of which others are
    frozen.
    """
    if all(weight.requires_grad for weight in patient.model.parameters()):
        return
    found = {}
    for path, module in patient.model.named_modules():
        weights = [pair for pair in module.named_parameters() if pair[1].ndim == 2]
        if len(weights) != 3 or not all(one.requires_grad for _, one in weights):
            continue
        for name, weight in weights:
            others = [pair for pair in weights if pair[0] != name]
            first, _ = _factors(weight, others)
            if first and 2 * dict(others)[first].shape[0] <= min(weight.shape):
                found[joined(path, name)] = first
    if found:
        yield Fault(
            where=found,
            message=(
                f"{len(found)} matrices are adapted by two factors of low rank and are not frozen, "
                "as others of the model are: they are trained beside their adapters"
            ),
        )


_ADDED = 0.2
"""Size of what two factors make of a vector of size 1: adapters start next to nothing."""
_FROZEN = 0.5
"""The share of the model's parameters that is frozen; where less is, what is trained is no
adapter.
"""


def _open_bottlenecks(patient: Patient) -> Iterator[Fault]:
    """Pairs of trained matrices to a low rank and back in a frozen model, which add to it as they
    start.
    """
    weights = [*patient.model.parameters()]
    frozen = sum(weight.numel() for weight in weights if not weight.requires_grad)
    if frozen < _FROZEN * sum(weight.numel() for weight in weights):
        return
    sizes = dict(_bottlenecks(patient.model))
    found = {second: size for second, size in sizes.items() if size > _ADDED}
    if found:
        yield Fault(
            where=found,
            message=(
                f"{len(found)} of {len(sizes)} adapters start open: of a vector of size 1 they "
                f"make one of size {max(found.values()):.2g}, which is added to what the frozen "
                "model computes"
            ),
            fix="start the second matrix of each at 0, or near it: N(0, 0.001²)",
        )


def _bottlenecks(model: nn.Module) -> Iterator[tuple[str, float]]:
    """The name of the second matrix of every such pair of a module's own children, and the size
    that the two make of a vector of size 1.
    """
    for path, module in model.named_modules():
        own = {
            joined(name, "weight"): child.weight
            for name, child in module.named_children()
            if isinstance(child, nn.Linear) and child.weight.requires_grad
        }
        if len(own) != 2:
            continue
        (_, first), (name, second) = own.items()
        rank = first.shape[0]
        if second.shape[1] == rank and 2 * rank <= min(first.shape[1], second.shape[0]):
            shrunk = size_of(first) * first.shape[1] ** 0.5
            yield joined(path, name), shrunk * size_of(second) * rank**0.5


def low_rank_pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of the two factors, that which reads the input first, of every frozen matrix that
    has such a pair beside it.
    """
    for path, module in model.named_modules():
        weights = [*module.named_parameters()]
        frozen = [one for _, one in weights if not one.requires_grad and one.ndim == 2]
        trained = [(name, one) for name, one in weights if one.requires_grad and one.ndim == 2]
        if len(weights) > _MOST_AROUND or len(frozen) != 1 or len(trained) != 2:
            continue
        first, second = _factors(frozen[0], trained)
        # Of modules within one another the innermost alone has no other such module in it.
        if first and not any(_has_both(child, trained) for child in module.children()):
            yield joined(path, first), joined(path, second)


def _factors(frozen: nn.Parameter, trained: Sequence[tuple[str, nn.Parameter]]) -> tuple[str, str]:
    """Returns the names of A (r, in) and B (out, r) of a frozen (out, in); "" where they are
    none.
    """
    outputs, inputs = frozen.shape
    for (first, a), (second, b) in (trained, trained[::-1]):
        rank = a.shape[0]
        if a.shape == (rank, inputs) and b.shape == (outputs, rank) and rank < min(frozen.shape):
            return first, second
    return "", ""


def _has_both(module: nn.Module, trained: Sequence[tuple[str, nn.Parameter]]) -> bool:
    own = {id(weight) for weight in module.parameters()}
    return all(id(weight) in own for _, weight in trained)
