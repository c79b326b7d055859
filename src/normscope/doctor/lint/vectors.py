"""Parameters that are no matrices, gains and shifts of norms and gates, and what they tell of a model's training."""

from collections.abc import Iterable

from torch import nn

from .rules import Loading, Patient


def norm_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Gains and shifts of norms, gates, and other vectors that stand alone, by name.

    They are the parameters of modules none of whose own parameters is a matrix: every norm is such a module, whatever
    its class is called. Biases of linear layers stand beside a matrix and are not among them.
    """
    found: dict[str, nn.Parameter] = {}
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own and all(parameter.ndim <= 1 or parameter.numel() == 1 for parameter in own.values()):
            found |= {_joined(path, name): parameter for name, parameter in own.items()}
    return found


def gates_at_zero(model: nn.Module, width: int) -> list[str]:
    """Names of trainable parameters that are 0 and may multiply a whole branch.

    Single numbers wherever they are, and vectors of the stream's width, unless they stand beside a matrix or beside
    other parameters that are not 0: biases and the shifts of norms do.
    """
    found = [name for name, p in model.named_parameters() if p.numel() == 1 and _is_trained_zero(p)]
    alone = norm_parameters(model)
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if all(_joined(path, name) in alone and _is_trained_zero(p) for name, p in own.items()):
            found += [_joined(path, name) for name, p in own.items() if p.numel() == width > 1]
    return found


def _is_trained_zero(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and not bool(parameter.detach().any())


LARGE_TABLE = 4.0
"""Root mean square of an embedding's entries; torch and T5 draw 1, and most others 0.02."""


def large_tables(model: nn.Module) -> dict[str, float]:
    """Root mean square of the entries of embeddings that are larger than any in use, by the weight's name."""
    found: dict[str, float] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding) and not module.weight.is_meta:
            size = float(module.weight.detach().float().square().mean().sqrt())
            if LARGE_TABLE < size < float("inf"):
                found[_joined(path, "weight")] = size
    return found


def at_initialisation(patient: Patient) -> bool:
    """Whether the weights are as they were drawn, as far as it shows.

    They are not where a checkpoint was loaded, or where most gains and shifts of norms, which every initialisation
    makes constant, differ from feature to feature: one update of any optimiser but plain sign descent does that.
    """
    return not are_trained(patient.model, patient.loading)


def are_trained(model: nn.Module, loading: Loading | None) -> bool:
    """Whether weights are not as they were drawn, in the sense of `at_initialisation`."""
    if loading is not None:
        return True
    vectors = [
        p.detach() for p in norm_parameters(model).values() if p.numel() > 1 and p.requires_grad and not p.is_meta
    ]
    varied = sum(not bool((vector == vector.flatten()[0]).all()) for vector in vectors)
    return 2 * varied > len(vectors)


def listed(names: Iterable[str], shown: int = 3) -> str:
    """Names for a report, as "a, b, c and 4 more"; each once."""
    several = list(dict.fromkeys(names))
    rest = len(several) - shown
    return ", ".join(several[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
