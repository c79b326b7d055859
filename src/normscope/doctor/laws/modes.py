"""The second law: training mode computes what evaluation mode computes, but for chance.

A norm, a skip or a branch that one of the two leaves out trains one model and evaluates another.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..trace.forward import main_tensor
from .calm import calm_training
from .trial import OutOfTime, Trial, Untried, said


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesApart:
    """The difference between the two modes on one batch."""

    difference: float
    """Norm of the outputs' difference over that of evaluation's; 0 where it is rounding."""
    where: str = ""
    """Path of the innermost module that is given the same in both modes and makes another output;
    "" for the model as a whole, and where that is not known."""
    inside: bool = False
    """True where any module that runs in both modes is given a different input in one of them."""
    in_training_alone: tuple[str, ...] = ()
    """Paths of modules that training calls and evaluation does not ..."""
    in_evaluation_alone: tuple[str, ...] = ()
    """... and the other way round."""


_ROUNDING = {torch.float16: 0.05, torch.bfloat16: 0.05}
_ROUNDING_ELSE = 1e-3


@torch.no_grad()
def modes_apart(trial: Trial) -> ModesApart:
    """Compares both modes. Raises Untried where training mode cannot be run, returns something of
    another shape, or draws what is no dropout.
    """
    evaluated = main_tensor(trial.output)
    if evaluated is None:
        raise Untried("the output has no tensor that both modes can be compared by")
    trained = _in_training(trial, seed=0)
    if trained.shape != evaluated.shape:
        raise Untried("in training mode the model returns something of another shape")
    difference = _difference(trained, evaluated)
    if difference <= _ROUNDING.get(evaluated.dtype, _ROUNDING_ELSE):
        return ModesApart(difference=0.0)
    if _difference(_in_training(trial, seed=1), trained) > difference / 100:
        raise Untried("training mode draws numbers that are no dropout")
    if _are_scores_of(trained, evaluated):
        return ModesApart(difference=0.0)
    return _found_where(trial, difference)


def _in_training(trial: Trial, *, seed: int) -> Tensor:
    torch.manual_seed(seed)
    try:
        with calm_training(trial.model):
            scores = trial.scores()
    except OutOfTime:
        raise
    except Exception as error:
        raise Untried(f"training mode cannot be run on this batch ({said(error)})") from error
    if scores is None:
        raise Untried("in training mode the model returns no tensor to compare")
    return scores


def _difference(one: Tensor, other: Tensor) -> float:
    """Returns the difference of two tensors, relative to the second; entries that are not finite in
    both count as equal.
    """
    apart = (one.double() - other.double()).nan_to_num(0, 0, 0).norm()
    size = other.double().nan_to_num(0, 0, 0).norm()
    return float(apart / size) if size > 0 else float(apart)


_SCORED: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.sigmoid,
    lambda x: x.softmax(-1),
    lambda x: x.log_softmax(-1),
)


def _are_scores_of(trained: Tensor, evaluated: Tensor) -> bool:
    """Tells whether evaluation returns the probabilities of what training returns, as many models
    do.
    """
    given = trained.float()
    return any(_difference(made(given), evaluated) < _ROUNDING_ELSE for made in _SCORED)


@dataclass(slots=True)
class _Calls:
    """The inputs and outputs of a module at each of its calls."""

    given: dict[str, list[list[Tensor]]] = field(default_factory=dict)
    made: dict[str, list[list[Tensor]]] = field(default_factory=dict)


def _found_where(trial: Trial, difference: float) -> ModesApart:
    with _watched(trial.model) as evaluated:
        trial.run()
    with _watched(trial.model) as trained:
        _in_training(trial, seed=0)
    names = [name for name, _ in trial.model.named_modules()]
    odd = [name for name in names if _begins_in(name, evaluated, trained)]

    def is_innermost(module: str) -> bool:
        return not any(_is_within(other, module) for other in odd)

    innermost = [module for module in odd if is_innermost(module)]
    return ModesApart(
        difference=difference,
        where=innermost[0] if innermost else "",
        inside=any(_is_given_other(name, evaluated, trained) for name in names),
        in_training_alone=_called_alone(names, trained, evaluated),
        in_evaluation_alone=_called_alone(names, evaluated, trained),
    )


def _is_given_other(name: str, evaluated: _Calls, trained: _Calls) -> bool:
    both = name in evaluated.given and name in trained.given
    return both and not _are_same(evaluated.given[name][0], trained.given[name][0])


def _begins_in(name: str, evaluated: _Calls, trained: _Calls) -> bool:
    """Tells whether a module is given the same in both modes at its first call, and makes a
    different output.
    """
    if name not in evaluated.made or name not in trained.made:
        return False
    if _is_given_other(name, evaluated, trained):
        return False
    return not _are_same(evaluated.made[name][0], trained.made[name][0])


def _are_same(some: list[Tensor], others: list[Tensor]) -> bool:
    if [one.shape for one in some] != [one.shape for one in others]:
        return False
    limits = [_ROUNDING.get(one.dtype, _ROUNDING_ELSE) for one in some]
    pairs = zip(some, others, limits, strict=True)
    return all(_difference(one, other) <= limit for one, other, limit in pairs)


def _is_within(path: str, module: str) -> bool:
    return path != module and (not module or path.startswith(f"{module}."))


def _called_alone(names: list[str], here: _Calls, there: _Calls) -> tuple[str, ...]:
    """Returns the outermost modules that were called in one pass and not in the other."""
    alone = [name for name in names if name in here.made and name not in there.made]

    def is_outermost(module: str) -> bool:
        return not any(_is_within(module, other) for other in alone)

    return tuple(module for module in alone if is_outermost(module))


@contextmanager
def _watched(model: nn.Module) -> Iterator[_Calls]:
    """Notes what modules are given and make, of which the first tensors are kept."""
    calls = _Calls()
    handles = []
    for name, module in model.named_modules():

        def note(_: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
            given = [one for one in (*args, *kwargs.values()) if _is_kept(one)]
            main = main_tensor(output)
            calls.given.setdefault(name, []).append([one.detach().clone() for one in given])
            calls.made.setdefault(name, []).append([] if main is None else [main.detach().clone()])

        handles.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _is_kept(given: Any) -> bool:
    return isinstance(given, Tensor) and given.numel() > 0
