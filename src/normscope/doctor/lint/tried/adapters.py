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
"""Of the first factor's size, the second's; a training moves it from 0 by less."""


@rule("adapters-open")
def open_adapters(patient: Patient) -> Iterator[Fault]:
    """Pairs of trained factors beside a frozen matrix, none of which starts at 0."""
    pairs = [*_pairs(patient.model)]
    found = [
        second
        for first, second in pairs
        if size_of(patient.weights[second]) > _OPEN * size_of(patient.weights[first]) > 0
    ]
    if found:
        first = next(first for first, second in pairs if second == found[0])
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(pairs)} adapters both factors are drawn: {first} with a "
                f"deviation of {size_of(patient.weights[first]):.2g}, {found[0]} with "
                f"{size_of(patient.weights[found[0]]):.2g}"
            ),
        )


def _pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
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
    """The names of A (r, in) and B (out, r) of a frozen (out, in); "" where they are none."""
    outputs, inputs = frozen.shape
    for (first, a), (second, b) in (trained, trained[::-1]):
        rank = a.shape[0]
        if a.shape == (rank, inputs) and b.shape == (outputs, rank) and rank < min(frozen.shape):
            return first, second
    return "", ""


def _has_both(module: nn.Module, trained: Sequence[tuple[str, nn.Parameter]]) -> bool:
    own = {id(weight) for weight in module.parameters()}
    return all(id(weight) in own for _, weight in trained)
