"""Part of the second law: what chance leaves out in training is a branch, and never the skip.

Stochastic depth that drops a whole sum hands on nothing: from there on the sequence is lost, and
what comes out is the same whatever went in.
"""

# B = sequences, T = tokens

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..trace.forward import main_tensor
from .given import named_inputs, with_changed
from .lookups import Lookups
from .trial import OutOfTime, Trial, Untried, said

_SEEDS = 3
_DRAWS = re.compile(r"bernoulli|rand|drop_?path|stochastic", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows of a batch in passes in training mode."""

    drawn: int
    lost: int
    """The number of rows whose output depends on nothing that was given."""
    by: tuple[str, ...]
    """Modules that draw in training."""


def lost_rows(trial: Trial) -> LostRows:
    """Measures how many rows of a batch are lost in training mode. Raises Untried where no module
    draws, where training mode cannot be run, and where outputs are not known to depend on what is
    given in evaluation mode.
    """
    by = tuple(name for name, module in trial.model.named_modules() if _draws(module))
    if not by:
        raise Untried("no module of the model's own draws numbers in training")
    if not all(_depends(trial)):
        raise Untried("not every output is known to depend on what is given")
    rows = []
    for module in trial.model.modules():
        module.training = "running_mean" not in module._buffers
    try:
        for seed in range(_SEEDS):
            torch.manual_seed(seed)
            rows += _depends(trial)
    except OutOfTime:
        raise
    except RuntimeError as error:
        raise Untried(f"training mode cannot be run on this batch ({said(error)})") from error
    finally:
        trial.model.eval()
    return LostRows(drawn=len(rows), lost=len(rows) - sum(rows), by=by)


def _draws(module: nn.Module) -> bool:
    """Tells whether a module's own forward asks for its mode and draws numbers."""
    if type(module).__module__.startswith("torch.nn."):
        return False
    code = getattr(type(module).forward, "__code__", None)
    names = () if code is None else code.co_names
    return "training" in names and any(_DRAWS.search(name) for name in names)


@torch.enable_grad()
def _depends(trial: Trial) -> list[bool]:
    """Tells, for each row, whether the output depends on any number that was given."""
    given = named_inputs(trial.model, trial.inputs)
    floats = {n: x.clone().requires_grad_() for n, x in given.items() if x.is_floating_point()}
    ids = next((x for x in given.values() if x.dtype == torch.long and x.ndim == 2), None)
    lookups = Lookups(torch.empty(0, 0) if ids is None else ids)
    with lookups:
        scores = main_tensor(trial.run(with_changed(trial.model, trial.inputs, floats)))
    asked = [*floats.values(), *lookups.made]
    if scores is None or not scores.requires_grad or not asked:
        return [False]
    # A sum of all is one number under a norm without gains.
    drawn = torch.randn(scores.shape, generator=torch.Generator().manual_seed(0)).to(scores)
    found = torch.autograd.grad(scores, asked, drawn, allow_unused=True)
    rows = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    for gradient in found:
        if gradient is not None and len(gradient) == len(rows):
            rows |= _is_any(gradient)
    return [bool(one) for one in rows]


def _is_any(gradient: Tensor) -> Tensor:
    return gradient.flatten(1).abs().amax(1) > 0
